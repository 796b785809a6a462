"""Staged records: the bytes that a put stores, whatever the row; what a put refuses is refused."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from rocketstore.config import MessageStoreConfig
from rocketstore.errors import DecodeError
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

NOW = 1_700_000_000_000
SIZE = 1 << 20
DELAYS = MessageStoreConfig().delay_ms
VERSIONS = ["4.9.8", "5.1.4", "5.3.3", "5.5.0"]
MAP = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("queueId", pa.int32()),
        ("properties", MAP),
        ("flag", pa.int32()),
        ("bornTimestamp", pa.timestamp("us", "UTC")),
        ("delayLevel", pa.int32()),
    ]
)

ROWS: list[dict[str, Any]] = [
    {"body": b"", "topic": "T"},
    {"body": b"plain", "topic": "T", "tags": "A", "keys": "k1 k2", "queueId": 3},
    {"body": b"x" * 3000, "topic": "Other", "properties": [("a", "1"), ("UNIQ_KEY", "7F00")]},
    {"body": b"timed", "topic": "T", "bornTimestamp": 1_600_000_000_123, "flag": -7},
    {"body": b"before 1970", "topic": "T", "bornTimestamp": -1},
    {"body": b"late", "topic": "T", "delayLevel": 3, "tags": "D", "queueId": 2},
    {"body": b"later", "topic": "T", "delayLevel": 99},
    {"body": b"delay as property", "topic": "T", "properties": [("DELAY", "2")]},
    {"body": b"twice", "topic": "T", "properties": [("a", "1"), ("b", "2"), ("a", "3")]},
    {"body": b"text", "topic": "T", "tags": "标签", "properties": [("名", "值 😀")]},
    {"body": b"empty texts", "topic": "T", "tags": "", "keys": "", "properties": [("a", "")]},
    {"body": b"no pairs", "topic": "T", "properties": []},
    {"body": b"waits not", "topic": "T", "properties": [("WAIT", "false")]},
    {"body": b"crc", "topic": "T", "properties": [("__CRC32#", "12"), ("z", "1")]},
    {"body": b"retry", "topic": "%RETRY%group"},
    {"body": b"many", "topic": "T", "properties": [(f"p{i}", str(i)) for i in range(40)]},
    {"body": b"inner", "topic": "T", "properties": [("INNER_MULTI_DISPATCH", "%LMQ%a")]},
]

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"body": None, "topic": "T"}, ValueError, "column body is null"),
    ({"body": b"", "topic": None}, ValueError, "column topic is null"),
    ({"body": b"", "topic": ""}, ValueError, "topic is empty"),
    ({"body": b"", "topic": "a b"}, ValueError, "a character that RocketMQ does not allow"),
    ({"body": b"", "topic": "t" * 128}, ValueError, "MESSAGE_ILLEGAL"),
    ({"body": b"", "topic": "T", "queueId": -1}, ValueError, "queueId -1 is outside"),
    ({"body": b"", "topic": "T", "delayLevel": -1}, ValueError, "delayLevel -1 is outside"),
    ({"body": b"", "topic": "T", "tags": "a\x01"}, ValueError, "holds"),
    ({"body": b"", "topic": "T", "keys": "a\x02b"}, ValueError, "holds"),
    ({"body": b"", "topic": "T", "properties": [("", "a")]}, ValueError, "name is empty"),
    ({"body": b"", "topic": "T", "properties": [("a", None)]}, TypeError, "must be str"),
    (
        {"body": b"", "topic": "T", "tags": "a", "properties": [("TAGS", "b")]},
        ValueError,
        "TAGS is given twice",
    ),
    (
        {"body": b"", "topic": "T", "keys": "a", "properties": [("KEYS", "a "), ("x", "y")]},
        ValueError,
        "KEYS is given twice",
    ),
    (
        {"body": b"", "topic": "T", "properties": [("a", "v" * 32767)]},
        ValueError,
        "PROPERTIES_SIZE_EXCEEDED",
    ),
    ({"body": bytes(70_000), "topic": "T"}, ValueError, "MESSAGE_ILLEGAL"),
    (
        {"body": b"", "topic": "T", "properties": [("TIMER_DELAY_SEC", "5")]},
        ValueError,
        "WHEEL_TIMER_NOT_ENABLE",
    ),
    ({"body": b"", "topic": "T", "properties": [("INNER_NUM", "2")]}, ValueError, "ILLEGAL"),
]


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as a record batch; born times are epoch ms."""
    timed = [
        row
        if row.get("bornTimestamp") is None
        else row | {"bornTimestamp": row["bornTimestamp"] * 1000 + 7}
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(timed, SCHEMA)


def appender(kernels: Bodies, version: str = "5.3.3", **others: Any) -> tuple[Any, bytearray]:
    """An appender with one segment in memory."""

    def fail(_: int) -> None:
        raise AssertionError("the segment was to be large enough")

    options = {"delay_ms": DELAYS, "max_message_size": 65536} | others
    made = kernels.commit_log.Appender(
        roll=fail,
        extend=fail,
        clock=lambda: NOW,
        broker_version=version,
        segment_nbytes=SIZE,
        **options,
    )
    segment = bytearray(SIZE)
    made.attach(segment, SIZE, 0, SIZE)
    return made, segment


def encoder(kernels: Bodies, version: str = "5.3.3", **others: Any) -> Any:
    """An encoder for the same store."""
    options = {"delay_ms": DELAYS, "max_message_size": 65536} | others
    return kernels.staged_records.StageEncoder(
        broker_version=version, segment_nbytes=SIZE, **options
    )


def put_rows(target: Any, rows: list[dict[str, Any]], queues: int = 4) -> list[int]:
    """Put the rows one by one; the statuses."""
    statuses = []
    for number, row in enumerate(rows):
        queue_id = number % queues if row.get("queueId") is None else row["queueId"]
        pairs = row.get("properties")
        result = target.put(
            row["topic"],
            row["body"],
            queue_id,
            row.get("tags"),
            row.get("keys"),
            properties=None if pairs is None else dict(pairs),
            flag=row.get("flag") or 0,
            born_timestamp=row.get("bornTimestamp"),
            delay_level=row.get("delayLevel") or 0,
        )
        statuses.append(int(result.status))
    return statuses


def stage(target: Any, table: pa.RecordBatch) -> list[bytes]:
    """All pieces of a stage of the batch."""
    pieces, row = [], 0
    while row < table.num_rows:
        row = target.encode(table, row)
        pieces.append(target.take())
    return pieces


def random_rows(seed: int, count: int) -> list[dict[str, Any]]:
    """Rows of all kinds that a store takes."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        row = dict(chance.choice(ROWS))
        row["body"] = chance.randbytes(chance.choice([0, 1, 60, 300]))
        if chance.random() < 0.3:
            row["topic"] = f"topic-{chance.randrange(5)}"
        if chance.random() < 0.3:
            row["queueId"] = chance.randrange(9)
        rows.append(row)
    return rows


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("with_crc", [False, True])
def test_a_staged_row_becomes_what_put_stores(
    kernels: Bodies, version: str, with_crc: bool
) -> None:
    if with_crc and version in ("4.9.8", "5.1.4"):
        with pytest.raises(ValueError, match=r"needs broker_version 5\.2\.0"):
            appender(kernels, version, append_property_crc=True)
        return
    rows = ROWS + random_rows(6, 200)
    if not version.startswith("4"):
        rows = [r for r in rows if ("INNER_NUM", "2") not in (r.get("properties") or [])]
    by_put, expected = appender(kernels, version, append_property_crc=with_crc)
    assert set(put_rows(by_put, rows)) == {0}
    by_stage, found = appender(kernels, version, append_property_crc=with_crc)
    making = encoder(kernels, version, append_property_crc=with_crc)
    position = 0
    for piece in stage(making, batch(rows)):
        result = by_stage.put_staged(piece, position)
        assert result.ok
        position += len(piece)
    assert making.rows == len(rows)
    assert making.position == position
    assert found == expected
    assert by_stage.write_offset == by_put.write_offset


@pytest.mark.parametrize("host", ["10.1.2.3:10911", "[2001:db8::7]:10911"])
def test_both_bodies_stage_the_same_bytes(host: str) -> None:
    rows = random_rows(7, 300)
    pieces = [
        b"".join(stage(encoder(body, store_host=host, topic=topic, queues=3), batch(rows)))
        for topic in (None, "Option")
        for body in (NATIVE, REFERENCE)
    ]
    assert pieces[0] == pieces[1]
    assert pieces[2] == pieces[3]
    assert pieces[0] != pieces[2]
    made = [appender(body, store_host=host) for body in (NATIVE, REFERENCE)]
    for target, _ in made:
        assert target.put_staged(pieces[0], 0).ok
    assert made[0][1] == made[1][1]


@pytest.mark.parametrize(
    "columns", [{"tags": "A"}, {"keys": "k1 k2"}, {"tags": "A", "keys": "k1 k2"}]
)
@pytest.mark.parametrize("more", [{}, {"delayLevel": 2}])
def test_a_column_may_repeat_its_property(
    kernels: Bodies, columns: dict[str, str], more: dict[str, Any]
) -> None:
    """A source gives tags and keys both as columns and among the properties."""
    pairs = [("KEYS", "k1 k2"), ("x", "1"), ("TAGS", "A"), ("UNIQ_KEY", "7F00")]
    row = {"body": b"again", "topic": "T", "properties": pairs, **more}
    by_properties = stage(encoder(kernels), batch([row]))
    assert stage(encoder(kernels), batch([row | columns])) == by_properties


@pytest.mark.parametrize(("row", "error", "text"), REFUSED)
def test_what_put_refuses_is_refused_with_its_row(
    kernels: Bodies, row: dict[str, Any], error: type[Exception], text: str
) -> None:
    making = encoder(kernels)
    with pytest.raises(error, match=f"^row 1: .*{text}"):
        making.encode(batch([ROWS[1], row]))
    assert making.rows == 1
    target, _ = appender(kernels)
    assert target.put_staged(making.take(), 0).ok
    try:
        statuses = put_rows(target, [row])
    except (TypeError, ValueError):
        return
    assert statuses != [0]


@pytest.mark.parametrize("column", ["topic", "tags", "keys", "properties"])
def test_text_that_is_not_utf8_is_refused(kernels: Bodies, column: str) -> None:
    wrong = pa.array([b"ab\xed\xa0\x80"], pa.binary()).view(pa.string())
    columns = {"body": pa.array([b"x"]), "topic": pa.array(["T"])}
    if column == "properties":
        columns[column] = pa.MapArray.from_arrays([0, 1], pa.array(["name"]), wrong)
    else:
        columns[column] = wrong
    with pytest.raises(ValueError, match=f"^row 0: column {column} is not UTF-8"):
        encoder(kernels).encode(pa.record_batch(columns))


def test_other_types_slices_and_missing_columns(kernels: Bodies) -> None:
    rows = random_rows(8, 90)
    whole = b"".join(stage(encoder(kernels, queues=1), batch(rows[10:60])))
    sliced = encoder(kernels, queues=1)
    assert b"".join(stage(sliced, batch(rows).slice(10, 50))) == whole
    wide = pa.table(batch(rows[10:60])).to_batches()[0]
    for name, kind in (("body", pa.large_binary()), ("tags", pa.large_string())):
        place = wide.schema.get_field_index(name)
        wide = wide.set_column(place, name, wide.column(place).cast(kind))
    assert b"".join(stage(encoder(kernels, queues=1), wide)) == whole
    text = pa.record_batch({"body": ["a", "é"]})
    binary = pa.record_batch({"body": [b"a", "é".encode()]})
    assert stage(encoder(kernels, topic="T"), text) == stage(encoder(kernels, topic="T"), binary)
    epoch = pa.record_batch({"body": [b"a"], "bornTimestamp": pa.array([-1], pa.int64())})
    time = pa.record_batch(
        {"body": [b"a"], "bornTimestamp": pa.array([-999], pa.timestamp("us", "UTC"))}
    )
    assert stage(encoder(kernels, topic="T"), epoch) == stage(encoder(kernels, topic="T"), time)


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"topic": ["T"]}, ValueError, "there is no column body"),
        ({"body": [b""], "colour": [1]}, ValueError, "takes no column 'colour'"),
        ({"body": [1]}, TypeError, "column body has the wrong Arrow type"),
        ({"body": [b""], "queueId": ["1"]}, TypeError, "column queueId has the wrong Arrow type"),
        (
            {"body": [b""], "properties": ["1"]},
            TypeError,
            "column properties has the wrong Arrow type",
        ),
        ({"body": [b""], "tags": [True]}, TypeError, "column tags has the wrong Arrow type"),
    ],
)
def test_columns_that_are_none_of_a_sink(
    kernels: Bodies, columns: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        encoder(kernels, topic="T").encode(pa.record_batch(columns))


def test_the_stage_is_taken_in_pieces(kernels: Bodies) -> None:
    rows = random_rows(9, 100)
    small = encoder(kernels, capacity=1000)
    pieces = stage(small, batch(rows))
    assert len(pieces) > 10
    assert b"".join(pieces) == b"".join(stage(encoder(kernels), batch(rows)))
    assert (small.waiting_nbytes, small.take()) == (0, b"")


def test_options_of_an_encoder_are_checked(kernels: Bodies) -> None:
    for options in (
        {"queues": 0},
        {"topic": "a b"},
        {"topic": ""},
        {"store_host": "nowhere"},
        {"max_message_size": -1},
        {"capacity": 0},
    ):
        with pytest.raises(ValueError, match=r"."):
            encoder(kernels, **options)


def test_a_tally_counts_what_fits_by_queue(kernels: Bodies) -> None:
    rows = [{"body": bytes(100), "topic": f"T{i % 3}", "queueId": i % 2} for i in range(60)]
    content = b"".join(stage(encoder(kernels), batch(rows)))
    size = len(content) // 60
    tally = kernels.staged_records.tally
    every = {(f"T{i % 3}", i % 2): 10 for i in range(6)}
    assert tally(content, 0, len(content), 0, 1 << 30) == (len(content), 60, every)
    assert tally(content, 0, len(content), 0, 7 * size + 8)[:2] == (7 * size, 7)
    assert tally(content, 0, len(content), 0, 7 * size + 7)[:2] == (6 * size, 6)
    part = content[5 * size :]
    assert tally(part, size, 3 * size, 5 * size, 1 << 30) == (
        3 * size,
        2,
        {("T0", 0): 1, ("T1", 1): 1},
    )
    with pytest.raises(ValueError, match="is past the"):
        tally(content, 0, len(content) + 1, 0, 1 << 30)


def test_what_is_no_stage_is_refused(kernels: Bodies) -> None:
    content = b"".join(stage(encoder(kernels), batch(ROWS[:5])))
    target, segment = appender(kernels)
    chance = random.Random(3)
    damaged: list[bytes] = [content[:-1], b"\0" * 64, content[1:], content + b"\1"]
    for _ in range(30):
        flipped = bytearray(content)
        flipped[chance.choice([4, 12, 20, 31])] ^= 0x81
        damaged.append(bytes(flipped))
    for wrong in damaged:
        with pytest.raises(DecodeError, match="the stage holds no record at position"):
            target.put_staged(wrong, 0)
        with pytest.raises(DecodeError, match="the stage holds no record at position"):
            kernels.staged_records.tally(wrong, 0, len(wrong), 0, 1 << 30)
    with pytest.raises(DecodeError, match="at position 4096: GHOST"):
        target.put_staged(content, 4096)
    assert target.write_position == 0
    assert not any(segment)
    assert target.put_staged(b"", 0).ok


@pytest.mark.parametrize("with_crc", [False, True])
def test_a_record_of_the_log_matches_its_staged_one_only(kernels: Bodies, with_crc: bool) -> None:
    rows = ROWS[:14]
    making = encoder(kernels, append_property_crc=with_crc, capacity=1)
    staged = stage(making, batch(rows))
    target, segment = appender(kernels, append_property_crc=with_crc)
    stored, position = [], 0
    for piece in staged:
        result = target.put_staged(piece, position)
        start = result.physical_offsets[0] - SIZE
        stored.append(bytes(segment[start : start + result.nbytes[0]]))
        position += len(piece)
    matches = kernels.staged_records.matches
    for i, piece in enumerate(staged):
        assert [matches(piece, record) for record in stored] == [i == j for j in range(len(rows))]
    chance = random.Random(4)
    for piece, record in zip(staged, stored, strict=True):
        for _ in range(40):
            flipped = bytearray(record)
            # Not its offsets, its store time, and the digits of its whole-record CRC.
            places = [*range(20), 36, 38, *range(40, 56), *range(64, len(record) - 12)]
            flipped[chance.choice(places)] ^= 1 << chance.randrange(8)
            assert not matches(piece, flipped)
    for wrong in (b"", b"\0" * 200, stored[0][:-1]):
        assert not matches(staged[0], wrong)
        assert not matches(wrong, stored[0])


def test_a_chunk_goes_to_the_log_in_its_order_and_counts_on(kernels: Bodies) -> None:
    rows = [{"body": b"%d" % i, "topic": "T", "queueId": i % 2} for i in range(2000)]
    target, _ = appender(kernels)
    target.set_next_queue_offset("T", 1, 500)
    content = b"".join(stage(encoder(kernels), batch(rows)))
    result = target.put_staged(content, 0)
    assert list(result.queue_offsets[0::2]) == list(range(1000))
    assert list(result.queue_offsets[1::2]) == list(range(500, 1500))
    assert list(result.physical_offsets) == sorted(result.physical_offsets)
