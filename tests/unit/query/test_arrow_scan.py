"""``scan_arrow`` shows what ``scan`` shows: golden, damaged and growing stores, all policies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import rocketstore
from golden import golden_stores
from rocketstore.arrow.columns import arrow_schema
from rocketstore.arrow.reading import read_batches
from rocketstore.display.columns import CORE
from rocketstore.errors import CorruptMessageError, StoreClosedError
from rocketstore.sources import list_log, plan_splits
from rocketstore.status import RecordStatus
from support.message_table import ALL, FIELDS, table_of

#: Small segments, and messages enough for some of them.
SEGMENT_NBYTES = 32 * 1024
COUNT = 400


def _messages(count: int, seed: int = 1) -> Iterator[rocketstore.Message]:
    random = Random(seed)
    for number in range(count):
        message = rocketstore.Message(
            random.choice(("TopicA", "TopicB", "TopicC")),
            random.randbytes(random.choice((0, 10, 400))),
            queue_id=number % 3,
            properties={"n": str(number)} if number % 4 else {},
            born_timestamp=1_600_000_000_000 + number,
        )
        message.tags = random.choice((None, "red", "grün"))
        message.keys = f"k{number} all" if number % 2 else None
        yield message


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rocketstore.DefaultMessageStore]:
    """A writable store of some segments; its clock goes on by 1 ms at every look."""
    now = 1_700_000_000_000

    def clock() -> int:
        nonlocal now
        now += 1
        return now

    with rocketstore.open(
        tmp_path / "store",
        "x",
        clock=clock,
        mapped_file_size_commit_log=SEGMENT_NBYTES,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=50,
        max_index_num=200,
    ) as opened:
        messages = list(_messages(COUNT))
        for first in range(0, COUNT, 10):  # a batch is stored at one time
            assert all(result.ok for result in opened.put_many(messages[first : first + 10]))
        yield opened


def _same(store: rocketstore.DefaultMessageStore, **arguments: Any) -> pa.Table:
    """The rows of ``scan_arrow``, which are those of ``scan``."""
    expected = table_of(store.scan(**arguments), ALL)
    table = pa.table(store.scan_arrow(list(ALL), batch_rows=100, **arguments))
    table.validate(full=True)
    for name in ALL:
        assert table.column(name).equals(expected.column(name)), name
    return table


@pytest.mark.parametrize("name", golden_stores.NAMES)
def test_golden_stores(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        assert _same(store, on_corruption="skip").num_rows > 0
        kafka = ["key", "value", "partition", "offset", "timestamp", "timestampType", "headers"]
        expected = table_of(store.scan(on_corruption="skip"), kafka)
        assert pa.table(store.scan_arrow(kafka, on_corruption="skip")).equals(expected)


def test_an_open_store_up_to_its_end_when_asked(store: rocketstore.DefaultMessageStore) -> None:
    scan = store.scan_arrow(batch_rows=64)
    before = table_of(store.scan(), CORE)
    assert all(result.ok for result in store.put_many(_messages(100, seed=2)))
    for _ in range(2):  # as often as one likes
        assert pa.Table.from_batches(scan).equals(before)
    assert pa.table(scan).equals(before)
    assert before.num_rows == COUNT
    assert _same(store).num_rows == COUNT + 100


def test_ranges_of_the_log(store: rocketstore.DefaultMessageStore) -> None:
    messages = [m.detach() for m in store.scan()]
    end = messages[-1].physical_offset + messages[-1].store_size
    for first in range(0, COUNT, 61):
        start = messages[first].physical_offset
        for stop in (start, start + 1, start + 5000, messages[-1].physical_offset, end - 1, end):
            _same(store, start=start, stop=stop)
    assert _same(store, start=end + 10**9, stop=None).num_rows == 0
    with pytest.raises(ValueError, match="no record begins at log offset"):
        store.scan_arrow(start=messages[5].physical_offset + 1)


def test_filters(store: rocketstore.DefaultMessageStore) -> None:
    messages = list(store.scan())
    times = [m.store_timestamp for m in messages]
    table = _same(store, topics=["TopicB", "TopicC"], begin=times[20], end=times[300])
    assert 0 < table.num_rows < 280

    def offsets(**limits: Any) -> list[int]:
        return pa.table(store.scan_arrow(["physicalOffset"], **limits))[0].to_pylist()

    assert offsets(tags=iter(["red"])) == [m.physical_offset for m in messages if m.tags == "red"]
    assert offsets(keys=["k7"]) == [messages[7].physical_offset]
    assert offsets(keys=["all"]) == [m.physical_offset for m in messages[1::2]]
    queue = {("TopicA", 0): (3, 9)}
    assert offsets(queue_ids={"TopicA": [0]}, start_offsets=queue) == [
        m.physical_offset
        for m in messages
        if (m.topic, m.queue_id) == ("TopicA", 0) and 3 <= m.queue_offset < 9
    ]


def _flip(store_root: Path, offset: int, change: Callable[[int], int]) -> None:
    path = store_root / "commitlog" / f"{offset - offset % SEGMENT_NBYTES:020d}"
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT_NBYTES)
        byte = file.read(1)[0]
        file.seek(offset % SEGMENT_NBYTES)
        file.write(bytes([change(byte)]))


def _outcome(read: Callable[[], Iterator[Any]]) -> tuple[list[int], str]:
    """Offsets until the end or the error, and the error."""
    offsets: list[int] = []
    try:
        for found in read():
            if isinstance(found, pa.RecordBatch):
                offsets += found.column("physicalOffset").to_pylist()
            else:
                offsets.append(found.physical_offset)
    except CorruptMessageError as error:
        return offsets, str(error)
    return offsets, ""


@pytest.mark.parametrize("seed", range(6))
def test_damaged_stores(seed: int, store: rocketstore.DefaultMessageStore) -> None:
    random = Random(seed)
    messages = [m.detach() for m in store.scan()]
    root = Path(store.path)
    store.close()
    for message in random.sample(messages, 5):
        at = message.physical_offset + random.randrange(message.store_size)
        _flip(root, at, lambda byte: byte ^ (1 << random.randrange(8)))
    for message in random.sample([m for m in messages if "n" in m.properties], 2):
        at = message.physical_offset + bytes(message.raw).rindex(b"n\x01") + 2
        _flip(root, at, lambda byte: 0)  # NULs in properties are good, or not
    with rocketstore.open(root) as reader:
        for policy in ("skip", "stop", "fail"):
            expected = _outcome(lambda policy=policy: reader.scan(on_corruption=policy))
            for rows in (1, 64, 8192):
                scan = reader.scan_arrow(["physicalOffset"], on_corruption=policy, batch_rows=rows)
                assert _outcome(scan.__iter__) == expected, (policy, rows)
        assert _same(reader, on_corruption="skip").num_rows > COUNT // 2


@pytest.mark.parametrize("policy", ["skip", "stop", "fail"])
def test_damage_that_recovery_found(policy: str, store: rocketstore.DefaultMessageStore) -> None:
    """Records that pass the check although recovery knows better: torn, or not where they seem."""
    messages = [m.detach() for m in store.scan()]
    root = Path(store.path)
    store.close()
    named = [m for m in messages if "n" in m.properties]
    torn = named[40]
    _flip(root, torn.physical_offset + bytes(torn.raw).rindex(b"n\x01") + 2, lambda byte: 0)
    with rocketstore.open(root) as reader:
        log = reader.reader.log
        # The first is sound: what recovery says counts only where the check has doubts, too.
        log.damage = {
            named[7].physical_offset: RecordStatus.BAD_BODY_CRC,
            torn.physical_offset: RecordStatus.NUL_PROPERTIES,
            messages[-1].physical_offset + 10**9: RecordStatus.EMPTY,
        }
        expected = _outcome(lambda: reader.scan(on_corruption=policy))
        assert torn.physical_offset not in expected[0]
        assert len(expected[0]) == (COUNT - 1 if policy == "skip" else messages.index(torn))
        assert bool(expected[1]) == (policy == "fail")
        for rows in (1, 8192):
            scan = reader.scan_arrow(["physicalOffset"], on_corruption=policy, batch_rows=rows)
            assert _outcome(scan.__iter__) == expected


def test_bodies_are_checked_by_default(store: rocketstore.DefaultMessageStore) -> None:
    bodies = [m.detach() for m in store.scan() if m.body]
    _flip(Path(store.path), bodies[3].physical_offset + 100, lambda byte: byte ^ 1)
    with pytest.raises(CorruptMessageError, match="BAD_BODY_CRC"):
        list(store.scan_arrow())
    assert pa.table(store.scan_arrow(check_crc=False)).num_rows == COUNT


def test_a_consumer_that_knows_only_the_interface(store: rocketstore.DefaultMessageStore) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    scan = store.scan_arrow(["topic", "queueOffset", "body", "properties", "physicalOffset"])
    expected = pa.table(scan)
    frame = polars.DataFrame(scan)
    assert frame.height == COUNT
    assert frame["queueOffset"].to_list() == expected["queueOffset"].to_pylist()
    assert frame["body"].to_list() == expected["body"].to_pylist()
    assert frame["topic"].to_list() == expected["topic"].to_pylist()
    counted = duckdb.sql("SELECT topic, count(*) FROM scan GROUP BY topic").fetchall()
    topics = expected["topic"].to_pylist()
    assert dict(counted) == {topic: topics.count(topic) for topic in set(topics)}
    found = duckdb.sql("SELECT properties['n'] FROM scan ORDER BY physicalOffset").fetchall()
    assert [row[0] for row in found] == [
        dict(row).get("n") for row in expected["properties"].to_pylist()
    ]


def test_an_error_reaches_every_consumer(store: rocketstore.DefaultMessageStore) -> None:
    first = next(m.detach() for m in store.scan() if m.body)
    _flip(Path(store.path), first.physical_offset + 100, lambda byte: byte ^ 1)
    with pytest.raises(CorruptMessageError):
        list(store.scan_arrow())
    with pytest.raises((OSError, CorruptMessageError), match="BAD_BODY_CRC"):
        pa.table(store.scan_arrow())


@pytest.mark.parametrize("split_bytes", [3000, 1 << 20])
def test_splits(split_bytes: int, store: rocketstore.DefaultMessageStore) -> None:
    expected = table_of(store.scan(), ALL)
    splits = plan_splits(list_log(store.path), split_bytes=split_bytes)
    batches = [b for split in splits for b in read_batches(split, list(ALL), batch_rows=50)]
    assert all(0 < batch.num_rows <= 50 for batch in batches)
    assert pa.Table.from_batches(batches).equals(expected)
    tagged = [b for split in splits for b in read_batches(split, "tags, keys", tags=["grün"])]
    assert pa.Table.from_batches(tagged)["tags"].to_pylist() == ["grün"] * sum(
        tags == "grün" for tags in expected["tags"].to_pylist()
    )


def test_wrong_arguments(store: rocketstore.DefaultMessageStore) -> None:
    with pytest.raises(ValueError, match="did you mean 'body'"):
        store.scan_arrow("boddy")
    with pytest.raises(ValueError, match=r"on_corruption must be one of .*'ignore'"):
        store.scan_arrow(on_corruption="ignore")
    with pytest.raises(TypeError, match="topics must be a sequence"):
        store.scan_arrow(topics="TopicA")
    with pytest.raises(TypeError, match="start must be int"):
        store.scan_arrow(start="0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batchrows"):
        store.scan_arrow(batchrows=5)
    store.close()
    with pytest.raises(StoreClosedError):
        store.scan_arrow()


def test_schema_and_representation(store: rocketstore.DefaultMessageStore) -> None:
    scan = store.scan_arrow("core")
    assert scan.schema == pa.schema(scan) == arrow_schema(CORE)
    assert repr(scan) == f"ArrowScan({', '.join(CORE)})"
    assert set(FIELDS) >= set(ALL)


def test_a_stream_needs_no_pyarrow(store: rocketstore.DefaultMessageStore) -> None:
    program = (
        "import sys, rocketstore\n"
        f"with rocketstore.open({str(store.path)!r}) as store:\n"
        "    print(store.scan_arrow().__arrow_c_stream__())\n"
        "assert 'pyarrow' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ROCKETSTORE_KERNELS": "native"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "arrow_array_stream" in done.stdout
