"""What a retry policy has sent so far: an effect keeps its key from attempt to attempt, or is refused unsent. Light.

Rules
- Until an attempt has come back to every effect of the earlier ones, each under its key, nothing is sent under a new
  key: it could be one of them again, and one that has ended well would be done twice.
- A change without a key cannot be told from its repetition, and is refused.
- Policies inside of policies keep an account each, and all of them must agree.
- An attempt that was given up sends nothing more, whatever task of it is left; a task of the last one is free when the
  policy has ended. Begin tasks that live longer outside of what is retried.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from hwtool.calls import Call


class FreshKeyInRetry(Exception):
    """An effect was to be repeated by a retry policy under a key of its own: that could do it twice."""


class Account:
    """What a policy has sent.

    Attributes:
        acted: effects that may have happened, in any attempt.
        known: keys of all attempts.
    """

    def __init__(self) -> None:
        self.outer = _ATTEMPT.get()
        self.acted = 0
        self.known: set[str] = set()
        self.over = False
        self.current: Attempt | None = None

    @contextmanager
    def attempt(self) -> Generator[None, None, None]:
        """One more attempt; what is called inside belongs to it, and so do tasks that are begun there."""
        self.current = Attempt(self)
        token = _ATTEMPT.set(self.current)
        try:
            yield
        finally:
            _ATTEMPT.reset(token)


class Attempt:
    """One attempt, and the keys that it has come to."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.used: set[str] = set()

    def check(self, call: Call[Any]) -> None:
        """Whether a change may be sent.

        Raises:
            FreshKeyInRetry: not under this key.
        """
        account = self.account
        if account.current is not self:
            raise FreshKeyInRetry(f"{call.method} comes out of an attempt that was given up: another one was begun")
        if call.key is None:
            raise FreshKeyInRetry(
                f"{call.method} has no key: it cannot be told from its repetition, and is not retried"
            )
        before = sorted(account.known - self.used)
        if call.key not in account.known and before:
            raise FreshKeyInRetry(
                f"{call.method} comes under key {call.key}, and this attempt has not come back to {before[0]} of an "
                "earlier one: make each key once, outside of what is retried, and send the effects in the same order"
            )

    def enter(self, key: str) -> None:
        """A change is about to be sent."""
        self.used.add(key)
        self.account.known.add(key)
        self.account.acted += 1


_ATTEMPT: ContextVar[Attempt | None] = ContextVar("hwtool_attempt", default=None)


class Effect:
    """A change that is about to be sent, in the accounts of the policies around it."""

    def __init__(self, accounts: list[Account]) -> None:
        self._accounts = accounts

    def never_was(self) -> None:
        """It is known that nothing has come of it."""
        for account in self._accounts:
            account.acted -= 1

    def ended(self, effects: object) -> None:
        """It has been answered, and this was observed."""
        if effects == "none":
            self.never_was()


def check_key(call: Call[Any]) -> Effect:
    """What a client does first: inside a retry policy each effect keeps the key that it had in the first attempt.

    Raises:
        FreshKeyInRetry: it has not; nothing may be sent.
    """
    attempts = [] if call.repeatable else list(_around())
    for attempt in attempts:
        attempt.check(call)
    for attempt in attempts:
        attempt.enter(call.key or "")
    return Effect([a.account for a in attempts])


def _around() -> Iterator[Attempt]:
    """The attempts that this call is inside of, the innermost first."""
    attempt = _ATTEMPT.get()
    while attempt is not None:
        if not (attempt.account.over and attempt.account.current is attempt):
            yield attempt
        attempt = attempt.account.outer


@contextmanager
def account() -> Generator[Account, None, None]:
    """The account of one policy at work."""
    mine = Account()
    try:
        yield mine
    finally:
        mine.over = True
