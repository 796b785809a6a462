"""Windows of log bytes become record batches: fields, filters, limits, odd bytes, lifetimes."""

from __future__ import annotations

import gc
import mmap
import threading
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from rocketstore import Sql92Filter, formats
from rocketstore.display.columns import COLUMNS, CORE, arrow_schema
from rocketstore.message import StoredMessage
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies
from support.record_factory import make_record

BASE = 1 << 30
SEGMENT_END = BASE + (1 << 30)
NO_LIMIT = 2**63 - 1
ALL = list(COLUMNS)
_ODD = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\xf0\x9f\x98\x80", "ä€".encode(), b"\xe2\x82x")
_TIMES = (0, -1, 2**62, -(2**62), 1_700_000_000_000, 9_223_372_036_854_775)
_GROUPS = (b"\0\0", b"\0\0", b"\0\1", b"\x12\x34", b"\xff\xff", b"\0\xab")


def _host(random: Random) -> bytes:
    if random.random() < 0.4:
        return b"".join(random.choices(_GROUPS, k=8)) + random.randbytes(4)
    return random.randbytes(8)


def _properties(random: Random, number: int) -> bytes:
    if number % 19 == 0:
        return b""
    pairs = [b"KEYS\x01order-%d k%d" % (number, number % 9), b"UNIQ_KEY\x01u%d" % number]
    if number % 3:
        pairs.append(b"TAGS\x01t%d" % (number % 7))
    if number % 5 == 0:
        pairs += [random.choice(_ODD) + b"\x01" + random.choice(_ODD) for _ in range(3)]
        pairs += [b"TAGS\x01" + random.choice(_ODD), b"\x01none", b"empty\x01", b"a\x01b\x01c"]
    if number % 17 == 0:
        pairs += [b"p%d\x01v%d" % (random.randrange(30), k) for k in range(60)]
    random.shuffle(pairs)
    return b"\x02".join(pairs) + (b"\x02" if number % 2 else b"")


def _records(count: int, seed: int = 1) -> bytes:
    """Records of all shapes one after the other, the first at ``BASE``."""
    random = Random(seed)
    log = bytearray()
    for number in range(count):
        born, store = _host(random), _host(random)
        bits = formats.SYS_FLAG_BORN_HOST_V6 if len(born) == formats.HOST_V6.nbytes else 0
        bits |= formats.SYS_FLAG_STORE_HOST_V6 if len(store) == formats.HOST_V6.nbytes else 0
        log += make_record(
            topic=random.choice(_ODD) if number % 23 == 0 else b"topic%d" % (number % 4),
            body=random.randbytes(random.choice((0, 1, 90, 300))),
            properties=_properties(random, number),
            queue_id=number % 8,
            queue_offset=number // 4,
            physical_offset=BASE + len(log),
            flag=number - 50,
            born_timestamp=random.choice(_TIMES),
            born_host=born,
            store_timestamp=1_700_000_000_000 + number,
            store_host=store,
            sys_flag=bits,
            version=2 if number % 13 == 0 else 1,
        )
    return bytes(log)


COUNT = 250
LOG = _records(COUNT)


def _decode(
    bodies: Bodies,
    log: Any = LOG,
    columns: Any = ALL,
    *,
    flags: int = RecordFlags.CHECK_BODY_CRC,
    limit: int = NO_LIMIT,
    **limits: Any,
) -> tuple[list[tuple[int, int, int]], pa.Table]:
    """All that ``consume`` answered, with the rows that waited then, and the batches."""
    decoder = bodies.arrow.BatchDecoder(columns, **limits)
    position, answers, batches = 0, [], []
    while True:
        status, position = decoder.consume(log, position, len(log), BASE, SEGMENT_END, limit, flags)
        answers.append((status, position, decoder.rows))
        batches.append(pa.record_batch(decoder.take()))
        if status != RecordStatus.FULL:
            return answers, pa.Table.from_batches(batches)


def _messages(log: bytes = LOG) -> list[StoredMessage]:
    found, position = [], 0
    while position < len(log):
        found.append(StoredMessage(log, position, BASE, SEGMENT_END))
        position += found[-1].store_size
    return found


def _same(**arguments: Any) -> pa.Table:
    """The table that both bodies make."""
    native, reference = _decode(NATIVE, **arguments), _decode(REFERENCE, **arguments)
    assert native[0] == reference[0]
    native[1].validate(full=True)
    assert native[1].schema == reference[1].schema == arrow_schema(native[1].column_names)
    for name in native[1].column_names:
        assert native[1].column(name).equals(reference[1].column(name)), name
    return native[1]


def _us(milliseconds: int) -> int:
    return max(-(2**63), min(1000 * milliseconds, 2**63 - 1))


def test_fields_are_those_of_the_messages(kernels: Bodies) -> None:
    _, table = _decode(kernels)
    messages = _messages()

    def column(name: str) -> list[Any]:
        array = table.column(name)
        return (array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array).to_pylist()

    assert column("topic") == [m.topic for m in messages]
    assert column("queueId") == column("partition") == [m.queue_id for m in messages]
    assert column("queueOffset") == column("offset") == [m.queue_offset for m in messages]
    assert column("physicalOffset") == [m.physical_offset for m in messages]
    assert column("tags") == [m.tags for m in messages]
    assert column("keys") == [m.keys for m in messages]
    assert column("body") == column("value") == [m.body for m in messages]
    assert column("storeTimestamp") == [_us(m.store_timestamp) for m in messages]
    assert column("timestamp") == column("storeTimestamp")
    assert column("bornTimestamp") == [_us(m.born_timestamp or 0) for m in messages]
    assert [dict(row) for row in column("properties")] == [m.properties for m in messages]
    assert [list(dict(row)) for row in column("properties")] == [
        list(m.properties) for m in messages
    ]
    assert column("flag") == [m.flag for m in messages]
    assert column("sysFlag") == [m.sys_flag for m in messages]
    assert column("reconsumeTimes") == [m.reconsume_times for m in messages]
    assert column("storeSize") == [m.store_size for m in messages]
    assert column("bodyCRC") == [m.body_crc for m in messages]
    assert column("bornHost") == [m.born_host for m in messages]
    assert column("storeHost") == [m.store_host for m in messages]
    assert column("uniqKey") == [m.unique_key for m in messages]
    assert column("offsetMsgId") == [m.msg_id for m in messages]
    assert column("preparedTransactionOffset") == [m.prepared_transaction_offset for m in messages]
    assert column("bodySize") == [len(m.body) for m in messages]
    assert column("raw") == [bytes(m.raw) for m in messages]
    assert set(column("timestampType")) == {1}
    assert [[h["key"] for h in row] for row in column("headers")] == [
        list(m.properties) for m in messages
    ]


def test_headers_and_key_are_stored_bytes(kernels: Bodies) -> None:
    log = make_record(physical_offset=BASE, properties=b"KEYS\x01\xff\x02a\x01\xc3\x02a\x01\xfe")
    row = _decode(kernels, log, ["key", "keys", "headers", "properties"])[1].to_pylist()[0]
    assert row["key"] == b"\xff"
    assert row["keys"] == "\ufffd"
    assert row["headers"] == [{"key": "KEYS", "value": b"\xff"}, {"key": "a", "value": b"\xfe"}]
    assert row["properties"] == [("KEYS", "\ufffd"), ("a", "\ufffd")]


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"topics": ["topic1", "topic3", "none"]},
        {"topics": []},
        {"topics": ["\ufffd", "ä€", "\ufffd\ufffd"]},
        {"tags": ["t1", "t5", "\ufffd"]},
        {"tags": []},
        {"keys": ["k3"]},
        {"keys": ["u7", "order-9", "order-10 k1"]},
        {"keys": [""]},
        {"queue_ids": {"topic1": [1], "topic2": [6, 2], "topic3": []}},
        {"queue_ids": {"topic1": [1, 5]}, "topics": ["topic1", "topic2"]},
        {"start_offsets": {("topic1", 1): (10, 40), ("topic2", 2): (None, 7), ("x", 0): (1, 0)}},
        {"start_offsets": {("topic1", 5): (40, None), ("topic1", 1): (0, 0)}, "topics": ["topic1"]},
        {"begin": 1_700_000_000_100, "end": 1_700_000_000_201},
        {"begin": 5, "end": 5},
        {"topics": [f"other{n}" for n in range(300)] + ["topic2"]},
        {"topics": ["\ud800"]},
    ],
    ids=str,
)
def test_filters(limits: dict[str, Any]) -> None:
    table = _same(**limits)
    wanted = [m.physical_offset for m in _messages() if _wanted(m, **limits)]
    assert table.column("physicalOffset").to_pylist() == wanted


def _wanted(
    message: StoredMessage,
    topics: Any = None,
    tags: Any = None,
    keys: Any = None,
    queue_ids: Any = None,
    begin: Any = None,
    end: Any = None,
    start_offsets: Any = None,
) -> bool:
    queue = (message.topic, message.queue_id)
    first, last = (start_offsets or {}).get(queue, (None, None))
    found = {message.unique_key, *((message.keys or "\0").split(" "))}
    return (
        (topics is None or message.topic in topics)
        and (tags is None or message.tags in tags)
        and (keys is None or not found.isdisjoint(keys))
        and (queue_ids is None or message.queue_id in queue_ids.get(message.topic, ()))
        and (begin is None or message.store_timestamp >= begin)
        and (end is None or message.store_timestamp < end)
        and (first is None or message.queue_offset >= first)
        and (last is None or message.queue_offset < last)
    )


@pytest.mark.parametrize("batch_rows", [1, 64, 65, 8192])
@pytest.mark.parametrize("batch_bytes", [1, 20_000, 4 << 20])
def test_batch_limits(batch_rows: int, batch_bytes: int) -> None:
    table = _same(batch_rows=batch_rows, batch_bytes=batch_bytes, tags=[f"t{n}" for n in range(6)])
    whole = _decode(NATIVE, tags=[f"t{n}" for n in range(6)])[1]
    assert table.combine_chunks().equals(whole.combine_chunks())


def test_no_batch_is_larger_than_its_limits(kernels: Bodies) -> None:
    answers, table = _decode(kernels, columns=["body", "queueId"], batch_rows=50, batch_bytes=900)
    for batch in table.to_batches():
        nbytes = sum(map(len, batch.column("body").to_pylist()))
        assert 1 <= batch.num_rows <= 50
        assert nbytes <= 900
    assert len(answers) > COUNT // 50
    # Numbers are not counted.
    assert len(_decode(kernels, columns=["queueId"], batch_bytes=1)[0]) == 1


@pytest.mark.parametrize("names", [["queueId"], list(CORE), ["properties"], ["raw", "bornHost"]])
@pytest.mark.parametrize("flags", [0, int(RecordFlags.CHECK_BODY_CRC)])
def test_some_columns(names: list[str], flags: int) -> None:
    table = _same(columns=names, flags=flags)
    assert table.equals(_decode(NATIVE)[1].select(names))


@pytest.mark.parametrize("end_at", [0, 1, 5000, 5001, len(LOG) - 1, len(LOG)])
def test_a_record_after_the_limit_is_not_taken(kernels: Bodies, end_at: int) -> None:
    (answer,), table = _decode(kernels, limit=BASE + end_at)
    taken = [m for m in _messages() if m.physical_offset < BASE + end_at]
    assert table.column("physicalOffset").to_pylist() == [m.physical_offset for m in taken]
    end = taken[-1].physical_offset + taken[-1].store_size - BASE if taken else 0
    assert answer == (RecordStatus.END, end, len(taken))


def _ghost() -> bytes:
    return make_record(physical_offset=BASE - 500, body=b"ghost")


@pytest.mark.parametrize(
    ("place", "status"),
    [
        (b"", RecordStatus.END),
        (b"\0" * 40, RecordStatus.EMPTY),
        (b"\0\0\1", RecordStatus.INCOMPLETE),
        (make_record(physical_offset=BASE + len(LOG))[:-1], RecordStatus.INCOMPLETE),
        (b"\x7f" * 40, RecordStatus.BAD_MAGIC),
        (make_record(physical_offset=BASE + len(LOG), body_crc=1), RecordStatus.BAD_BODY_CRC),
        (make_record(physical_offset=BASE + len(LOG) + 1), RecordStatus.BAD_PHYSICAL_OFFSET),
        (_ghost(), RecordStatus.END),
        (_ghost() * 3 + b"\0" * 8, RecordStatus.EMPTY),
    ],
)
def test_what_follows_the_records(place: bytes, status: RecordStatus) -> None:
    log = LOG + place
    for bodies in (NATIVE, REFERENCE):
        answers, table = _decode(bodies, log)
        ghosts = len(_ghost()) * place.count(b"ghost")
        assert answers == [(status, len(LOG) + ghosts, COUNT)]
        assert table.num_rows == COUNT


def test_the_blank_at_the_segments_end(kernels: Bodies) -> None:
    record = make_record(physical_offset=BASE)
    blank = formats.BLANK.struct.pack(100, formats.BLANK_MAGIC)
    decoder = kernels.arrow.BatchDecoder(["body"])
    end = BASE + len(record) + 100
    answer = decoder.consume(record + blank, 0, len(record) + 8, BASE, end, NO_LIMIT, 1)
    assert answer == (RecordStatus.BLANK, len(record))
    assert decoder.rows == 1


def test_windows_that_move_over_the_log(kernels: Bodies) -> None:
    decoder = kernels.arrow.BatchDecoder(ALL, batch_rows=37)
    batches, at = [], 0
    window = bytearray(4096)  # used again, as the decoder keeps nothing of it
    while at < len(LOG):
        piece = LOG[at : at + len(window)]
        window[:] = b"\xee" * len(window)
        window[: len(piece)] = piece
        position = 0
        while True:
            status, position = decoder.consume(
                window, position, len(piece), BASE + at, SEGMENT_END, NO_LIMIT, 1
            )
            if status != RecordStatus.FULL:
                break
            batches.append(pa.record_batch(decoder.take()))
        assert status in (RecordStatus.END, RecordStatus.INCOMPLETE)
        at += position
    batches.append(pa.record_batch(decoder.take()))
    assert (
        pa.Table.from_batches(batches).combine_chunks().equals(_decode(NATIVE)[1].combine_chunks())
    )


def test_long_records_and_long_properties() -> None:
    properties = b"\x02".join(b"%d\x01%d" % (k % 3000, k) for k in range(3800))[:32767]
    log = b""
    for number in range(3):
        log += make_record(
            physical_offset=BASE + len(log),
            body=b"x" * (1 << 20),
            topic=b"\xff" * 127,
            properties=properties if number else b"\xff\x01\xfe\x02" * 8191,
        )
    assert _same(log=log, columns=ALL).num_rows == 3
    assert _same(log=log, columns=ALL, batch_bytes=1000).column("body").num_chunks == 3


def test_an_empty_batch_is_one(kernels: Bodies) -> None:
    decoder = kernels.arrow.BatchDecoder(ALL)
    batch = pa.record_batch(decoder.take())
    batch.validate(full=True)
    assert batch.num_rows == 0
    assert batch.schema == pa.schema(decoder.schema) == arrow_schema(ALL)


def test_a_batch_outlives_its_decoder_and_is_exported_often(kernels: Bodies) -> None:
    decoder = kernels.arrow.BatchDecoder(ALL)
    decoder.consume(LOG, 0, len(LOG), BASE, SEGMENT_END, NO_LIMIT, 1)
    taken = decoder.take()
    assert len(taken) == COUNT
    del decoder
    first, second = pa.record_batch(taken), pa.record_batch(taken)
    columns = [first.column(name) for name in ("properties", "body")]
    del taken, first
    gc.collect()
    assert second.column("properties").equals(columns[0])
    del second
    gc.collect()
    assert columns[1].to_pylist() == [m.body for m in _messages()]


def test_capsules_that_are_not_taken(kernels: Bodies) -> None:
    decoder = kernels.arrow.BatchDecoder(ALL)
    decoder.consume(LOG, 0, len(LOG), BASE, SEGMENT_END, NO_LIMIT, 1)
    batch = decoder.take()
    for _ in range(100):
        schema, array = batch.__arrow_c_array__()
        del schema, array
        decoder.schema.__arrow_c_schema__()
    kernels.arrow.export_stream(decoder.schema, iter([batch]))
    assert pa.record_batch(batch).num_rows == COUNT


def test_a_stream(kernels: Bodies) -> None:
    class Stream:
        def __init__(self, batches: Any) -> None:
            self.batches = batches

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return kernels.arrow.export_stream(decoder.schema, self.batches)

    def broken() -> Any:
        yield batch
        raise ValueError("the disk is gone")

    decoder = kernels.arrow.BatchDecoder(ALL)
    decoder.consume(LOG, 0, len(LOG), BASE, SEGMENT_END, NO_LIMIT, 1)
    batch = decoder.take()
    table = pa.table(Stream(iter([batch, batch])))
    assert table.num_rows == 2 * COUNT
    assert pa.table(Stream(iter([]))).schema == arrow_schema(ALL)
    with pytest.raises((OSError, ValueError), match="the disk is gone"):
        pa.table(Stream(broken()))


@pytest.mark.parametrize(
    ("columns", "limits", "error", "words"),
    [
        (["nothing"], {}, ValueError, "there is no column 'nothing'"),
        (["body\0"], {}, ValueError, "there is no column"),
        (ALL, {"topics": "topic1"}, TypeError, "topics must be a sequence of str, not str"),
        (ALL, {"tags": [5]}, TypeError, "tags must name str, not int"),
        (ALL, {"batch_rows": 0}, ValueError, "batch_rows must be from 1 to 1048576, not 0"),
        (ALL, {"batch_rows": 2**20 + 1}, ValueError, "batch_rows must be"),
        (ALL, {"batch_bytes": 2**29 + 1}, ValueError, "batch_bytes must be"),
        (ALL, {"batch_rows": True}, TypeError, "batch_rows must be int, not bool"),
        (ALL, {"begin": 2**63}, ValueError, "does not fit 64 bits"),
        (ALL, {"end": 1.5}, TypeError, "must be int, not float"),
        (ALL, {"queue_ids": {"a": [2**31]}}, ValueError, "does not fit 32 bits"),
        (ALL, {"start_offsets": {"a": (0, 1)}}, TypeError, "topic and queue id"),
        (ALL, {"start_offsets": {("a", 1): 5}}, TypeError, "first and last offset"),
    ],
)
def test_wrong_arguments(
    kernels: Bodies, columns: list[str], limits: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        kernels.arrow.BatchDecoder(columns, **limits)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((LOG, 5, 4, BASE, SEGMENT_END, 0, 0), ValueError),
        ((LOG, 0, len(LOG) + 1, BASE, SEGMENT_END, 0, 0), ValueError),
        ((LOG, 0, 1, -1, SEGMENT_END, 0, 0), ValueError),
        ((LOG, 0, 1, BASE, SEGMENT_END, 2**63, 0), OverflowError),
        ((5, 0, 1, BASE, SEGMENT_END, 0, 0), TypeError),
    ],
)
def test_wrong_windows(kernels: Bodies, arguments: Any, error: type[Exception]) -> None:
    decoder = kernels.arrow.BatchDecoder(ALL)
    with pytest.raises(error):
        decoder.consume(*arguments)
    assert decoder.rows == 0


def test_a_mapping_whose_file_is_truncated_gives_what_is_good(tmp_path: Path) -> None:
    page = mmap.PAGESIZE
    path = tmp_path / "segment"
    path.write_bytes(LOG)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as window:
        file.truncate(3 * page)
        decoder = NATIVE.arrow.BatchDecoder(["physicalOffset", "body", "properties", "tags"])
        for _ in range(2):
            status, position = decoder.consume(window, 0, len(LOG), BASE, SEGMENT_END, NO_LIMIT, 1)
            messages = _messages()
            good = [m for m in messages if m.physical_offset + m.store_size <= BASE + 3 * page]
            table = pa.record_batch(decoder.take())
            table.validate(full=True)
            assert status == RecordStatus.FAULT
            assert position == messages[len(good)].physical_offset - BASE
            assert table.column("physicalOffset").to_pylist() == [m.physical_offset for m in good]
            assert table.column("body").to_pylist() == [m.body for m in good]


def test_a_decoder_that_is_busy_says_so() -> None:
    """Not thread-safe, but no crash either."""
    log = _records(5_000, seed=2)
    decoder = NATIVE.arrow.BatchDecoder(ALL, batch_rows=1 << 20, batch_bytes=1 << 29)
    outcomes: list[Any] = []

    def consume() -> None:
        try:
            outcomes.append(decoder.consume(log, 0, len(log), BASE, SEGMENT_END, NO_LIMIT, 1))
        except RuntimeError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    allowed = {(int(RecordStatus.END), len(log)), "a BatchDecoder serves one thread at a time"}
    assert set(outcomes) <= allowed
    assert decoder.rows == 5_000 * sum(isinstance(outcome, tuple) for outcome in outcomes)
    pa.record_batch(decoder.take()).validate(full=True)


def test_nothing_is_left_over() -> None:
    """Decoders, batches, capsules and streams, 200 times: some 600 kB each if one stayed."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        pytest.skip("memory is read from /proc, which this system does not have")

    def resident_nbytes() -> int:
        gc.collect()
        return int(pages.read_text().split()[1]) * mmap.PAGESIZE

    def use() -> None:
        decoder = NATIVE.arrow.BatchDecoder(ALL, topics=["topic1"], tags=["t1"], keys=["k1"])
        decoder.consume(LOG, 0, len(LOG), BASE, SEGMENT_END, NO_LIMIT, 1)
        batch = decoder.take()
        pa.record_batch(batch).column("properties")
        batch.__arrow_c_array__()
        NATIVE.arrow.export_stream(decoder.schema, iter([batch]))
        with pytest.raises(ValueError, match="no column"):
            NATIVE.arrow.BatchDecoder(["body", "nothing"])

    for _ in range(50):
        use()
    before = resident_nbytes()
    for _ in range(200):
        use()
    assert resident_nbytes() - before < 30 << 20


def test_a_program_is_asked_last() -> None:
    """Both bodies give the rows that match, and count errors of no other record."""
    expression = "TAGS <> 't2' AND KEYS > 5 OR UNIQ_KEY STARTSWITH 'u1'"
    judge = Sql92Filter(expression)
    wanted = [m.physical_offset for m in _messages() if m.topic == "topic1" and judge.matches(m)]
    assert judge.errors > 10
    for limits in ({}, {"batch_rows": 1}, {"batch_rows": 7}, {"batch_bytes": 500}):
        counted = []
        for body in (NATIVE, REFERENCE):
            made = Sql92Filter(expression)
            options = {"topics": ["topic1"], "filter": made, **limits}
            _, table = _decode(body, columns=["physicalOffset", "body"], **options)
            assert table.column(0).to_pylist() == wanted
            counted.append(made.errors)
        assert counted == [judge.errors] * 2
    with pytest.raises(TypeError, match="must be a Sql92Filter here"):
        NATIVE.arrow.BatchDecoder(["topic"], filter="n > 5")
