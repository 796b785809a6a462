"""Plain calls of a store, which the native kernels answer, and what they leave to Python."""

from __future__ import annotations

import inspect
import os
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rocketstore import Sql92Filter
from rocketstore.filter import TagFilter
from rocketstore.status import GetMessageStatus
from support.appenders import Log
from support.kernel_bodies import NATIVE, Bodies
from support.reading_files import COUNT, ENTRIES, FOUND, FREE, SLOTS, UNIT, Files

FOREVER = 2**63 - 1
#: What the decorated method returns: pulls are counted by their status.
NOT_PLAIN = (None,)


def plain(call: str, store: Any, *arguments: Any, **options: Any) -> Any:
    """The answer of a plain call, None of any other."""
    decorated = getattr(NATIVE.reading, call)(lambda *_, **__: NOT_PLAIN)
    answer = decorated(store, *arguments, **options)
    return None if answer is NOT_PLAIN else answer


def pull(files: Files, offset: int, count: int = 32, *limits: int, **options: Any) -> Any:
    """Statuses, offsets and the messages' offsets of a pull; None if it is not plain."""
    store = files.store(limits or FREE)
    answer = plain("get_message", store, "group", "T", 0, offset, count, **options)
    if answer is None:
        return None
    return *answer[:4], [message.physical_offset for message in answer.messages]


def query(files: Files, key: str, count: int = 32, begin: int = 0, end: int = FOREVER) -> Any:
    """Offsets of the messages found, and the index's end; None if that is not plain."""
    answer = plain("query_message", files.store(), "T", key, count, begin, end)
    if answer is None:
        return None
    return [message.physical_offset for message in answer.messages], *answer[1:]


def find(files: Files, **wanted: Any) -> Any:
    """Offsets of the messages found; None if that is not plain."""
    answer = plain("find", files.store(), **wanted)
    return None if answer is None else [message.physical_offset for message in answer]


@pytest.fixture
def files() -> Files:
    return Files(NATIVE)


# --- Pulls ----------------------------------------------------------------------------------------


def test_a_pull_goes_on_in_the_next_segment(files: Files) -> None:
    for offset in range(COUNT):
        assert pull(files, offset) == (FOUND, COUNT, 0, COUNT, files.offsets[offset:])


def test_a_pull_ends_at_its_limits(files: Files) -> None:
    nbytes = files.puts[0].nbytes
    first = files.offsets.index(1024)
    assert pull(files, 0, 2)[1] == 2
    for count in range(1, COUNT + 1):
        assert len(pull(files, 0, count)[4]) == count
        # By the bytes, also when the limit is reached in or at the end of the first segment.
        assert (
            len(pull(files, 0, 32, sum(put.nbytes for put in files.puts[:count]), *FREE[1:])[4])
            == count
        )
    assert 1 < first < COUNT - 1
    # All records lie before 10**6: the limits of the disk apply.
    files.log.queue.files_end, files.log.max_offset = 10**9, 10**6
    assert pull(files, 0, 32, 2**30, 32, 2**30, 1, 0, 0)[1] == 1
    assert pull(files, 0, 32, 2**30, 32, nbytes * 2, 32, 0, 0)[1] == 2
    assert pull(files, 0, 32, nbytes, 32, nbytes * 2, 32, 0, 10**6)[1] == 1


@pytest.mark.parametrize("offset", [-1, COUNT, 2**70, -(2**70), 2**63 - 1, True, 0.0, "0", None])
def test_an_offset_outside_the_queue_is_not_plain(files: Files, offset: Any) -> None:
    assert pull(files, offset) is None


@pytest.mark.parametrize("count", [0, -1, 1025, 2**70, True])
def test_a_pull_of_nothing_or_too_much_is_not_plain(files: Files, count: int) -> None:
    assert pull(files, 1, count) is None


@pytest.mark.parametrize("queue", [("U", 0), ("T", 1), ("T", True), (b"T", 0), (["T"], 0)])
def test_a_pull_from_an_unknown_queue_is_not_plain(files: Files, queue: Any) -> None:
    assert plain("get_message", files.store(), "group", *queue, 0) is None


def test_pulls_that_change_between_queues(files: Files) -> None:
    """The queue that was pulled from last is remembered, and it alone."""
    other = type(files.queue)(b"U", 1)  # without a file: not plain
    queues = {("T", 0): files.queue, ("U", 1): other}
    store = files.store(queues=queues)
    asked = [("T", 0), ("T", 1), ("U", 1), ("U", 0), ("T", 0), ("U", 1), ("T", 0), ("V", 0)]
    answers = [plain("get_message", store, "group", *queue, 0) for queue in 2 * asked]
    assert [answer is not None for answer in answers] == [queue == ("T", 0) for queue in 2 * asked]
    queues["V", 0] = files.queue  # queues are added while the store is open
    assert len(plain("get_message", store, "group", "V", 0, 0).messages) == COUNT


def test_a_pull_with_tags(files: Files) -> None:
    """Tags are those of the units, as always."""
    for n in range(COUNT):
        code = NATIVE.message.string_hash_code(b"odd" if n % 2 else b"even")
        NATIVE.consume_queue.put_units(
            files.units.mapped, n * UNIT, array("q", files.offsets[n : n + 1]),
            array("i", [files.puts[n].nbytes]), array("q", [code]),
        )  # fmt: skip
    odd = files.offsets[1::2]
    assert pull(files, 0, filter=TagFilter("odd")) == (FOUND, COUNT, 0, COUNT, odd)
    assert pull(files, 0, 2, filter=TagFilter("odd || none"))[1:] == (4, 0, COUNT, odd[:2])
    assert pull(files, 0, filter=TagFilter("*", exact=True)) is None
    assert pull(files, 0, filter=TagFilter("*"))[4] == files.offsets
    # Only as many units are examined as the limit of a filter allows.
    free = *FREE[:4], 5 * UNIT - 1, FREE[5]
    assert pull(files, 0, 2, *free, filter=TagFilter("odd"))[1:] == (4, 0, COUNT, odd[:2])
    assert pull(files, 2, 3, *free, filter=TagFilter("odd"))[1:] == (7, 0, COUNT, odd[1:3])
    for other in (TagFilter("odd", exact=True), TagFilter("none"), object()):
        assert pull(files, 0, filter=other) is None
    files.queue.ext = object()
    assert pull(files, 0, filter=TagFilter("odd")) is None


UNMATCHED = GetMessageStatus.NO_MATCHED_MESSAGE
#: KEYS of the twelve messages are k0 to k4, again and again.
K1 = Sql92Filter("KEYS = 'k1'")


def pull_sql(files: Files, offset: int, made: Any, count: int = 32, *limits: int) -> Any:
    """As ``pull``, in a store that has met a filter with a program before."""
    store = files.store(limits or FREE)
    store._reader.sql_filter = Sql92Filter
    answer = plain("get_message", store, "group", "T", 0, offset, count, filter=made)
    if answer is None:
        return None
    return *answer[:4], [message.physical_offset for message in answer.messages]


def test_a_pull_with_a_program(files: Files) -> None:
    ones = files.offsets[1::5]
    assert pull_sql(files, 0, K1) == (FOUND, COUNT, 0, COUNT, ones)
    assert pull_sql(files, 0, K1, 2) == (FOUND, 7, 0, COUNT, ones[:2])
    assert pull_sql(files, 7, K1) == (FOUND, COUNT, 0, COUNT, ones[2:])
    errs = Sql92Filter("KEYS > 5")
    assert pull_sql(files, 0, errs) == (UNMATCHED, COUNT, 0, COUNT, [])
    assert errs.errors == COUNT
    assert pull_sql(files, 0, Sql92Filter("KEYS IS NOT NULL"))[4] == files.offsets
    # Only as many units are examined as the limit of a filter allows.
    free = *FREE[:4], 5 * UNIT - 1, FREE[5]
    assert pull_sql(files, 2, K1, 2, *free) == (FOUND, 7, 0, COUNT, ones[1:2])
    assert pull_sql(files, 2, errs, 2, *free) == (UNMATCHED, 7, 0, COUNT, [])
    # Until a store has met one, its method is asked.
    assert pull(files, 0, filter=K1) is None
    assert pull_sql(files, 0, K1.of_group([1, 2], 8, 0))[4] == ones
    files.queue.ext = object()  # its bit maps may apply
    assert pull_sql(files, 0, K1) is None
    assert pull_sql(files, 0, K1.of_group([1, 2], 8, 0)) is None
    files.queue.ext = None
    files.queue.pull_looks_no_further = True
    assert pull_sql(files, 0, K1) is None


def test_pulls_with_programs_in_turn_and_at_once(files: Files) -> None:
    """A filter is kept for the next pull, unless another pull uses it."""
    store = files.store(FREE)
    store._reader.sql_filter = Sql92Filter
    made = [Sql92Filter(f"KEYS = 'k{n}'") for n in range(5)] + [Sql92Filter("KEYS > 5")]
    wanted = [files.offsets[n::5] for n in range(5)] + [[]]
    rounds = 200

    def ask(first: int) -> None:
        for number in range(rounds):
            which = (first + number // 3) % 6
            answer = plain("get_message", store, "group", "T", 0, 0, filter=made[which])
            assert [m.physical_offset for m in answer.messages] == wanted[which]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(4)))
    asked = sum((first + number // 3) % 6 == 5 for first in range(4) for number in range(rounds))
    assert made[5].errors == asked * COUNT


def test_a_text_as_filter_is_compiled_by_the_store(files: Files) -> None:
    store = files.store(FREE)
    store.filter = Sql92Filter
    store._reader.sql_filter = Sql92Filter
    answer = plain("get_message", store, "group", "T", 0, 0, filter="KEYS = 'k1'")
    assert [message.physical_offset for message in answer.messages] == files.offsets[1::5]


def test_a_damaged_record_that_a_program_would_judge(files: Files) -> None:
    """Errors of an answer that is thrown away do not count: they are counted again."""
    errs = Sql92Filter("KEYS > 5")
    zero_body(files)
    assert pull_sql(files, 0, errs) is None
    assert errs.errors == 0


def zero_body(files: Files) -> None:
    at = files.segments[1].index(b"body")
    files.segments[1][at] ^= 1


CHANGES: dict[str, Callable[[Files], Any]] = {
    "a damaged body": zero_body,
    "known damage": lambda files: files.log.damage.update({5: 1}),
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
def test_what_is_not_plain_is_left_to_the_caller(
    files: Files, change: Callable[[Files], Any]
) -> None:
    start = files.offsets.index(1024)
    assert pull(files, start) is not None
    change(files)
    assert pull(files, start) is None


@pytest.mark.parametrize("change", ["no segment", "a damaged body"])
def test_a_pull_that_ends_before_what_is_not_plain(files: Files, change: str) -> None:
    CHANGES[change](files)
    first = files.offsets.index(1024)
    assert pull(files, 0, first)[4] == files.offsets[:first]
    assert pull(files, 0, first + 1) is None


def test_units_of_segments_in_any_order(files: Files) -> None:
    """As a queue of a store that someone mended by hand may name them: the kernel must end."""
    order = [0, COUNT - 1, 1, COUNT - 2]
    for at, n in enumerate(order):
        NATIVE.consume_queue.put_units(
            files.units.mapped, at * UNIT, array("q", files.offsets[n : n + 1]),
            array("i", [files.puts[n].nbytes]), array("q", [0]),
        )  # fmt: skip
    assert pull(files, 0, 1)[4] == [0]
    assert pull(files, 0, 4) is None  # these are not the messages of these queue offsets


def test_a_closed_store_and_a_forked_child_are_not_plain(files: Files) -> None:
    store = files.store()
    assert plain("look_message_by_offset", store, 1024) is not None
    child = os.fork()
    if child == 0:
        os._exit(0 if plain("look_message_by_offset", store, 1024) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    store._closed = True
    assert plain("look_message_by_offset", store, 1024) is None


@pytest.mark.parametrize("call", ["get_message", "query_message", "look_message_by_offset"])
def test_a_decorated_method_keeps_its_name_and_signature(kernels: Bodies, call: str) -> None:
    def method(self: Any, *arguments: int) -> int:
        """What it does."""
        return len(arguments)

    decorated = getattr(kernels.reading, call)(method)
    assert decorated.__doc__ == "What it does."
    assert decorated.__name__ == "method"
    assert inspect.signature(decorated) == inspect.signature(method)


def test_the_end_of_a_queue_that_is_dispatched_to(files: Files) -> None:
    files.queue.next_index = lambda: COUNT - 1
    assert pull(files, COUNT - 2)[1:4] == (COUNT - 1, 0, COUNT - 1)
    assert files.queue.max_index == COUNT - 1


# --- Look-ups -------------------------------------------------------------------------------------


def test_records_by_offset(files: Files) -> None:
    def found() -> list[Any]:
        return [
            (at, message.physical_offset, message.body)
            for at in (-(2**70), -1, *range(2100), 2**63 - 1, 2**70, True, 5.0, "5", None)
            for message in [plain("look_message_by_offset", files.store(), at)]
            if message is not None
        ]

    # Where the log begins is judged elsewhere: 0 may stand for a later offset.
    assert [row[:2] for row in found()] == [(at, at) for at in files.offsets[1:]]
    zero_body(files)
    assert len(found()) == COUNT - 2


def test_records_by_id(files: Files) -> None:
    store = files.store()
    for put in files.puts[1:]:
        assert plain("look_message_by_id", store, put.msg_id).msg_id == put.msg_id
        other_host = f"{int(put.msg_id[:8], 16) ^ 1:08X}{put.msg_id[8:]}"
        assert plain("look_message_by_id", store, other_host) is None
    good = files.puts[1].msg_id
    for wrong in (
        good[:-1], good + "0", "", good[:-1] + "g", good[:-2] + "é0", 5, None, b"1" * 32,
        good[:-16] + "F" * 16, "0" * 16 + good[-16:], good[:8] + "-" + good[9:],
    ):  # fmt: skip
        assert plain("look_message_by_id", store, wrong) is None
    zero_body(files)
    damaged = files.puts[files.offsets.index(1024)].msg_id
    assert plain("look_message_by_id", store, damaged) is None


# --- Keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["k0", "k4", "none", ""])
def test_queries(files: Files, key: str) -> None:
    found, time, offset = query(files, key)
    wanted = [n for n in range(COUNT) if f"k{n % 5}" == key]
    assert found == [files.offsets[n] for n in wanted]
    end = files.puts[-1].store_timestamp, files.offsets[-1]
    assert (time, offset) == (end if wanted else (0, 0))


def test_a_query_takes_the_newest_hits(files: Files) -> None:
    assert query(files, "k1", 1)[0] == [files.offsets[11]]
    assert query(files, "k1", 2)[0] == [files.offsets[6], files.offsets[11]]
    assert query(files, "k1", 32, FOREVER) == ([], 0, 0)
    assert query(files, "k1", 2**40)[0] == [files.offsets[n] for n in (1, 6, 11)]


@pytest.mark.parametrize(
    ("key", "count"),
    [("é", 32), ("k1", 0), ("k1", -1), ("\ud800", 1), (5, 1), ("k1", True), ("k1", 2**70)],
)
def test_queries_that_are_not_plain(files: Files, key: Any, count: int) -> None:
    assert query(files, key, count) is None


@pytest.mark.parametrize("times", [(-1, 5), (0, -1), (0, 2**63), (0.0, 5), (True, 5)])
def test_times_that_are_not_plain(files: Files, times: Any) -> None:
    assert query(files, "k1", 32, *times) is None


def test_searches(files: Files) -> None:
    for number in range(5):
        wanted = files.offsets[number::5]
        assert find(files, topic="T", key=f"k{number}") == wanted
    assert find(files, topic="T", key="none") == []
    assert find(files, topic="T", unique_key="k1") == []
    files.index_service.files = (files.place, files.place)  # a hit in two files is one message
    assert find(files, topic="T", key="k1") == files.offsets[1::5]


def test_a_search_compares_topic_and_key(files: Files) -> None:
    """The index gives what has the same hash; "Aa" and "BB" have."""
    log = Log(NATIVE, segment_nbytes=4096)
    wrote = {}
    for topic, keys, unique in (
        ("Aa", "x Aa y", "u"), ("BB", "Aa", "u"), ("Aa", "BB", "Aa"), ("Aa", "Aa", "u"),
        ("Aa", "AaX", "u"), ("Aa", "y Aa", None), ("Aa", None, "Aa"), ("Aa", "", ""),
    ):  # fmt: skip
        options = {"keys": keys, "properties": {} if unique is None else {"UNIQ_KEY": unique}}
        put = log.appender.put(topic, b"", 0, **options)
        wrote[put.physical_offset] = (topic, (keys or "").split(" "), unique)
    files.index[:] = bytes(len(files.index))
    NATIVE.index_file.init_header(files.index, 0, 0)
    for offset in wrote:
        NATIVE.index_file.put_key(files.index, SLOTS, ENTRIES, b"Aa#Aa", offset, 1_700_000_000_000)
    files.windows.clear()
    window = NATIVE.reading.Window(log.segments[0], 0, 1024, 1024, 0, 0)
    files.windows.add(window)
    for topic in ("Aa", "BB"):
        for key in ("Aa", "BB"):
            assert find(files, topic=topic, key=key) == [
                at for at, (t, keys, _) in wrote.items() if t == topic and key in keys
            ]
            assert find(files, topic=topic, unique_key=key) == [
                at for at, (t, _, unique) in wrote.items() if t == topic and key == unique
            ]


NOT_PLAIN_SEARCHES: list[dict[str, Any]] = [
    {"topic": "T"}, {"key": "k1"}, {"topic": "T", "key": "k1", "unique_key": "k1"}, {},
    {"topic": "T", "key": "k1", "tags": "A"}, {"topic": "T", "key": "k1", "begin": 0},
    {"topic": "T", "key": "k1", "body_contains": ""}, {"topic": "T", "key": "é"},
    {"topic": "T", "key": "k1", "on_corruption": "skip"}, {"topic": "T", "key": 5},
    {"topic": b"T", "key": "k1"}, {"topic": "T", "key": "k1", "end": 5},
]  # fmt: skip


@pytest.mark.parametrize("wanted", NOT_PLAIN_SEARCHES)
def test_searches_that_are_not_plain(files: Files, wanted: dict[str, Any]) -> None:
    assert find(files, **wanted) is None


def test_a_search_with_many_hits_is_not_plain(files: Files) -> None:
    for n in range(62):
        offset = files.offsets[n % 5 * 2]
        NATIVE.index_file.put_key(files.index, SLOTS, ENTRIES, b"T#k1", offset, 1_700_000_000_000)
        found = find(files, topic="T", key="k1")
        assert (found is None) == (n == 61)  # more than 64, with three at the start


QUERY_CHANGES: dict[str, Callable[[Files], Any]] = {
    "known damage": lambda files: files.log.damage.update({5: 1}),
    "not mapped": lambda files: setattr(files.place.file, "mapped", None),
    "a short file": lambda files: setattr(files.place.file, "mapped", bytes(100)),
    "no segments": lambda files: files.windows.clear(),
    "a broken chain": lambda files: files.index.__setitem__(
        slice(40 + 4 * SLOTS, None), b"\xff" * (len(files.index) - 40 - 4 * SLOTS)
    ),
}


@pytest.mark.parametrize("change", QUERY_CHANGES.values(), ids=QUERY_CHANGES)
def test_what_a_query_cannot_read_is_left_to_the_caller(
    files: Files, change: Callable[[Files], Any]
) -> None:
    change(files)
    assert query(files, "k1") is None
    assert find(files, topic="T", key="k1") is None


def test_a_search_in_a_log_that_is_not_wholly_indexed_is_not_plain(files: Files) -> None:
    files.index_service.gaps = ((0, 10),)
    assert find(files, topic="T", key="k1") is None
    assert query(files, "k1") is not None


# --- Times ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("upper", [False, True])
def test_a_search_by_time(files: Files, upper: bool) -> None:
    times = [put.store_timestamp for put in files.puts]
    reader = files.store()._reader
    for time in range(times[0] - 2, times[-1] + 3):
        wanted = sum(one <= time if upper else one < time for one in times)
        assert reader.narrow(files.queue, 0, COUNT, time, upper) == (wanted, wanted)
    assert reader.narrow(files.queue, 3, 3, 0, upper) == (3, 3)
    assert reader.narrow(files.queue, 0, COUNT, 2**63 - 1, upper) == (COUNT, COUNT)
    assert reader.narrow(files.queue, 0, COUNT, -(2**63), upper) == (0, 0)
    for far in (2**63, 2**70, -(2**63) - 1):
        assert reader.narrow(files.queue, 0, COUNT, far, upper) == (0, COUNT)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_search_by_time_stops_before_what_is_not_plain(
    files: Files, change: Callable[[Files], Any]
) -> None:
    change(files)
    low, high = files.store()._reader.narrow(files.queue, 0, COUNT, 2**62, False)
    assert 0 <= low <= high == COUNT
