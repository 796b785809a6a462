"""The kernel objects of readers: both bodies answer what is plain, and leave all else alone."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import GetMessageStatus, RecordFlags
from support.appenders import Log
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

FOUND = GetMessageStatus.FOUND
UNIT = formats.CONSUME_QUEUE_UNIT.nbytes
SLOTS, ENTRIES = 50, 1000
FOREVER = 2**63 - 1
COUNT = 12
#: Count and bytes of a pull, both in memory and on disk, that are never reached.
FREE = (2**30, 0, 2**20, 2**30)


class Files:
    """Twelve messages of one queue in two segments, with their queue and index files."""

    def __init__(self, kernels: Bodies) -> None:
        self.kernels = kernels
        log = Log(kernels, segment_nbytes=1024)
        self.puts = [
            log.appender.put("T", b"body %d" % n, 0, keys=f"k{n % 5}") for n in range(COUNT)
        ]
        self.segments = log.segments
        self.offsets = [put.physical_offset for put in self.puts]
        self.units = SimpleNamespace(mapped=bytearray(100 * UNIT), was_used=False)
        kernels.consume_queue.put_units(
            self.units.mapped, 0, array("q", self.offsets),
            array("i", [put.nbytes for put in self.puts]), array("q", [0] * COUNT),
        )  # fmt: skip
        self.queue = kernels.reading.QueuePlace(b"T", 0)
        self.queue.recovered_index = COUNT
        self.queue.recent = (self.units, 0, 100)
        self.index = bytearray(formats.index_file_nbytes(SLOTS, ENTRIES))
        kernels.index_file.init_header(self.index, 0, 0)
        for n, one in enumerate(self.puts):
            kernels.index_file.put_key(
                self.index, SLOTS, ENTRIES, f"T#k{n % 5}".encode(), one.physical_offset,
                one.store_timestamp,
            )  # fmt: skip
        self.place = kernels.reading.IndexPlace(SimpleNamespace(mapped=self.index), SLOTS, ENTRIES)
        self.windows = kernels.reading.Windows(1024)
        for number in range(len(self.segments)):
            self.windows.add(self.window(number))

    def window(self, number: int) -> Any:
        """The window of a segment."""
        base = number * 1024
        return self.kernels.reading.Window(
            self.segments[number], base, base + 1024, 1024, RecordFlags.CHECK_BODY_CRC, 0
        )

    def pull(self, offset: int, count: int = 32, *limits: int) -> Any:
        """Statuses, offsets and the messages' offsets of a pull; None if it is not plain."""
        answer = self.windows.get_message(
            tuple, FOUND, self.queue, offset, count, *(limits or FREE)
        )
        if answer is None:
            return None
        return *answer[:4], [message.physical_offset for message in answer[4]]

    def query(self, key: str, count: int = 32, begin: int = 0, end: int = FOREVER) -> Any:
        """Offsets of the messages found, and the index's end; None if that is not plain."""
        answer = self.windows.query_message(tuple, (self.place,), "T", key, count, begin, end)
        if answer is None:
            return None
        return [message.physical_offset for message in answer[0]], *answer[1:]


def of_both(ask: Callable[[Files], Any], change: Callable[[Files], Any] | None = None) -> Any:
    """The answer of both bodies, which must be the same."""
    answers = []
    for kernels in (NATIVE, REFERENCE):
        files = Files(kernels)
        if change is not None:
            change(files)
        answers.append(ask(files))
    assert answers[0] == answers[1]
    return answers[0]


def test_a_pull_ends_with_its_segment() -> None:
    first = of_both(lambda files: files.offsets.index(1024))
    for offset in range(first):
        assert of_both(lambda files, at=offset: files.pull(at)) is None  # it goes on elsewhere
    later = of_both(lambda files: (files.pull(first), files.offsets[first:]))
    assert later[0] == (FOUND, COUNT, 0, COUNT, later[1])


def test_a_pull_ends_at_its_limits() -> None:
    ask = of_both
    assert ask(lambda files: files.pull(0, 2)[1]) == 2
    nbytes = of_both(lambda files: files.puts[0].nbytes)
    assert ask(lambda files: files.pull(0, 32, nbytes * 3, 0, 32, 1)[1]) == 3
    # All records lie before 10**6: the limits of the disk apply.
    assert ask(lambda files: files.pull(0, 32, 2**30, 10**6, 1, 2**30)[1]) == 1
    assert ask(lambda files: files.pull(0, 32, 2**30, 10**6, 32, nbytes * 2)[1]) == 2


@pytest.mark.parametrize("offset", [-1, COUNT, 2**70, -(2**70), 2**63 - 1])
def test_an_offset_outside_the_queue_is_not_plain(offset: int) -> None:
    assert of_both(lambda files: files.pull(offset)) is None


@pytest.mark.parametrize("count", [0, -1])
def test_a_pull_of_nothing_is_not_plain(count: int) -> None:
    assert of_both(lambda files: files.pull(1, count)) is None


def zero_body(files: Files) -> None:
    at = files.segments[1].index(b"body")
    files.segments[1][at] ^= 1


CHANGES: dict[str, Callable[[Files], Any]] = {
    "a damaged body": zero_body,
    "no file": lambda files: setattr(files.queue, "recent", None),
    "not mapped": lambda files: setattr(files.units, "mapped", None),
    "a short file": lambda files: setattr(files.units, "mapped", bytes(UNIT)),
    "another file": lambda files: setattr(files.queue, "recent", (files.units, 50, 150)),
    "no segment": lambda files: files.windows.discard(1024),
    "no segments": lambda files: files.windows.clear(),
    "expired": lambda files: setattr(files.queue, "min_index", COUNT),
    "a unit of -1": lambda files: files.units.mapped.__setitem__(slice(None), b"\xff" * 100 * UNIT),
    "zeros": lambda files: files.units.mapped.__setitem__(slice(None), bytes(100 * UNIT)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_not_plain_is_left_to_the_caller(change: Callable[[Files], Any]) -> None:
    start = of_both(lambda files: files.offsets.index(1024))
    assert of_both(lambda files: files.pull(start)) is not None
    assert of_both(lambda files: files.pull(start), change) is None


def test_the_end_of_a_queue_that_is_dispatched_to() -> None:
    def follow(files: Files) -> None:
        files.queue.next_index = lambda: COUNT - 1

    assert of_both(lambda files: files.pull(COUNT - 2)[1:4], follow) == (COUNT - 1, 0, COUNT - 1)
    assert of_both(lambda files: files.queue.max_index, follow) == COUNT - 1


def test_records_by_offset() -> None:
    def found(files: Files) -> list[Any]:
        return [
            message and (at, message.physical_offset, message.body)
            for at in (-(2**70), -1, *range(2100), 2**63 - 1, 2**70)
            for message in [files.windows.record(at)]
        ]

    rows = [row for row in of_both(found) if row is not None]
    assert [row[0] for row in rows] == of_both(lambda files: files.offsets)
    assert len([row for row in of_both(found, zero_body) if row is not None]) == COUNT - 1


@pytest.mark.parametrize("key", ["k0", "k4", "none", ""])
def test_queries(key: str) -> None:
    found, time, offset = of_both(lambda files: files.query(key))
    wanted = [n for n in range(COUNT) if f"k{n % 5}" == key]
    assert found == of_both(lambda files: [files.offsets[n] for n in wanted])
    end = of_both(lambda files: (files.puts[-1].store_timestamp, files.offsets[-1]))
    assert (time, offset) == (end if wanted else (0, 0))


def test_a_query_takes_the_newest_hits() -> None:
    assert of_both(lambda files: files.query("k1", 1)[0] == [files.offsets[11]])
    assert of_both(lambda files: files.query("k1", 2)[0] == [files.offsets[6], files.offsets[11]])
    assert of_both(lambda files: files.query("k1", 32, FOREVER)) == ([], 0, 0)


@pytest.mark.parametrize(
    ("key", "count"), [("é", 32), ("k1", 0), ("k1", -1), ("k1", 65), ("\ud800", 1)]
)
def test_queries_that_are_not_plain(key: str, count: int) -> None:
    assert of_both(lambda files: files.query(key, count)) is None


QUERY_CHANGES: dict[str, Callable[[Files], Any]] = {
    "not mapped": lambda files: setattr(files.place.file, "mapped", None),
    "a short file": lambda files: setattr(files.place.file, "mapped", bytes(100)),
    "no segments": lambda files: files.windows.clear(),
    "a broken chain": lambda files: files.index.__setitem__(
        slice(40 + 4 * SLOTS, None), b"\xff" * (len(files.index) - 40 - 4 * SLOTS)
    ),
}


@pytest.mark.parametrize("change", QUERY_CHANGES.values(), ids=QUERY_CHANGES)
def test_what_a_query_cannot_read_is_left_to_the_caller(change: Callable[[Files], Any]) -> None:
    assert of_both(lambda files: files.query("k1"), change) is None


def test_a_list_of_messages(kernels: Bodies) -> None:
    files = Files(kernels)
    messages = kernels.reading.MessageList()
    for start in (0, files.offsets.index(1024)):
        messages.extend(files.windows.get_message(tuple, FOUND, files.queue, start, 2, *FREE)[4])
    offsets = [message.physical_offset for message in messages]
    assert len(messages) == 4
    assert offsets == [messages[n].physical_offset for n in range(4)]
    assert [m.physical_offset for m in messages[1:3]] == offsets[1:3]
    assert [m.physical_offset for m in reversed(messages)] == offsets[::-1]
    assert messages[-1] == messages[3]
    assert messages.index(messages[2]) == 2
    assert messages.count(messages[0]) == 1
    assert messages[1] in messages
    assert repr(messages) == "<4 messages>"
    for wrong in (4, -5):
        with pytest.raises(IndexError, match="message index out of range"):
            messages[wrong]
    with pytest.raises(ValueError, match="2 rows are not within 24 bytes"):
        messages.add(files.window(0), bytearray(24), 2)


def test_a_message_that_has_gone_raises_what_the_window_says(kernels: Bodies) -> None:
    class Named(kernels.reading.Window):  # type: ignore[name-defined,misc]
        def gone(self, position: int) -> Exception:
            return KeyError(position)

    files = Files(kernels)
    window = Named(files.segments[0], 0, 1024, 1024, 0, 0)
    files.windows.add(window)
    messages = files.windows.get_message(tuple, FOUND, files.queue, 0, 2, *FREE)[4]
    files.segments[0][:] = bytes(1024)
    with pytest.raises(KeyError):
        messages[0]
    assert files.windows.record(0) is None


def test_wrong_arguments(kernels: Bodies) -> None:
    files = Files(kernels)
    with pytest.raises(ValueError, match="a segment cannot have 0 bytes"):
        kernels.reading.Windows(0)
    with pytest.raises(ValueError, match="do not lie in order within 1024 bytes"):
        kernels.reading.Window(files.segments[0], 0, 1024, 1025, 0, 0)
    with pytest.raises(TypeError):
        files.windows.get_message(list, FOUND, files.queue, 0, 1, *FREE)


def held(kernels: Bodies, kind: str, view: memoryview) -> Any:
    if kind == "a window":
        return kernels.reading.Window(view, 0, 1024, 1024, 0, 0)
    if kind == "a window of a subclass":
        kind_of_window = type("Named", (kernels.reading.Window,), {})
        return kind_of_window(view, 0, 1024, 1024, 0, 0)
    if kind == "a message":
        return kernels.message.StoredMessage(view, 0, 0, 1024)
    window = kernels.reading.Window(view, 0, 1024, 1024, 0, 0)
    if kind == "windows":
        windows = kernels.reading.Windows(1024)
        windows.add(window)
        return windows
    messages = kernels.reading.MessageList()
    messages.add(window, bytearray(formats.SELECTED_MESSAGE.nbytes), 1)
    return iter(messages) if kind == "an iterator" else messages


@pytest.mark.parametrize("inside", [True, False], ids=["view in the ring", "view outside"])
@pytest.mark.parametrize(
    "kind",
    ["a window", "a window of a subclass", "a message", "windows", "messages", "an iterator"],
)
def test_the_garbage_collector_releases_the_buffer(
    kernels: Bodies, kind: str, inside: bool
) -> None:
    """It cleared the view or its owner first: the process crashed, or an export was left and a
    later call, such as close, failed with SystemError."""
    buffer = bytearray(Files(kernels).segments[0])
    gc.collect()
    gc.disable()  # so that one collection sees the whole ring, the oldest object first
    try:
        view = memoryview(buffer)
        ring: list[Any] = [held(kernels, kind, view)]
        ring.append(ring)
        if inside:
            ring.append(view)
            del view
        del ring
        gc.collect()
        if not inside:
            view.release()
    finally:
        gc.enable()
    buffer.append(0)  # raises while anything exports it
