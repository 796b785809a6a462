"""What a task does first in its Python worker."""

from __future__ import annotations

import gc
import sys

_is_settled = False


def begin_task() -> None:
    """Take what is loaded out of the garbage collector's sight, once in a worker's life.

    Spark uses a worker for many tasks and collects garbage behind each. That walks over every
    object of pandas, NumPy and pyarrow, which are there to stay: 45 ms of the 46 ms of processor
    time that a task without work took here. What a first task has loaded is passed over from now
    on. In a process that is no worker nothing changes.
    """
    global _is_settled
    if _is_settled or not _is_in_task():
        return
    _is_settled = True
    gc.freeze()


def _is_in_task() -> bool:
    # A worker has loaded the module before any code of ours.
    context = sys.modules.get("pyspark.taskcontext")
    return context is not None and context.TaskContext.get() is not None
