"""Reads that wait, and moments at which they surely do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from support.syncs import LONG_S


def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds; fail if it never does."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Call:
    """A call on a thread of its own; ``result`` waits for it, and raises what it raised."""

    def __init__(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self._answer: Any = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._answer = call(*arguments, **options)
            except BaseException as error:  # noqa: BLE001 - raised by ``result``
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the call has returned."""
        return not self._thread.is_alive()

    def result(self) -> Any:
        """Return what the call returned."""
        self._thread.join(LONG_S)
        assert self.is_over
        if self._error is not None:
            raise self._error
        return self._answer


def held(store: Any, count: int = 1) -> None:
    """Wait until so many reads of a store wait."""
    until(lambda: len(store.hold) == count)


def bodies(result: Any) -> list[bytes]:
    """The bodies of a ``GetMessageResult``."""
    return [message.body for message in result.messages]
