"""Metrics: what a site watches and alerts on, in Prometheus text; counted here, kept by nobody.

`hwtool_steps_after_error_total` is the one to alert on: effectful steps that a run took although an error in it had not
been handled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hwtool.state import Daemon
from hwtool.worker import BusWorker
from hwtool_contracts.messages import Result

BUCKETS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """The counters of one daemon."""

    def __init__(self, daemon: Daemon, journalled: Callable[[], dict[str, int]] = dict) -> None:
        """`journalled`: rows of the journal by what they tell, where it is rendered."""
        self._daemon = daemon
        self._journalled = journalled
        self.registry = CollectorRegistry()
        labels = ("method", "status")
        self._requests = Counter("hwtool_requests", "Requests answered.", labels, registry=self.registry)
        self._errors = Counter("hwtool_errors", "Errors answered, by code.", ("code",), registry=self.registry)
        self._seconds = Histogram(
            "hwtool_request_seconds", "From request to answer.", ("method",), buckets=BUCKETS_S, registry=self.registry
        )
        self.undelivered = Counter(
            "hwtool_replies_undelivered", "Replies whose caller was gone.", registry=self.registry
        )
        self.registry.register(_Daemon(self))

    def answered(self, method: str, result: Result, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(method, result.status).inc()
        self._seconds.labels(method).observe(seconds)
        if result.error is not None:
            self._errors.labels(result.error["code"]).inc()

    def text(self) -> str:
        """Everything, in Prometheus text."""
        return generate_latest(self.registry).decode("utf-8")

    def write(self, file: Path) -> None:
        """Everything into a file for a textfile collector: the whole of it or what was there before.

        Raises:
            OSError: it cannot be written.
        """
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        beside.write_text(self.text(), encoding="utf-8")
        beside.replace(file)

    def families(self) -> Iterable[Metric]:
        """What is looked up when somebody asks: buses, devices, the store."""
        daemon = self._daemon
        told: tuple[tuple[str, str, Callable[[BusWorker], int]], ...] = (
            ("hwtool_transfers", "Transfers asked of a bus.", lambda w: w.sent),
            ("hwtool_requests_lost", "Transfers that may not have reached the device.", lambda w: w.lost["request"]),
            ("hwtool_replies_lost", "Transfers whose reply did not come whole.", lambda w: w.lost["reply"]),
            ("hwtool_rejected", "Transfers that the device is proved not to have acted on.", lambda w: w.lost["proof"]),
            ("hwtool_bus_returns", "How often a bus was away or in doubt and came back.", lambda w: w.returns),
        )
        for name, says, of in told:
            family = CounterMetricFamily(name, says, labels=["bus"])
            for worker in daemon.workers.values():
                family.add_metric([worker.spec.name], of(worker))
            yield family
        retries = CounterMetricFamily("hwtool_retries", "What was tried again, by reason.", labels=["bus", "reason"])
        for worker in daemon.workers.values():
            for reason, count in sorted(worker.retries.items()):
                retries.add_metric([worker.spec.name, reason], count)
        yield retries
        ready = GaugeMetricFamily("hwtool_bus_ready", "1: the bus may be used now.", labels=["bus"])
        for worker in daemon.workers.values():
            ready.add_metric([worker.spec.name], float(worker.state == "ready"))
        yield ready
        held = GaugeMetricFamily("hwtool_device_held", "1: effectful requests are refused.", labels=["device"])
        unknown = GaugeMetricFamily("hwtool_unknown_operations", "Operations to be settled.", labels=["device"])
        waiting = GaugeMetricFamily("hwtool_queue", "Keyed requests that wait or are at work.", labels=["device"])
        for device in daemon.devices.values():
            held.add_metric([device.name], float(device.held() is not None))
            unknown.add_metric([device.name], len(device.unknown))
            waiting.add_metric([device.name], device.waiting)
        yield from (held, unknown, waiting)
        yield GaugeMetricFamily("hwtool_frozen", "1: an operator has frozen the daemon.", float(daemon.frozen))
        yield GaugeMetricFamily("hwtool_store_failed", "1: the store has failed.", float(daemon.failed))
        yield CounterMetricFamily("hwtool_journal_seq", "Rows of the audit chain.", daemon.store.seq)
        after = "Effectful steps that a run took although an error in it was not handled."
        yield CounterMetricFamily("hwtool_steps_after_error", after, daemon.steps_after_error)
        rows = CounterMetricFamily("hwtool_journal_rows", "Rows of the journal, by what they tell.", labels=["what"])
        for what, count in sorted(self._journalled().items()):
            rows.add_metric([what], count)
        yield rows


class _Daemon:
    """What the library asks for families."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """The families as they are now."""
        return self._metrics.families()
