"""Bit maps of ext units by the SQL92 filters of a topic: both bodies, unit by unit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rocketstore import Sql92Filter, formats
from rocketstore.status import KernelStatus, MultiDispatch
from support.kernel_bodies import NATIVE, REFERENCE, Bodies
from support.named_store import NamedStore
from support.reput_store import encode_log

EXT_UNIT = formats.CONSUME_QUEUE_EXT_UNIT
EXT_FILE_NBYTES = 4096
OPTIONS: dict[str, Any] = {"ext_file_nbytes": EXT_FILE_NBYTES, "index_enable": False}
Row = tuple[bytes, "bytes | None", bytes, int]


def program(expression: str) -> bytes:
    return Sql92Filter(expression).program


def stored(**properties: str) -> bytes:
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()


def bit_maps(store: NamedStore, topic: bytes = b"TopicA", queue_id: int = 0) -> list[bytes]:
    """The bit maps of a queue's ext units, in order; all in the first file."""
    handle = store.dispatcher.handle(topic, queue_id)
    file, found = store.ext_files[handle, 0], []
    for _, _, address in store.units(topic, queue_id):
        at = address - formats.EXT_ADDRESS_BASE
        size, _, _, nbytes = EXT_UNIT.struct.unpack_from(file, at)
        assert size == EXT_UNIT.nbytes + nbytes
        found.append(bytes(file[at + EXT_UNIT.nbytes : at + size]))
    return found


def dispatched(kernels: Bodies, rows: list[Row], records: list[dict[str, Any]]) -> NamedStore:
    store = NamedStore(kernels, **OPTIONS)
    store.dispatcher.set_filters(2, rows)
    store.dispatch_all(encode_log(kernels, records))
    return store


def test_bits_of_the_filters_that_are_true(kernels: Bodies) -> None:
    rows: list[Row] = [
        (b"TopicA", program("n > 5"), b"\x01\x00", 0),
        (b"TopicB", program("n > 0"), b"\x10\x00", 0),
        (b"TopicA", program("color IS NULL"), b"\x00\x81", 0),
        (b"TopicA", program("n = 7 OR n = 'x'"), b"\x03\x00", 0),
    ]
    properties = [stored(n="7"), stored(n="6", color="red"), stored(n="x"), b"", stored(n="1")]
    records = [{"queue_offset": number, "properties": one} for number, one in enumerate(properties)]
    store = dispatched(kernels, rows, [*records, {"topic": "TopicB", "properties": properties[0]}])
    # "x" is no number: the first and the third filter raise for it, and set no bit.
    expected = [b"\x03\x81", b"\x01\x00", b"\x00\x81", b"\x00\x81", b"\x00\x81"]
    assert bit_maps(store) == expected
    assert bit_maps(store, b"TopicB") == [b"\x10\x00"]
    assert store.dispatcher.filter_errors == 2
    assert store.dispatcher.newest_ext_timestamp == 1_700_000_000_000


def test_only_filters_older_than_the_record_count(kernels: Bodies) -> None:
    rows: list[Row] = [
        (b"TopicA", program("TRUE"), b"\x01\x00", 1000),
        (b"TopicA", program("TRUE"), b"\x02\x00", 1001),
        (b"TopicA", None, b"\x04\x00", 2000),
    ]
    times = [999, 1000, 1001, 1002, 1999, 2001]
    records = [{"queue_offset": at, "store_timestamp": time} for at, time in enumerate(times)]
    expected = [b"", b"", b"\x01\x00", b"\x03\x00", b"\x03\x00", b"\x03\x00"]
    assert bit_maps(dispatched(kernels, rows, records)) == expected
    alone: list[Row] = [(b"TopicA", None, b"\x04\x00", 1000)]
    expected = [b"", b"", *[b"\x00\x00"] * 4]
    assert bit_maps(dispatched(kernels, alone, records)) == expected


def test_other_topics_have_none(kernels: Bodies) -> None:
    rows: list[Row] = [(b"Topic", program("TRUE"), b"\x01\x00", 0)]
    assert bit_maps(dispatched(kernels, rows, [{}])) == [b""]


def test_filters_can_be_replaced(kernels: Bodies) -> None:
    """Also those of queues that were registered before; errors are counted on."""
    store = NamedStore(kernels, **OPTIONS)
    records = [{"queue_offset": n, "properties": stored(n="x")} for n in range(4)]
    log = encode_log(kernels, records)
    store.dispatcher.set_filters(1, [(b"TopicA", program("n > 1"), b"\x01", 0)])
    position = store.dispatch_one(log, 0)
    for filters in ([(b"TopicA", program("n = 'x'"), b"\x07", 0)], []):
        store.dispatcher.set_filters(1, filters)
        position = store.dispatch_one(log, position)
    assert store.dispatch_one(log, position) == len(log)
    assert bit_maps(store) == [b"\x00", b"\x07", b"", b""]
    assert store.dispatcher.filter_errors == 1


def test_light_queues_and_what_is_not_committed_have_none(kernels: Bodies) -> None:
    options = {**OPTIONS, "multi_dispatch": MultiDispatch.LIGHT}
    store = NamedStore(kernels, **options)
    rows = [(topic, program("TRUE"), b"\x01", 0) for topic in (b"TopicA", b"%LMQ%a")]
    store.dispatcher.set_filters(1, rows)
    names = stored(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="0")
    records = [{"properties": names}, {"sys_flag": 4}, {"sys_flag": 12}, {"queue_offset": 1}]
    store.dispatch_all(encode_log(kernels, records))
    assert bit_maps(store) == [b"\x01", b"\x01"]
    assert store.units(b"%LMQ%a", 0)[0][2] == 0


def test_errors_are_not_counted_twice_where_a_file_is_needed(kernels: Bodies) -> None:
    store = NamedStore(kernels, **{**OPTIONS, "ext_file_nbytes": 64})
    store.dispatcher.set_filters(2, [(b"TopicA", program("n > 1"), b"\x01\x00", 0)])
    records = [{"queue_offset": n, "properties": stored(n="x")} for n in range(9)]
    store.dispatch_all(encode_log(kernels, records))
    assert store.statuses.count(KernelStatus.NEED_EXT) > 3
    assert store.dispatcher.filter_errors == 9


WRONG: list[tuple[int, Any, type[Exception], str]] = [
    (-1, [], ValueError, "bit_map_nbytes -1 is outside"),
    (2, [(b"T", None, b"\x01", 0)], ValueError, "bits has 1 bytes, a bit map 2"),
    (1, [("T", None, b"\x01", 0)], TypeError, "topic and bits must be bytes"),
    (1, [(b"T", None, "\x01", 0)], TypeError, "topic and bits must be bytes"),
    (1, [(b"T", "TRUE", b"\x01", 0)], TypeError, "program must be bytes or None"),
    (1, [(b"T", b"TRUE", b"\x01", 0)], ValueError, "no program of an SQL92 filter"),
    (1, [(b"T", None, b"\x01", 2**63)], ValueError, "born_time 9223372036854775808 is outside"),
]


@pytest.mark.parametrize(("nbytes", "filters", "error", "words"), WRONG)
def test_misuse_changes_nothing(
    kernels: Bodies, nbytes: int, filters: Any, error: type[Exception], words: str
) -> None:
    store = NamedStore(kernels, **OPTIONS)
    store.dispatcher.set_filters(1, [(b"TopicA", program("TRUE"), b"\x05", 0)])
    with pytest.raises(error, match=words):
        store.dispatcher.set_filters(nbytes, filters)
    store.dispatch_all(encode_log(kernels, [{}]))
    assert bit_maps(store) == [b"\x05"]
    store.dispatcher.close()
    with pytest.raises(ValueError, match="closed"):
        store.dispatcher.set_filters(1, [])


EXPRESSIONS = ("n > 2", "n BETWEEN 1 AND 3", "color = 'red'", "NOT (color = 'red')", "n IS NULL")


@pytest.mark.parametrize("seed", range(20))
def test_both_bodies_make_the_same_bit_maps(seed: int) -> None:
    pick = random.Random(seed)
    topics = (b"TopicA", b"TopicB")
    compiled = [None, *map(program, EXPRESSIONS)]
    rows = [
        (pick.choice(topics), pick.choice(compiled), pick.randbytes(3), pick.randrange(900, 1100))
        for _ in range(pick.randrange(8))
    ]
    next_offset = dict.fromkeys(topics, 0)
    records = []
    for number in range(60):
        topic = pick.choice(topics)
        parts = {"n": pick.choice("01234x"), "color": pick.choice(("red", "blue"))}
        names = pick.sample(("n", "color"), pick.randrange(3))
        records.append(
            {
                "topic": topic.decode(),
                "queue_offset": next_offset[topic],
                "store_timestamp": 950 + 2 * number,
                "properties": stored(**{name: parts[name] for name in names}),
            }
        )
        next_offset[topic] += 1
    outcomes = []
    for body in (NATIVE, REFERENCE):
        store = NamedStore(body, **{**OPTIONS, "ext_file_nbytes": 128})
        store.dispatcher.set_filters(3, rows)
        store.dispatch_all(encode_log(body, records))
        errors = store.dispatcher.filter_errors, store.dispatcher.newest_ext_timestamp
        outcomes.append((errors, store.everything()))
    assert outcomes[0] == outcomes[1]
