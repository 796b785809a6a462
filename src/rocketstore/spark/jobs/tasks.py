"""Run one function over many items, as the tasks of one Spark job or in this process."""

from __future__ import annotations

import contextlib
import importlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rocketstore.errors import RocketStoreError
from rocketstore.spark.base.worker import begin_task

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

_SCHEMA = "number bigint, result binary"
#: Errors that a retry would meet again; the driver re-raises them unchanged.
_FINAL = (RocketStoreError, FileNotFoundError, FileExistsError, PermissionError)


def run_tasks(
    spark: SparkSession | None,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    watch: Callable[[int, int], None] | None = None,
) -> Iterator[Result]:
    """Call ``function`` with each item; yield the results in the order of the items.

    Parameters
    ----------
    spark : SparkSession or None
        ``None`` runs all items in this process, each when its result is requested. With a session
        (which may be Spark Connect) each item is a task, and all tasks finish before the first
        result is yielded.
    function : callable
        A module-level function of rocketstore, since executors import it by name. Spark may run
        it twice for one item.
    items : iterable
        Picklable plain values.
    watch : callable, optional
        ``watch(done, tasks)``, called occasionally while the tasks of a session run, possibly by
        another thread.

    Yields
    ------
    object
        What ``function`` returned; results are collected on the driver, so they must be small.

    Raises
    ------
    RocketStoreError, FileNotFoundError, FileExistsError, PermissionError
        As ``function`` raised them, for the first such item; Spark does not retry these.
    PythonException
        With Spark: any other exception of ``function``, after the task's last attempt.
    """
    if spark is None:
        yield from map(function, items)
        return
    from rocketstore.spark.base.shipping import shipped_function

    packed = [pickle.dumps(item) for item in items]
    if not packed:
        return
    call = shipped_function(work, function.__module__, function.__qualname__, packed)
    frame = spark.range(0, len(packed), 1, len(packed)).mapInArrow(call, _SCHEMA)
    with _watched(spark, len(packed), watch):
        results = {row.number: row.result for row in frame.collect()}
    for number in range(len(packed)):
        result, error = pickle.loads(results[number])
        if error is not None:
            raise error
        yield result


def _watched(
    spark: SparkSession, tasks: int, watch: Callable[[int, int], None] | None
) -> contextlib.AbstractContextManager[None]:
    if watch is None:
        return contextlib.nullcontext()
    from rocketstore.spark.base.watching import watched

    def look(stages: Sequence[tuple[int, int, int]]) -> None:
        # Stages of other queries may also run; they rarely have the same number of tasks.
        for _, done, number in stages:
            if number == tasks:
                watch(done, tasks)

    return watched(spark, look)


def _outcome(
    function: Callable[[Item], Result], item: Item
) -> tuple[Result | None, BaseException | None]:
    try:
        return function(item), None
    except _FINAL as error:
        return None, error


def work(
    module: str, name: str, packed: list[bytes], batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield one result for each item whose number comes in (a task)."""
    import pyarrow as pa

    function = getattr(importlib.import_module(module), name)
    begin_task()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            result = pickle.dumps(_outcome(function, pickle.loads(packed[number])))
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int64()), pa.array([result], pa.binary())],
                names=["number", "result"],
            )
