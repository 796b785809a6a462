"""The dispatcher by example: units, keys, stalls and what is never done twice."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import KernelStatus, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies
from support.reput_store import UNIT_NBYTES, MemoryStore, encode_log, record

TOPIC = b"TopicA"
FILLER = (0, formats.FILLER_UNIT_SIZE, 0)


def sizes_of(log: bytes) -> list[tuple[int, int]]:
    """Start and size of each record."""
    found, at = [], 0
    while at < len(log):
        (size,) = struct.unpack_from(">i", log, at)
        found.append((at, size))
        at += size
    return found


def offsets_of(units: list[tuple[int, int, int]]) -> list[int]:
    return [unit[0] for unit in units]


def entry_hashes(kernels: Bodies, *keys: str) -> list[int]:
    return [kernels.index_file.key_hash(key.encode()) for key in keys]


def put_hashes(store: MemoryStore) -> list[int]:
    return [entry[0] for entry in store.entries_put()]


def test_a_record_becomes_a_unit_and_its_keys(kernels: Bodies) -> None:
    log = encode_log(
        REFERENCE, [{"tags": "TagA", "unique_key": "U1", "keys": "k1 k2", "queue_id": 3}]
    )
    store = MemoryStore(kernels)
    assert store.dispatch(log) == (len(log), RecordStatus.END)
    tags_code = kernels.message.string_hash_code(b"TagA")
    assert store.units(TOPIC, 3) == [(0, len(log), tags_code)]
    assert put_hashes(store) == entry_hashes(
        kernels, "TopicA#U1", "TopicA#k1", "TopicA#k2", "TopicA#T#TagA"
    )
    dispatcher = store.dispatcher
    assert dispatcher.position_offset == dispatcher.indexed_offset == len(log)
    assert dispatcher.last_record_offset == 0
    assert dispatcher.last_store_timestamp == 1_700_000_000_000
    assert dispatcher.dispatched_count == 1
    assert dispatcher.stalled is None
    handle = dispatcher.handle(TOPIC, 3)
    assert (dispatcher.next_index(handle), dispatcher.max_physical_offset(handle)) == (1, len(log))


def test_without_tag_entries(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"tags": "TagA", "keys": "k"}, {"tags": "TagA"}])
    store = MemoryStore(kernels, index_tags=False)
    store.dispatch(log)
    assert put_hashes(store) == entry_hashes(kernels, "TopicA#k")


def test_keys_keep_duplicates_and_drop_empty_items(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"keys": "  a a  b ", "unique_key": "a"}])
    store = MemoryStore(kernels)
    store.dispatch(log)
    assert put_hashes(store) == entry_hashes(kernels, *["TopicA#a"] * 3, "TopicA#b")


@pytest.mark.parametrize(
    "key", ["é", "\U0001f600", "標籤", "x" * 300, "é" * 200, "a\u3000b", "polygenelubricants"]
)
def test_the_hash_of_topic_and_key_is_that_of_the_whole_text(kernels: Bodies, key: str) -> None:
    log = encode_log(REFERENCE, [{"topic": "Tœ", "keys": key, "tags": key}])
    store = MemoryStore(kernels)
    store.dispatch(log)
    assert put_hashes(store) == entry_hashes(kernels, f"Tœ#{key}", f"Tœ#T#{key}")


@pytest.mark.parametrize(
    ("sys_flag", "queued", "indexed"),
    [
        (formats.SYS_FLAG_TRANSACTION_NOT, 1, 1),
        (formats.SYS_FLAG_TRANSACTION_PREPARED, 0, 1),
        (formats.SYS_FLAG_TRANSACTION_COMMIT, 1, 1),
        (formats.SYS_FLAG_TRANSACTION_ROLLBACK, 0, 0),
    ],
)
def test_transaction_types(kernels: Bodies, sys_flag: int, queued: int, indexed: int) -> None:
    log = encode_log(REFERENCE, [{"sys_flag": sys_flag, "keys": "k"}])
    store = MemoryStore(kernels)
    assert store.dispatch(log) == (len(log), RecordStatus.END)
    assert len(store.units(TOPIC, 0)) == queued
    assert len(store.entries_put()) == indexed
    assert store.dispatcher.dispatched_count == 1
    assert store.dispatcher.indexed_offset == len(log)


@pytest.mark.parametrize(("delay", "code"), [("2", 5000), ("99", 5000), ("abc", None)])
def test_delayed_records_carry_their_deliver_time(
    kernels: Bodies, delay: str, code: int | None
) -> None:
    log = encode_log(REFERENCE, [{"topic": formats.TOPIC_SCHEDULE, "delay": delay, "tags": "TagA"}])
    store = MemoryStore(kernels, delay_ms=[1000, 5000])
    store.dispatch(log)
    tag_hash = kernels.message.string_hash_code(b"TagA")
    expected = tag_hash if code is None else 1_700_000_000_000 + code
    assert [unit[2] for unit in store.units(formats.TOPIC_SCHEDULE.encode(), 0)] == [expected]


# --- stalls -------------------------------------------------------------------------------------


def test_an_unknown_queue_stalls_after_what_came_before(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"keys": "a"}, {"topic": "Other", "queue_id": 7, "keys": "b"}])
    (_, first), (second, _) = sizes_of(log)
    store = MemoryStore(kernels)
    store.add_index_file()
    queue = bytearray(40)
    dispatcher = store.dispatcher
    dispatcher.set_queue(TOPIC, 0, queue, 0, 0, -1)
    for _ in range(2):
        answer = dispatcher.dispatch(log, dispatcher.position_offset, len(log), 0, len(log))
        assert answer == (second, KernelStatus.NEED_QUEUE)
        assert dispatcher.stalled == (b"Other", 7, 0)
        assert queue == struct.pack(">qiq", 0, first, 0) + bytes(20)
        assert put_hashes(store) == entry_hashes(kernels, "TopicA#a")
        assert dispatcher.indexed_offset == dispatcher.position_offset == second
        assert dispatcher.dispatched_count == 1
    dispatcher.set_queue(b"Other", 7, bytearray(20), 0, 0, -1)
    assert dispatcher.dispatch(log, second, len(log), 0, len(log)) == (len(log), RecordStatus.END)
    assert dispatcher.stalled is None
    assert dispatcher.repeated_units == 0


def test_a_full_queue_file_asks_for_the_next(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"queue_offset": n} for n in range(7)])
    store = MemoryStore(kernels, units_per_file=3, index_enable=False)
    store.dispatch(log)
    assert offsets_of(store.units(TOPIC, 0)) == [start for start, _ in sizes_of(log)]
    assert store.statuses == [KernelStatus.NEED_QUEUE] * 3 + [RecordStatus.END]
    assert len(store.queue_files) == 3


def test_a_queue_whose_file_is_not_mapped_asks_for_it(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"queue_offset": 5}])
    dispatcher = kernels.reput.Dispatcher(index_enable=False)
    handle = dispatcher.set_queue(TOPIC, 0, None, 5, 5, -1)
    assert dispatcher.dispatch(log, 0, len(log), 0, len(log)) == (0, KernelStatus.NEED_QUEUE)
    file = bytearray(60)
    assert dispatcher.set_queue(TOPIC, 0, file, 4, 5, -1) == handle
    assert dispatcher.dispatch(log, 0, len(log), 0, len(log)) == (len(log), RecordStatus.END)
    assert struct.unpack_from(">qiq", file, 20) == (0, len(log), 0)


def test_a_gap_is_filled_so_that_later_units_keep_their_numbers(kernels: Bodies) -> None:
    """RocketMQ appends after a gap at the queue's end, which shifts every later offset (D-14)."""
    log = encode_log(REFERENCE, [{"queue_offset": n} for n in (0, 4, 5)])
    starts = [start for start, _ in sizes_of(log)]
    store = MemoryStore(kernels, units_per_file=2, index_enable=False)
    assert store.dispatch(log) == (len(log), RecordStatus.END)
    assert store.gaps == [(TOPIC, 0, 4)]
    units = store.units(TOPIC, 0)
    assert units[1:4] == [FILLER] * 3
    assert offsets_of([units[0], *units[4:]]) == starts


@pytest.mark.parametrize("offsets", [(0, 1, 1, 2), (0, 1, 0, 2), (0, 1, 0, 2, 1)])
def test_a_repeated_queue_offset_never_overwrites(
    kernels: Bodies, offsets: tuple[int, ...]
) -> None:
    log = encode_log(REFERENCE, [{"queue_offset": n, "keys": f"k{n}"} for n in offsets])
    starts = [start for start, _ in sizes_of(log)]
    store = MemoryStore(kernels)
    store.dispatch(log)
    assert offsets_of(store.units(TOPIC, 0)) == [starts[offsets.index(n)] for n in range(3)]
    assert store.dispatcher.repeated_units == len(offsets) - 3
    assert len(store.entries_put()) == len(offsets)
    assert store.dispatcher.dispatched_count == len(offsets)


def test_keys_split_over_two_index_files(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"keys": "a b c", "tags": "t"}, {"queue_offset": 1, "keys": "d"}])
    store = MemoryStore(kernels, entries=3, slots=2)
    seen, position = [], 0
    store.dispatcher.set_queue(TOPIC, 0, bytearray(40), 0, 0, -1)
    for _ in range(5):
        position, status = store.dispatcher.dispatch(log, position, len(log), 0, len(log))
        if status == KernelStatus.NEED_INDEX:
            seen.append((position, store.dispatcher.indexed_keys))
            store.add_index_file()
    assert status == RecordStatus.END
    assert seen == [(0, 0), (0, 2), (sizes_of(log)[1][0], 0)]
    assert put_hashes(store) == entry_hashes(
        kernels, "TopicA#a", "TopicA#b", "TopicA#c", "TopicA#T#t", "TopicA#d"
    )
    assert store.dispatcher.repeated_units == 0
    assert store.dispatcher.dispatched_count == 2


def test_a_record_begun_by_an_earlier_dispatcher_is_completed(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"keys": "a b c"}])
    store = MemoryStore(kernels)
    store.add_index_file()
    store.dispatcher.set_index(store.index_files[0], store.slots, store.entries, 0, 2)
    store.dispatch(log)
    assert put_hashes(store) == entry_hashes(kernels, "TopicA#c")


def test_detaching_the_index_keeps_the_place_in_a_record(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"keys": "a b c"}])
    store = MemoryStore(kernels, entries=3, slots=2)
    store.add_index_file()
    store.dispatcher.set_queue(TOPIC, 0, bytearray(20), 0, 0, -1)
    for _ in range(2):
        answer = store.dispatcher.dispatch(log, 0, len(log), 0, len(log))
        assert answer == (0, KernelStatus.NEED_INDEX)
        assert store.dispatcher.indexed_keys == 2
        store.dispatcher.set_index(None, 0, 0, 0)
    store.dispatch(log)
    assert put_hashes(store) == entry_hashes(kernels, "TopicA#a", "TopicA#b", "TopicA#c")


def test_without_an_index_none_is_asked_for(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"keys": "a"}])
    store = MemoryStore(kernels, index_enable=False)
    assert store.dispatch(log) == (len(log), RecordStatus.END)
    assert store.index_files == []
    assert store.dispatcher.indexed_offset == 0
    assert store.dispatcher.position_offset == len(log)


def test_more_keys_than_a_batch_holds(kernels: Bodies) -> None:
    keys = [chr(ord("a") + n % 26) for n in range(3000)]
    log = encode_log(REFERENCE, [{"keys": " ".join(keys)}] * 2)
    store = MemoryStore(kernels, entries=10_000, slots=7)
    store.dispatch(log)
    assert put_hashes(store) == 2 * entry_hashes(kernels, *(f"TopicA#{key}" for key in keys))


# --- recovery: dispatched again ---------------------------------------------------------------


def make_mixed_log() -> bytes:
    return encode_log(
        REFERENCE,
        [
            {
                "queue_id": n % 3,
                "queue_offset": n // 3,
                "keys": f"k{n} x",
                "host": "[2001:db8::1]:1" if n % 2 else "10.0.0.1:1",
                "sys_flag": 0x30 if n % 2 else 0,
                "version": 1 + n % 2,
            }
            for n in range(30)
        ],
    )


def test_the_index_is_rebuilt_while_the_queues_are_complete(kernels: Bodies) -> None:
    log = make_mixed_log()
    whole = MemoryStore(kernels)
    whole.dispatch(log)
    again = MemoryStore(kernels)
    for queue_id in range(3):
        again.dispatcher.set_queue(TOPIC, queue_id, None, 10, 10, len(log))
    assert again.dispatch(log) == (len(log), RecordStatus.END)
    assert again.index_files == whole.index_files
    assert again.queue_files == {}
    assert again.dispatcher.repeated_units == 30
    assert again.dispatcher.last_record_offset == -1


def test_queues_are_rebuilt_while_the_index_is_complete(kernels: Bodies) -> None:
    log = make_mixed_log()
    whole = MemoryStore(kernels)
    whole.dispatch(log)
    again = MemoryStore(kernels)
    again.dispatcher.set_index(None, 0, 0, len(log))
    assert again.dispatch(log) == (len(log), RecordStatus.END)
    assert again.queue_files == whole.queue_files
    assert again.index_files == []


def test_one_queue_lags_the_others(kernels: Bodies) -> None:
    log = make_mixed_log()
    whole = MemoryStore(kernels)
    whole.dispatch(log)
    before = whole.state()
    units = whole.units(TOPIC, 1)
    file = bytearray(whole.queue_files[TOPIC, 1, 0])
    file[4 * 20 :] = bytes(len(file) - 4 * 20)
    whole.queue_files[TOPIC, 1, 0] = file
    whole.dispatcher.set_queue(TOPIC, 1, file, 0, 4, units[3][0] + units[3][1])
    whole.dispatch(log)
    assert whole.state()["queue_files"] == before["queue_files"]
    assert whole.state()["index_files"] == before["index_files"]
    assert whole.dispatcher.repeated_units == 30 - 6


# --- what is no good record -------------------------------------------------------------------


def test_ghosts_and_unsafe_topics_are_skipped(kernels: Bodies) -> None:
    good = record(REFERENCE, 0, keys="a")
    ghost = record(REFERENCE, 0, keys="b")
    unsafe = record(REFERENCE, len(good + ghost), topic="a/b", keys="c")
    last = record(REFERENCE, len(good + ghost + unsafe), queue_offset=1, keys="d")
    log = good + ghost + unsafe + last
    store = MemoryStore(kernels)
    assert store.dispatch(log) == (len(log), RecordStatus.END)
    assert offsets_of(store.units(TOPIC, 0)) == [0, len(log) - len(last)]
    assert put_hashes(store) == entry_hashes(kernels, "TopicA#a", "TopicA#d")
    dispatcher = store.dispatcher
    assert (dispatcher.skipped_ghosts, dispatcher.skipped_topics) == (1, 1)
    assert dispatcher.dispatched_count == 2
    assert len(store.queue_files) == 1


def test_a_record_with_nuls_in_its_properties_is_dispatched(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"properties": b"KEYS\x01a\x02z\x01\x00\x00\x02"}])
    store = MemoryStore(kernels)
    assert store.dispatch(log) == (len(log), RecordStatus.END)
    assert put_hashes(store) == entry_hashes(kernels, "TopicA#a")


@pytest.mark.parametrize(
    ("tail", "status"),
    [
        (bytes(8), RecordStatus.EMPTY),
        (formats.BLANK.struct.pack(12, formats.BLANK_MAGIC) + b"rest", RecordStatus.BLANK),
        (formats.BLANK.struct.pack(11, formats.BLANK_MAGIC) + b"rest", RecordStatus.BAD_BLANK),
        (b"\xff" * 100, RecordStatus.BAD_MAGIC),
    ],
)
def test_dispatch_ends_where_the_records_end(
    kernels: Bodies, tail: bytes, status: RecordStatus
) -> None:
    log = encode_log(REFERENCE, [{}, {"queue_offset": 1}])
    store = MemoryStore(kernels, index_enable=False)
    assert store.dispatch(log + tail) == (len(log), status)
    assert len(store.units(TOPIC, 0)) == 2
    assert store.dispatcher.position_offset == len(log)


def test_a_record_beyond_stop_is_incomplete(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{}, {"queue_offset": 1}])
    second = sizes_of(log)[1][0]
    store = MemoryStore(kernels, index_enable=False)
    answer = store.dispatch(log, stop=len(log) - 1)
    assert answer == (second, RecordStatus.INCOMPLETE)
    assert store.dispatch(log, position=second) == (len(log), RecordStatus.END)
    assert len(store.units(TOPIC, 0)) == 2


@pytest.mark.parametrize("max_count", [1, 2, 3, 255, 256, 257, 600])
def test_max_count(kernels: Bodies, max_count: int) -> None:
    log = encode_log(REFERENCE, [{"queue_offset": n, "body": b""} for n in range(600)])
    store = MemoryStore(kernels, units_per_file=600, index_enable=False)
    store.dispatcher.set_queue(TOPIC, 0, bytearray(600 * 20), 0, 0, -1)
    position, status = store.dispatcher.dispatch(log, 0, len(log), 0, len(log), max_count)
    assert (position, status) == (sizes_of(log)[0][1] * max_count, RecordStatus.OK)
    assert store.dispatcher.dispatched_count == max_count


def test_a_log_that_begins_in_the_middle(kernels: Bodies) -> None:
    base = 3 * 2**30
    log = encode_log(REFERENCE, [{"queue_offset": 9, "keys": "k"}], base)
    store = MemoryStore(kernels, units_per_file=4)
    assert store.dispatch(log, base) == (len(log), RecordStatus.END)
    assert store.units(TOPIC, 0) == [FILLER, (base, len(log), 0)]
    assert list(store.queue_files) == [(TOPIC, 0, 8)]
    assert store.entries_put()[0][1] == base


# --- the table of queues ----------------------------------------------------------------------


def test_many_queues_come_and_go(kernels: Bodies) -> None:
    dispatcher = kernels.reput.Dispatcher(index_enable=False)
    names = [(f"{'t' * (n % 40)}{n}".encode(), n % 5) for n in range(2000)]
    for handle, (topic, queue_id) in enumerate(names):
        assert dispatcher.set_queue(topic, queue_id, None, handle, handle, handle) == handle
    for topic, queue_id in names[::3]:
        dispatcher.remove_queue(topic, queue_id)
        dispatcher.remove_queue(topic, queue_id)
    for handle, (topic, queue_id) in enumerate(names):
        if handle % 3 == 0:
            assert dispatcher.handle(topic, queue_id) == -1
            with pytest.raises(ValueError, match=f"^no queue has the handle {handle}$"):
                dispatcher.next_index(handle)
        else:
            assert dispatcher.handle(topic, queue_id) == handle
            assert dispatcher.next_index(handle) == handle
            assert dispatcher.max_physical_offset(handle) == handle
    for extra, (topic, queue_id) in enumerate(names[::3]):
        assert dispatcher.set_queue(topic, queue_id, None, 0, 0, -1) == len(names) + extra
    assert dispatcher.handle(b"", 0) == -1
    assert dispatcher.set_queue(b"", 0, None, 0, 0, -1) == len(names) + len(names[::3])


def test_dispatch_finds_each_of_many_queues(kernels: Bodies) -> None:
    log = encode_log(REFERENCE, [{"topic": f"T{n // 3}", "queue_id": n % 3} for n in range(500)])
    store = MemoryStore(kernels, units_per_file=1, index_enable=False)
    assert store.dispatch(log) == (len(log), RecordStatus.END)
    for n, (start, size) in enumerate(sizes_of(log)):
        assert store.units(f"T{n // 3}".encode(), n % 3) == [(start, size, 0)]


# --- buffers and arguments --------------------------------------------------------------------


def test_buffers_are_pinned_until_replaced_removed_or_closed(kernels: Bodies) -> None:
    dispatcher = kernels.reput.Dispatcher()
    files = [bytearray(20) for _ in range(3)]
    index = bytearray(formats.index_file_nbytes(2, 2))
    dispatcher.set_queue(TOPIC, 0, files[0], 0, 0, -1)
    dispatcher.set_queue(TOPIC, 1, files[1], 0, 0, -1)
    dispatcher.set_queue(TOPIC, 2, files[2], 0, 1, -1)
    dispatcher.set_index(index, 2, 2, 0)
    for pinned in (*files, index):
        with pytest.raises(BufferError):
            pinned.append(0)
    dispatcher.set_queue(TOPIC, 0, None, 0, 0, -1)
    files[0].append(0)
    dispatcher.remove_queue(TOPIC, 1)
    files[1].append(0)
    dispatcher.close()
    dispatcher.close()
    files[2].append(0)
    index.append(0)
    assert dispatcher.next_index(2) == 1
    for method, arguments in (
        ("set_queue", (TOPIC, 0, None, 0, 0, -1)),
        ("set_index", (None, 0, 0, 0)),
        ("remove_queue", (TOPIC, 0)),
        ("dispatch", (b"", 0, 0, 0, 0)),
    ):
        with pytest.raises(ValueError, match=r"^the dispatcher is closed$"):
            getattr(dispatcher, method)(*arguments)


def test_dispatch_releases_the_log(kernels: Bodies) -> None:
    log = bytearray(encode_log(REFERENCE, [{}]))
    MemoryStore(kernels).dispatch(log)
    log.append(0)


class EntersAgain:
    """A number that uses the dispatcher while it is being read."""

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = dispatcher

    def __index__(self) -> int:
        self.dispatcher.set_index(None, 0, 0, 0)
        raise AssertionError("the dispatcher let a second one in")


def test_a_second_one_inside_is_an_error(kernels: Bodies) -> None:
    dispatcher = kernels.reput.Dispatcher()
    with pytest.raises(RuntimeError, match=r"^another thread is inside this dispatcher$"):
        dispatcher.dispatch(b"", 0, 0, 0, 0, EntersAgain(dispatcher))
    assert dispatcher.dispatch(b"", 0, 0, 0, 0) == (0, RecordStatus.END)


INT64_MAX = 2**63 - 1
BAD_CALLS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("set_queue", ("text", 0, None, 0, 0, -1), TypeError, "topic must be bytes, not str"),
    ("set_queue", (b"t" * 32768, 0, None, 0, 0, -1), ValueError, "topic of 32768 bytes"),
    ("set_queue", (TOPIC, -1, None, 0, 0, -1), ValueError, "queue_id -1 is outside 0"),
    ("set_queue", (TOPIC, 2**31, None, 0, 0, -1), ValueError, "queue_id 2147483648 is outside"),
    ("set_queue", (TOPIC, 1.5, None, 0, 0, -1), TypeError, "'float' object cannot be interp"),
    ("set_queue", (TOPIC, 0, None, -1, 0, -1), ValueError, "first_index -1 is outside 0"),
    ("set_queue", (TOPIC, 0, None, 2, 1, -1), ValueError, "next_index 1 is outside 2"),
    ("set_queue", (TOPIC, 0, None, 0, 2**70, -1), ValueError, f"next_index {2**70} is outside"),
    ("set_queue", (TOPIC, 0, None, 0, 0, -2), ValueError, "max_physical_offset -2 is outside"),
    ("set_queue", (TOPIC, 0, bytearray(39), 5, 7, -1), ValueError, "next_index 7 is past the"),
    ("set_queue", (TOPIC, 0, bytes(40), 0, 0, -1), BufferError, "Object is not writable."),
    ("set_queue", (TOPIC, 0, 5, 0, 0, -1), TypeError, "a bytes-like object is required, not"),
    (
        "set_queue",
        (TOPIC, 0, memoryview(bytearray(40))[::2], 0, 0, -1),
        BufferError,
        "memoryview: underlying buffer is not C-contiguous",
    ),
    ("set_index", (bytearray(87), 2, 2, 0), ValueError, "an index of 2 slots and 2 entries does"),
    ("set_index", (bytearray(88), 0, 2, 0), ValueError, "slots 0 is outside 1"),
    ("set_index", (bytearray(88), 2, 2**31, 0), ValueError, "entries 2147483648 is outside"),
    ("set_index", (None, 0, 0, -1), ValueError, "indexed_offset -1 is outside"),
    ("set_index", (None, 0, 0, 0, -1), ValueError, "indexed_keys -1 is outside"),
    ("dispatch", (b"abc", 0, 4, 0, 4), ValueError, "stop 4 is outside 0 .. 3"),
    ("dispatch", (b"abc", 3, 2, 0, 3), ValueError, "position 3 is outside 0 .. 2"),
    ("dispatch", (b"abc", 0, 3, -1, 3), ValueError, "base_offset -1 is outside"),
    ("dispatch", (b"abc", 0, 3, INT64_MAX, INT64_MAX), ValueError, "base_offset 9223372036854"),
    ("dispatch", (b"abc", 0, 3, 0, 2), ValueError, "segment_end 2 is outside 3"),
    ("dispatch", (b"abc", 0, 3, 0, 3, 0), ValueError, "max_count 0 is outside 1"),
    ("dispatch", ("abc", 0, 3, 0, 3), TypeError, "a bytes-like object is required, not"),
    ("handle", (TOPIC, -1), ValueError, "queue_id -1 is outside"),
    ("next_index", (0,), ValueError, "no queue has the handle 0"),
    ("max_physical_offset", (2**40,), ValueError, "no queue has the handle 1099511627776"),
]


@pytest.mark.parametrize(("method", "arguments", "error", "message"), BAD_CALLS)
def test_bad_arguments(
    kernels: Bodies, method: str, arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    dispatcher = kernels.reput.Dispatcher()
    with pytest.raises(error) as caught:
        getattr(dispatcher, method)(*arguments)
    assert str(caught.value).startswith(message)
    assert dispatcher.handle(TOPIC, 0) == -1
    dispatcher.close()


def test_both_bodies_say_the_same() -> None:
    for method, arguments, error, _ in BAD_CALLS:
        messages = set()
        for name in ("native", "reference"):
            dispatcher = Bodies(name).reput.Dispatcher()
            with pytest.raises(error) as caught:
                getattr(dispatcher, method)(*arguments)
            messages.add(str(caught.value))
        assert len(messages) == 1, messages


@pytest.mark.parametrize("delay", [-1, 2**63])
def test_bad_delays(kernels: Bodies, delay: int) -> None:
    with pytest.raises(ValueError, match=f"^delay {delay} is outside 0"):
        kernels.reput.Dispatcher(delay_ms=[1000, delay])


# --- files that vanish under the mapping (native: the reference cannot be guarded) ------------


def map_file(path: Path, data: bytes) -> mmap.mmap:
    path.write_bytes(data)
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), len(data))


#: So many that units, entries and records all need more than one page.
LONG_COUNT = mmap.PAGESIZE // UNIT_NBYTES + 100
LONG_ENTRIES = 2 * LONG_COUNT + 100


def make_long_log() -> bytes:
    return encode_log(
        REFERENCE,
        [{"queue_offset": n, "keys": f"k{n} l{n}", "body": b"b" * 50} for n in range(LONG_COUNT)],
    )


def test_a_shortened_log_is_a_fault_after_its_last_whole_record(tmp_path: Path) -> None:
    log = make_long_log()
    whole = MemoryStore(NATIVE, units_per_file=LONG_COUNT, entries=LONG_ENTRIES)
    whole.dispatch(log)
    mapped = map_file(tmp_path / "log", log)
    os.truncate(tmp_path / "log", mmap.PAGESIZE)
    store = MemoryStore(NATIVE, units_per_file=LONG_COUNT, entries=LONG_ENTRIES)
    position, status = store.dispatch(mapped)
    assert status == RecordStatus.FAULT
    ends = [start + size for start, size in sizes_of(log)]
    assert position == max(end for end in ends if end <= mmap.PAGESIZE)
    assert position == store.dispatcher.position_offset
    assert store.dispatch(log, position=position) == (len(log), RecordStatus.END)
    assert store.queue_files == whole.queue_files
    assert store.index_files == whole.index_files


@pytest.mark.parametrize("entries", [LONG_ENTRIES, 10 * LONG_ENTRIES])
def test_a_shortened_queue_file_is_a_fault(tmp_path: Path, entries: int) -> None:
    """With room for all keys a batch puts all its units first, else one record after the other."""
    log = make_long_log()
    whole = MemoryStore(NATIVE, units_per_file=LONG_COUNT, entries=entries)
    whole.dispatch(log)
    queue = map_file(tmp_path / "queue", bytes(LONG_COUNT * UNIT_NBYTES))
    os.truncate(tmp_path / "queue", mmap.PAGESIZE)
    store = MemoryStore(NATIVE, units_per_file=LONG_COUNT, entries=entries)
    handle = store.dispatcher.set_queue(TOPIC, 0, queue, 0, 0, -1)
    store.add_index_file()
    position, status = store.dispatch(log)
    assert status == RecordStatus.FAULT
    done = store.dispatcher.next_index(handle)
    assert done == mmap.PAGESIZE // UNIT_NBYTES
    assert position <= sizes_of(log)[done][0]
    assert store.dispatcher.indexed_offset == position
    file = bytearray(queue[: mmap.PAGESIZE]) + bytes(LONG_COUNT * UNIT_NBYTES - mmap.PAGESIZE)
    file[done * UNIT_NBYTES :] = bytes(len(file) - done * UNIT_NBYTES)
    end = store.dispatcher.max_physical_offset(handle)
    store.dispatcher.set_queue(TOPIC, 0, file, 0, done, end)
    assert store.dispatch(log, position=position) == (len(log), RecordStatus.END)
    assert file == whole.queue_files[TOPIC, 0, 0]
    assert store.index_files == whole.index_files


@pytest.mark.parametrize("entries", [LONG_ENTRIES, 10 * LONG_ENTRIES])
def test_a_shortened_index_file_is_a_fault_and_no_key_is_put_twice(
    tmp_path: Path, entries: int
) -> None:
    log = make_long_log()
    whole = MemoryStore(NATIVE, units_per_file=LONG_COUNT, entries=entries)
    whole.dispatch(log)
    nbytes = formats.index_file_nbytes(50, entries)
    index = map_file(tmp_path / "index", bytes(nbytes))
    os.truncate(tmp_path / "index", mmap.PAGESIZE)
    store = MemoryStore(NATIVE, units_per_file=LONG_COUNT, entries=entries)
    store.dispatcher.set_queue(TOPIC, 0, bytearray(LONG_COUNT * UNIT_NBYTES), 0, 0, -1)
    store.dispatcher.set_index(index, 50, entries, 0)
    position, status = store.dispatch(log)
    assert status == RecordStatus.FAULT
    count = NATIVE.index_file.read_header(index[:40])[5]
    assert position == store.dispatcher.indexed_offset == sizes_of(log)[(count - 1) // 2][0]
    assert store.dispatcher.indexed_keys == (count - 1) % 2
    file = bytearray(index[: mmap.PAGESIZE]) + bytes(nbytes - mmap.PAGESIZE)
    store.dispatcher.set_index(file, 50, entries, store.dispatcher.indexed_offset)
    assert store.dispatch(log, position=position) == (len(log), RecordStatus.END)
    assert put_hashes_of(file, entries) == put_hashes(whole)
    assert whole.dispatcher.dispatched_count == store.dispatcher.dispatched_count


def put_hashes_of(file: bytearray, entries: int) -> list[int]:
    store = MemoryStore(NATIVE, entries=entries)
    store.index_files = [file]
    return put_hashes(store)
