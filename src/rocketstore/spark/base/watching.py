"""Report the progress of a session's running stages."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: ``look([(stage, tasks done, all its tasks), …])``
Look = Callable[[Sequence[tuple[int, int, int]]], None]
_POLL_S = 0.2


@contextlib.contextmanager
def watched(session: SparkSession, look: Look, *, poll_s: float = _POLL_S) -> Iterator[None]:
    """Call ``look`` with the running stages repeatedly while the block runs.

    Parameters
    ----------
    session : SparkSession
        May be a Spark Connect session: there the server reports progress, by default every two
        seconds (``spark.connect.progress.reportInterval``).
    look : callable
        ``look(stages)`` gets (stage, tasks done, all its tasks) of each stage. It includes stages
        of the application's other queries, and omits stages shorter than the poll interval.
    poll_s : float
        Seconds between two polls; not used with Spark Connect.
        Seconds between two looks, where this side asks.

    Raises
    ------
    Exception
        What ``look`` raised, if the block itself succeeded; ``look`` is not called again.

    Notes
    -----
    Threading: one thread at a time calls ``look``: a thread of its own, or with Spark Connect the
    thread that waits for a query; never after the block.
    """
    guarded = _Guarded(look)
    if type(session).__module__.startswith("pyspark.sql.connect"):
        with _reported_by_server(session, guarded):
            yield
    else:
        stop = threading.Event()
        arguments = (session.sparkContext.statusTracker(), guarded, stop, poll_s)
        thread = threading.Thread(target=_ask, args=arguments, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
    if guarded.error is not None:
        raise guarded.error


class _Guarded:
    """Calls ``look`` until it raises, and keeps the error."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.error: BaseException | None = None

    def __call__(self, stages: Sequence[tuple[int, int, int]]) -> None:
        if self.error is None and stages:
            try:
                self._look(stages)
            except BaseException as error:  # noqa: BLE001 - raised by ``watched``
                self.error = error


@contextlib.contextmanager
def _reported_by_server(session: Any, look: Look) -> Iterator[None]:
    def handler(stages: Any, **_: Any) -> None:
        look([(one.stage_id, one.num_completed_tasks, one.num_tasks) for one in stages or ()])

    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


def _ask(tracker: Any, look: Look, stop: threading.Event, poll_s: float) -> None:
    while not stop.wait(poll_s):
        look(running_stages(tracker))


def running_stages(tracker: Any) -> list[tuple[int, int, int]]:
    """Return (stage, tasks done, all its tasks) of each running stage; empty once the session ends.

    Parameters
    ----------
    tracker : pyspark.StatusTracker
    """
    try:
        infos = [(stage, tracker.getStageInfo(stage)) for stage in tracker.getActiveStageIds()]
    except Exception:  # noqa: BLE001 - py4j's errors: the JVM may exit during the call
        return []
    return sorted(
        (stage, info.numCompletedTasks, info.numTasks) for stage, info in infos if info is not None
    )
