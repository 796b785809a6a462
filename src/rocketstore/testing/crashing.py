"""``crash``: kills a program of the caller at a named point of the store's work."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

#: Writes down that something was acknowledged; the value is pickled.
Acknowledge = Callable[[Any], None]
Program = Callable[[Acknowledge], Any]

#: The points at which ``crash`` kills, and what the directory is like there.
CRASH_POINTS = {
    "stored": "messages are in the log; the call that put them has not returned",
    "before-dispatch": "the log is ahead of queues and index",
    "dispatched": "queues and index have what the log has",
    "file-created": "a new file of the log or of a queue is there, whole and empty",
    "before-checkpoint": "data is on disk; the checkpoint does not say so",
    "before-table": "a table of config/ is about to be replaced",
    "after-table": "a table of config/ was replaced",
    "delivered": "delayed messages were delivered; the table of delays does not say so",
    "before-clean-mark": "a closing store has synced everything; the abort file is still there",
}
_PUTS = ("put_messages", "put_many", "put_columns")
_FAILED, _ENDED, _SAID = b"F", b"E", b"S"


def crash(program: Program, point: str, *, count: int = 1, timeout_s: float = 60.0) -> list[Any]:
    """Run a program in a process of its own and kill it at a point of the store's work.

    The process is killed by SIGKILL, so what the store had given to the operating system stays,
    as after a crash of the service; no ``finally`` and no ``close`` runs. Open the store again
    afterwards and check what your program promises.

    Parameters
    ----------
    program : callable
        Takes a function ``acknowledge``. What ``program`` passes to it before the kill is
        returned, like the messages that a service had confirmed. It must open its own stores: a
        store that the test has open cannot be used in it.
    point : str
        One of ``CRASH_POINTS``.
    count : int
        Kill when the point is passed for this time.
    timeout_s : float
        Longest time that the program may take, in seconds.

    Returns
    -------
    list
        What was acknowledged, in order.

    Raises
    ------
    ValueError
        There is no such point, or ``count`` is less than 1.
    AssertionError
        The program raised, or it ended without passing the point so often.
    TimeoutError
        It took too long; it was killed.
    io.UnsupportedOperation
        On Windows, where processes cannot be forked.

    Notes
    -----
    Threading: forks the calling process, so call it while no other thread of the test holds a lock
    that ``program`` needs. Source: nothing of RocketMQ.
    """
    if point not in CRASH_POINTS:
        raise ValueError(f"there is no point {point!r}; the points are {', '.join(CRASH_POINTS)}")
    if count < 1:
        raise ValueError(f"count is {count}; a point is passed for the first time at 1")
    if not hasattr(os, "fork"):
        raise io.UnsupportedOperation("a process can be killed at a point only where it can fork")
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside other threads
        child = os.fork()
    if child == 0:
        os.close(reader)
        _run(program, point, count, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        said = _listen(answers, child, time.monotonic() + timeout_s, timeout_s)
    return _acknowledged(said, point, count)


# --- In the process that is killed ----------------------------------------------------------------


def _run(program: Program, point: str, count: int, writer: int) -> NoReturn:
    """Run the program; never return to the caller's test."""

    def say(kind: bytes, content: bytes) -> None:
        data = kind + len(content).to_bytes(8, "big") + content
        while data:
            data = data[os.write(writer, data) :]

    try:
        _watch(point, _killing(count))
        program(lambda value: say(_SAID, pickle.dumps(value)))
        say(_ENDED, b"")
    except BaseException:  # noqa: BLE001 - reported to the test, which raises
        say(_FAILED, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _killing(count: int) -> Callable[[], None]:
    """Return a function whose ``count``-th call kills the process."""
    passed = itertools.count(1)

    def pass_by() -> None:
        if next(passed) == count:
            os.kill(os.getpid(), signal.SIGKILL)
            while True:  # the signal may take a moment
                time.sleep(1)

    return pass_by


class _Place(NamedTuple):
    """A method of the store's parts, and when the point is passed."""

    owner: Any
    name: str
    is_before: bool = False
    is_passed: Callable[..., bool] = lambda *_, **__: True


def _watch(point: str, pass_by: Callable[[], None]) -> None:
    if point == "stored":
        _watch_puts(pass_by)
    for place in _places(point):
        setattr(place.owner, place.name, _passing(getattr(place.owner, place.name), pass_by, place))


def _passing(call: Any, pass_by: Callable[[], None], place: _Place) -> Any:
    """Return ``call`` with the point before it or after it."""

    def watched(*args: Any, **kwargs: Any) -> Any:
        if place.is_before:
            if place.is_passed(*args, **kwargs):
                pass_by()
            return call(*args, **kwargs)
        answer = call(*args, **kwargs)
        if place.is_passed(answer, *args, **kwargs):
            pass_by()
        return answer

    return watched


def _watch_puts(pass_by: Callable[[], None]) -> None:
    """``put`` and ``put_message`` are attributes of each store; the others are methods."""
    from rocketstore.store.default_message_store import DefaultMessageStore

    open_writer = DefaultMessageStore._open_writer

    def open_watched(store: DefaultMessageStore, *args: Any, **kwargs: Any) -> None:
        open_writer(store, *args, **kwargs)
        for name in ("put", "put_message"):
            setattr(store, name, _passing(getattr(store, name), pass_by, _Place(store, name)))

    for name in _PUTS:
        place = _Place(DefaultMessageStore, name)
        setattr(DefaultMessageStore, name, _passing(getattr(place.owner, name), pass_by, place))
    store_class: Any = DefaultMessageStore
    store_class._open_writer = open_watched


def _places(point: str) -> list[_Place]:
    from rocketstore.config_managers import files as config_files
    from rocketstore.delay.deliverer import Deliverer
    from rocketstore.directory.checkpoint import StoreCheckpoint
    from rocketstore.dispatch.dispatcher import CommitLogDispatcher
    from rocketstore.files.mapped_file_queue import MappedFileQueue
    from rocketstore.store.writer import StoreWriter

    def lags(dispatcher: CommitLogDispatcher, *_: Any, **__: Any) -> bool:
        return dispatcher.log.max_offset > dispatcher.reput_offset

    def has_read(_: Any, dispatcher: CommitLogDispatcher, *__: Any, **___: Any) -> bool:
        return dispatcher.reput_offset > 0

    def is_clean(_: Any, __: StoreWriter, *, clean: bool = False, **___: Any) -> bool:
        return clean

    return {
        "stored": [],
        "before-dispatch": [_Place(CommitLogDispatcher, "dispatch_until", True, lags)],
        "dispatched": [_Place(CommitLogDispatcher, "dispatch_until", False, has_read)],
        "file-created": [_Place(MappedFileQueue, "create_spare")],
        "before-checkpoint": [_Place(StoreCheckpoint, "write", True)],
        "before-table": [_Place(config_files, "write_config_file", True)],
        "after-table": [_Place(config_files, "write_config_file")],
        "delivered": [_Place(Deliverer, "deliver", False, lambda count, *_: count > 0)],
        "before-clean-mark": [_Place(StoreWriter, "flush_thoroughly", False, is_clean)],
    }[point]


# --- In the test ----------------------------------------------------------------------------------


def _listen(answers: io.BufferedReader, child: int, deadline: float, timeout_s: float) -> bytes:
    """Return what the child said until it ended; kill it after the deadline."""
    said = bytearray()
    late = False
    while True:
        left = deadline - time.monotonic()
        if not late and not select.select([answers], [], [], max(0.0, left))[0]:
            late = True
            os.kill(child, signal.SIGKILL)
        chunk = os.read(answers.fileno(), 1 << 16)
        if not chunk:
            break
        said += chunk
    os.waitpid(child, 0)
    if late:
        raise TimeoutError(f"the program had not ended after {timeout_s:g} s; it was killed")
    return bytes(said)


def _acknowledged(said: bytes, point: str, count: int) -> list[Any]:
    values: list[Any] = []
    at = 0
    while at + 9 <= len(said):
        kind, size = said[at : at + 1], int.from_bytes(said[at + 1 : at + 9], "big")
        content = said[at + 9 : at + 9 + size]
        at += 9 + size
        if len(content) < size:
            break  # killed while it wrote: never acknowledged
        if kind == _FAILED:
            raise AssertionError(f"the program raised:\n{content.decode()}")
        if kind == _ENDED:
            times = "once" if count == 1 else f"{count} times"
            raise AssertionError(f"the program ended without passing {point!r} {times}")
        values.append(pickle.loads(content))
    return values
