"""Running one function over many items: as the tasks of one Spark job, or in this process."""

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
#: Errors that another attempt would meet again: they come to the driver as themselves.
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
        ``None`` runs everything here, one item after the other, each when its result is asked
        for. With a session (a Connect session too) there is one task per item, and all have ended
        before the first result is yielded.
    function : callable
        At the top of a module of rocketstore, as executors import it by name. Spark may run it
        twice for one item.
    items : iterable
        Plain values that pickle.
    watch : callable, optional
        ``watch(done, tasks)``, called now and then while the tasks of a session run, maybe by
        another thread.

    Yields
    ------
    object
        What ``function`` returned; results are collected on the driver, so they must be small.

    Raises
    ------
    RocketStoreError, FileNotFoundError, FileExistsError, PermissionError
        As ``function`` raised them, for the first such item; Spark does not try these again.
    PythonException
        With Spark: what else ``function`` raised, once the task's attempts are used up.
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
        # Another query's stage may run, too; with as many tasks it would be a rare guest.
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
    """What a task does: the items whose numbers come in, one result for each."""
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
