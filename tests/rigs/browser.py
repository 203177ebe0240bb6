"""Debian's chromium without a screen: what a page looks like there, what becomes of it, and what it asks for."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

LIMIT_S: Final = 90
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
POLICY: Final = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MEASURE: Final = """<script>addEventListener("load", () => {
  const seen = () => [...document.querySelectorAll("tr[class]")].filter(r => r.offsetParent !== null).length;
  const top = document.documentElement;
  const told = {wide: top.scrollWidth, window: innerWidth, rows: seen(), text: document.body.innerText};
  told.cell = document.querySelector("section td")?.offsetWidth;
  for (const id of ["hide-held", "hide-away"]) {
    const box = document.getElementById(id); if (!box) continue;
    box.click(); told[id] = seen(); box.click();
  }
  document.body.textContent = JSON.stringify(told);
})</script>"""


def missing() -> str | None:
    """Why there is no browser here, None if there is one."""
    if any(map(shutil.which, NAMES)):
        return None
    return "no chromium: .ci/peers installs Debian's where it may"


def chromium(file: Path, *words: str) -> str:
    """Open a file in a browser of its own, with no profile of anybody; what it says on standard output.

    Raises:
        subprocess.TimeoutExpired: it takes longer than LIMIT_S.
    """
    program = next(name for name in NAMES if shutil.which(name))
    with tempfile.TemporaryDirectory(prefix="hw-browser-", ignore_cleanup_errors=True) as profile:
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command += ["--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={profile}", *words]
        done = subprocess.run(
            [*command, file.as_uri()], capture_output=True, text=True, errors="replace", check=True, timeout=LIMIT_S
        )
    return done.stdout


def shot(file: Path, target: Path, width: int, height: int, *, dark: bool = False) -> Path:
    """A picture of a page, as a PNG."""
    words = [f"--screenshot={target}", f"--window-size={width},{height}"]
    chromium(file, *words, *(["--blink-settings=preferredColorScheme=0"] if dark else []))
    return target


def dom(file: Path) -> str:
    """What the browser made of a page, as HTML."""
    return chromium(file, "--dump-dom")


def measured(file: Path, width: int) -> dict[str, Any]:
    """What a script finds in a page (it is let in by taking the policy away): widths, rows that are seen, text."""
    text, policies = POLICY.subn("", file.read_text(encoding="utf-8"))
    assert policies == 1
    copy = file.with_name(f"measured-{file.name}")
    copy.write_text(text.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    body = dom_body(chromium(copy, "--dump-dom", f"--window-size={width},1000"))
    found: dict[str, Any] = json.loads(html.unescape(body))
    return found


def dom_body(text: str) -> str:
    """What is inside the body."""
    return re.split(r"<body[^>]*>", text, maxsplit=1)[1].rpartition("</body>")[0].strip()


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """A server that a page might ask: its address, and the paths that it was asked for."""
    asked: list[str] = []

    class Heard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Heard) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()
