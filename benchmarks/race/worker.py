"""What the worker processes of Python share: lines in, one line of JSON out, and the clock.

A worker's handler is called with the words of a line and returns a mapping; what it raises becomes
``{"error": ...}``. Standard output belongs to the answers.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType

Answer = Mapping[str, int]


class Clock:
    """Adds up wall time, CPU time of the calling thread and of the process over ``with`` blocks."""

    def __init__(self) -> None:
        self.wall = self.cpu = self.process = self.count = 0

    def __enter__(self) -> Clock:
        self.process -= time.process_time_ns()
        self.cpu -= time.thread_time_ns()
        self.wall -= time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wall += time.perf_counter_ns()
        self.cpu += time.thread_time_ns()
        self.process += time.process_time_ns()

    def answer(self, count: int | None = None) -> dict[str, int]:
        """The sums as a worker answers them."""
        return {
            "wall": self.wall,
            "cpu": self.cpu,
            "process": self.process,
            "count": self.count if count is None else count,
        }


def serve(handle: Callable[[list[str]], Answer]) -> None:
    """Answer the lines of standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        answer: Mapping[str, object]
        try:
            answer = handle(line.split())
        except Exception as error:  # noqa: BLE001 - becomes the answer
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
