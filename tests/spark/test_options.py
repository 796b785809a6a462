"""What the options of a batch query select, without a session: the reader runs in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import rocketstore
from golden import golden_stores
from rocketstore.errors import ConfigError, CorruptMessageError, MappedFileError
from rocketstore.spark.base.options import parse_read
from rocketstore.spark.base.schema import resolve_schema, spark_schema
from rocketstore.spark.base.shipping import shipped_function
from rocketstore.spark.reading.scanning import _read
from rocketstore.spark.source import RocketStoreSource
from spark.read_locally import batches, source_of, table
from support import random_stores
from support.message_table import ALL, scanned
from support.own_process import run_python

pytestmark = pytest.mark.xdist_group("spark")


def chosen(found: pa.Table, mask: Any) -> pa.Table:
    return found.filter(mask)


def is_among(column: Any, *values: Any) -> Any:
    return pc.is_in(column, pa.array(values, column.type))


@pytest.mark.parametrize("nbytes", [997, 64 << 10])
@pytest.mark.parametrize("name", golden_stores.NAMES)
def test_golden_stores_are_read_whole(name: str, nbytes: int, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    expected = scanned(root, ALL)
    found = table(root, columns=",".join(ALL), maxPartitionBytes=nbytes)
    found.validate(full=True)
    assert found.equals(expected)


@pytest.mark.parametrize("nbytes", [299_993, 5_000_001, 256 << 20])
def test_a_random_store_is_read_whole(nbytes: int, random_store: Path, random_table: Any) -> None:
    assert table(random_store, maxPartitionBytes=nbytes).equals(random_table)


def test_kafkas_columns(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert table(root, columns="kafka").equals(scanned(root, names))
    found = table(root, columns="kafka", includeHeaders="true")
    assert found.equals(scanned(root, [*names, "headers"]))


# --- filters ----------------------------------------------------------------------------------


def test_topics(random_store: Path, random_table: Any) -> None:
    expected = chosen(random_table, is_among(random_table["topic"], "TopicB", "TopicD"))
    assert 0 < expected.num_rows < random_table.num_rows
    assert table(random_store, subscribe="TopicB,TopicD,None").equals(expected)
    assert table(random_store, subscribePattern="Topic[BD]").equals(expected)
    by_pattern = table(random_store, subscribePattern="Topic[BD]", columns="queueOffset")
    assert by_pattern.equals(expected.select(["queueOffset"]))
    assert table(random_store, subscribePattern="opicB").num_rows == 0
    assert table(random_store, subscribePattern="Topic.").equals(random_table)


def test_assigned_queues(random_store: Path, random_table: Any) -> None:
    topic, queue = random_table["topic"], random_table["queueId"]
    expected = chosen(
        random_table,
        pc.or_(
            pc.and_(pc.equal(topic, "TopicB"), is_among(queue, 1, 4)),
            pc.and_(pc.equal(topic, "TopicC"), pc.equal(queue, 0)),
        ),
    )
    assert expected.num_rows
    assign = json.dumps({"TopicB": [1, 4], "TopicC": [0], "None": [0]})
    assert table(random_store, assign=assign).equals(expected)


def test_tags(random_store: Path, random_table: Any) -> None:
    expected = chosen(random_table, is_among(random_table["tags"], "green", "größer"))
    assert expected.num_rows
    assert table(random_store, tags="green || größer").equals(expected)
    assert table(random_store, tags="*", maxPartitionBytes="1g").equals(random_table)
    assert table(random_store, tags="gre").num_rows == 0


def test_keys(random_store: Path, random_table: Any) -> None:
    found = table(random_store, keys="k77 k299999 k78 absent")
    assert found["keys"].to_pylist() == ["k77 common", "k299999 common"]
    expected = chosen(random_table, pc.is_valid(random_table["keys"]))
    assert table(random_store, keys="common").equals(expected)


def test_times(random_store: Path, random_table: Any) -> None:
    begin, end = random_stores.FIRST_TIME + 100, random_stores.FIRST_TIME + 400
    times = pc.cast(random_table["storeTimestamp"], pa.int64())
    expected = chosen(
        random_table,
        pc.and_(pc.greater_equal(times, begin * 1000), pc.less(times, end * 1000)),
    )
    assert 0 < expected.num_rows < random_table.num_rows
    # The offsets give way to the times.
    options = {"startingTimestamp": begin, "endingTimestamp": end, "endingOffsets": "latest"}
    assert table(random_store, **options).equals(expected)
    late = {"startingOffsets": json.dumps({"TopicB": {"1": 10**9}})}
    assert table(random_store, **options, **late).equals(expected)


@pytest.mark.parametrize("nbytes", [1_000_003, 256 << 20])
def test_physical_offsets(nbytes: int, random_store: Path, random_table: Any) -> None:
    start, stop = 4_000_001, 30_000_000
    offsets = random_table["physicalOffset"]
    expected = chosen(
        random_table, pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, stop))
    )
    found = table(
        random_store,
        startingPhysicalOffset=start,
        endingPhysicalOffset=stop,
        maxPartitionBytes=nbytes,
    )
    assert found.equals(expected)


def test_queue_offsets(random_store: Path, random_table: Any) -> None:
    topic, queue = random_table["topic"], random_table["queueId"]
    offset = random_table["queueOffset"]
    in_queue = pc.and_(pc.equal(topic, "TopicB"), pc.equal(queue, 1))
    read = pc.and_(in_queue, pc.and_(pc.greater_equal(offset, 100), pc.less(offset, 200)))
    whole = pc.and_(pc.equal(topic, "TopicB"), pc.equal(queue, 2))
    expected = chosen(random_table, pc.or_(read, whole))
    assert 100 < expected.num_rows < random_table.num_rows
    found = table(
        random_store,
        assign='{"TopicB": [1, 2]}',
        startingOffsets=json.dumps({"TopicB": {"1": 100, "2": -2}}),
        endingOffsets=json.dumps({"TopicB": {"broker-a": {"1": 200, "2": -1}}}),
    )
    assert found.equals(expected)


ONE = {"startingOffsets": '{"TopicB": {"1": 100}}'}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ONE, "startingOffsets omits queue . of .*subscribe.*assign"),
        ({**ONE, "subscribe": "TopicB"}, "omits queue . of 'TopicB'"),
        ({**ONE, "subscribePattern": "Topic.*"}, "omits queue"),
        ({**ONE, "assign": '{"TopicB": [1, 2]}'}, "omits queue 2 of 'TopicB'"),
        ({"endingOffsets": '{"TopicB": {"1": 100}}'}, "endingOffsets omits queue"),
        ({"startingOffsets": "{}"}, "startingOffsets omits queue"),
        ({"startingOffsets": '{"Nope": {"1": 1}}'}, "names queue 1 of 'Nope', which .* not have"),
        (
            {"subscribe": "Nope", "startingOffsets": '{"Nope": {"1": 1}}'},
            "names queue 1 of 'Nope', which .* not have",
        ),
        (
            {"assign": '{"TopicB": [99]}', "startingOffsets": '{"TopicB": {"99": 1}}'},
            "names queue 99 of 'TopicB'",
        ),
        (
            {**ONE, "assign": '{"TopicB": [1]}', "endingOffsets": '{"TopicB": {"1": 99}}'},
            "ends queue 1 of 'TopicB' at 99, before startingOffsets begins it at 100",
        ),
    ],
)
def test_offsets_name_the_queues_that_are_read(
    options: dict[str, str], message: str, random_store: Path
) -> None:
    # Offsets of one queue and no subscribe read all other topics whole: 937,510 of 1,000,000 rows
    # where 10 were asked for.
    with pytest.raises(ConfigError, match=message):
        table(random_store, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "cannot begin at the latest"),
        ({"startingOffsets": '{"TopicA": {"0": -1}}'}, "cannot begin at the latest"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"endingOffsets": '{"TopicA": {"0": -2}}'}, "cannot end at the earliest"),
        ({"maxOffsetsPerTrigger": 5}, "is for streams"),
        ({"maxBytesPerTrigger": 5}, "is for streams"),
        ({"columns": "topic,bdoy"}, "no column 'bdoy'; did you mean 'body'"),
        ({"columns": "topic,topic"}, "given twice"),
        ({"colums": "topic"}, "did you mean 'columns'"),
    ],
)
def test_what_a_batch_cannot_do_is_reported(
    options: dict[str, Any], message: str, random_store: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        table(random_store, **options)


# --- the plan ---------------------------------------------------------------------------------


def parts(root: Path, **options: Any) -> int:
    source = source_of(root, **options)
    return len(source.reader(source.schema()).partitions())


def test_partitions_follow_the_options(random_store: Path) -> None:
    files = len(list((random_store / "commitlog").iterdir()))
    assert parts(random_store) == files
    assert parts(random_store, maxPartitionBytes=6 << 20) == 2 * files
    nbytes = sum(path.stat().st_size for path in (random_store / "commitlog").iterdir())
    rows = random_stores.ROWS
    count = parts(random_store, maxRecordsPerPartition=10_000)
    assert 0.8 * rows / 10_000 < count < 1.6 * nbytes / (12 << 20) * rows / 10_000
    assert parts(random_store, endingTimestamp=1) == 0
    assert parts(random_store, startingPhysicalOffset=25 << 20) < files


def test_nothing_comes_of_no_part(random_store: Path) -> None:
    source = RocketStoreSource({"path": str(random_store)})
    reader = source.reader(source.schema())
    assert list(reader.read(None)) == []


def test_a_part_is_small_and_plain(random_store: Path) -> None:
    source = RocketStoreSource({"path": str(random_store), "maxpartitionbytes": "1m"})
    for part in source.reader(source.schema()).partitions():
        data = cloudpickle.dumps(part)
        assert len(data) < 300 + len(str(random_store))
        assert b"rocketstore" not in data.replace(str(random_store).encode(), b"")


def test_batches_keep_their_limits(random_store: Path) -> None:
    sizes = [batch.num_rows for batch in batches(random_store, batchRows=1000)]
    assert max(sizes) == 1000
    assert sum(sizes) == random_stores.ROWS
    found = list(batches(random_store, columns="body", batchBytes=100_000))
    assert max(batch.nbytes for batch in found) < 200_000
    assert min(sizes) > 0


def test_a_store_without_messages(tmp_path: Path) -> None:
    rocketstore.open(tmp_path / "store", "x").close()
    assert table(tmp_path / "store").num_rows == 0


# --- schemas ----------------------------------------------------------------------------------


def test_presets() -> None:
    source = RocketStoreSource({"path": "s"})
    assert source.schema().simpleString() == (
        "struct<topic:string,queueId:int,queueOffset:bigint,physicalOffset:bigint,tags:string,"
        "keys:string,body:binary,storeTimestamp:timestamp,bornTimestamp:timestamp>"
    )
    full = RocketStoreSource({"path": "s", "columns": "full"}).schema()
    assert full["properties"].dataType.simpleString() == "map<string,string>"
    headers = RocketStoreSource({"path": "s", "columns": "kafka", "includeheaders": "true"})
    assert headers.schema()["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )
    assert all(f.nullable for f in full.fields)


def test_an_unchecked_schema_says_so() -> None:
    assert spark_schema(["body"])["body"].metadata == {}
    source = RocketStoreSource({"path": "s", "checkcrc": "false"})
    assert {f.metadata["crc"] for f in source.schema().fields} == {"unchecked"}


def test_a_schema_of_the_users_own_wins(random_store: Path, random_table: Any) -> None:
    schema = StructType([StructField("body", BinaryType()), StructField("queueId", IntegerType())])
    found = pa.Table.from_batches(batches(random_store, schema, columns="kafka"))
    assert found.equals(random_table.select(["body", "queueId"]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([StructField("queueid", IntegerType())], "did you mean 'queueId'"),
        ([StructField("queueId", LongType())], "queueId as bigint; it is int"),
        ([StructField("body", StringType())], "body as string; it is binary"),
        ([StructField("body", BinaryType(), False)], "remove NOT NULL"),
        ([StructField("body", BinaryType())] * 2, "given twice"),
        ([], "no column"),
    ],
)
def test_a_wrong_schema_is_reported(fields: list[StructField], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_schema(StructType(fields))


# --- bad input --------------------------------------------------------------------------------


def damaged(random_bytes_at: int, root: Path) -> tuple[Path, Any]:
    random_stores.make(root, 2000, segment_nbytes=1 << 19)
    before = scanned(root, ALL)
    path = root / "commitlog" / "00000000000000000000"
    with path.open("r+b") as file:
        file.seek(random_bytes_at)
        byte = file.read(1)[0]
        file.seek(random_bytes_at)
        file.write(bytes([byte ^ 0xFF]))
    return path, before


@pytest.mark.parametrize("nbytes", [10_007, 1 << 20])
def test_damage_fails_is_skipped_or_stops(nbytes: int, tmp_path: Path) -> None:
    path, before = damaged(100_000, tmp_path / "store")
    offsets = before["physicalOffset"].to_pylist()
    hit = max(offset for offset in offsets if offset <= 100_000)
    options = {"columns": ",".join(ALL), "maxPartitionBytes": nbytes}
    with pytest.raises(CorruptMessageError) as failure:
        table(tmp_path / "store", **options)
    assert (failure.value.path, failure.value.position) == (str(path), hit)
    skipped = table(tmp_path / "store", onCorruption="skip", **options)
    good = chosen(before, pc.not_equal(before["physicalOffset"], hit))
    assert skipped.equals(good)
    stopped = table(tmp_path / "store", onCorruption="stop", columns=",".join(ALL))
    assert stopped.equals(chosen(before, pc.less(before["physicalOffset"], hit)))


def test_unchecked_bodies_are_read_as_they_are(tmp_path: Path) -> None:
    root = tmp_path / "store"
    random_stores.make(root, 10)
    with rocketstore.open(root) as store:
        first = next(store.scan())
        at = bytes(first.raw).index(first.body)
    with (root / "commitlog" / "00000000000000000000").open("r+b") as file:
        file.seek(at)
        file.write(b"\xff\xfe\xfd\xfc")
    with pytest.raises(CorruptMessageError, match="CRC"):
        table(root)
    assert table(root, checkCrc="false").num_rows == 10


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    with pytest.raises((FileNotFoundError, MappedFileError), match="absent"):
        table(tmp_path / "absent")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises((FileNotFoundError, MappedFileError), match="other"):
        table(tmp_path / "other")
    (tmp_path / "file").write_text("x")
    with pytest.raises((OSError, MappedFileError), match="file"):
        table(tmp_path / "file")


def test_dledger_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "dledger-n0" / "data"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(bytes(4096))
    with pytest.raises(MappedFileError, match="DLedger"):
        table(tmp_path / "store")


def test_a_file_that_goes_away_is_named(tmp_path: Path) -> None:
    root = tmp_path / "store"
    random_stores.make(root, 100)
    source = RocketStoreSource({"path": str(root)})
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    (root / "commitlog" / "00000000000000000000").unlink()
    with pytest.raises((FileNotFoundError, MappedFileError), match="00000000000000000000"):
        list(reader.read(part))


# --- data loss --------------------------------------------------------------------------------


def shortened(root: Path) -> int:
    """Make a store whose first segment was deleted; return where the log begins now."""
    random_stores.make(root, 10_000, segment_nbytes=1 << 20)
    logs = sorted((root / "commitlog").iterdir())
    first, second = logs[:2]
    first.unlink()
    assert len(logs) > 1
    return int(second.name)


def test_lost_messages_fail_by_default(tmp_path: Path) -> None:
    root = tmp_path / "store"
    begin = shortened(root)
    expected = scanned(root, ["physicalOffset"])
    assert expected["physicalOffset"][0].as_py() == begin
    whole = table(root, columns="physicalOffset")
    assert whole.equals(expected)
    asked = {"startingPhysicalOffset": 0, "columns": "physicalOffset"}
    with pytest.raises(MappedFileError, match=f"begins at {begin}.*failOnDataLoss"):
        table(root, **asked)
    assert table(root, **asked, failOnDataLoss="false").equals(expected)
    asked = {"assign": '{"TopicB": [1]}', "columns": "physicalOffset"}
    for first in (0, 1):
        asked["startingOffsets"] = f'{{"TopicB": {{"1": {first}}}}}'
        with pytest.raises(
            MappedFileError, match=rf"asks for {first} of queue 1 of 'TopicB'.*begi"
        ):
            table(root, **asked)
        assert 0 < table(root, **asked, failOnDataLoss="false").num_rows < expected.num_rows
    asked["startingOffsets"] = '{"TopicB": {"1": -2}}'
    assert 0 < table(root, **asked).num_rows < expected.num_rows
    asked["startingOffsets"] = '{"TopicB": {"1": 1000000}}'
    with pytest.raises(MappedFileError, match=r"asks for 1000000 of queue 1.*ends at 333"):
        table(root, **asked)
    assert table(root, **asked, failOnDataLoss="false").num_rows == 0


# --- what travels -----------------------------------------------------------------------------


def test_options_travel() -> None:
    options = parse_read({"path": "s", "assign": '{"A": [0]}', "storageoptions": '{"a": 1}'})
    assert cloudpickle.loads(cloudpickle.dumps(options)) == options


_WITHOUT = """
import pickle, sys
sys.modules["rocketstore"] = None
for _ in range(4):
    try:
        pickle.load(sys.stdin.buffer)(())
    except ImportError as error:
        print(error)
"""


def test_a_missing_wheel_is_reported(random_store: Path) -> None:
    source = source_of(random_store)
    options = parse_read(source.options)
    call = shipped_function(_read, options, ("topic",), b"")
    things = (source, source.reader(source.schema()), options, call)
    found = subprocess.run(
        [sys.executable, "-c", _WITHOUT],
        input=b"".join(map(cloudpickle.dumps, things)),
        capture_output=True,
        timeout=120,
        check=False,
    )
    reported = found.stdout.decode().splitlines()
    assert len(reported) == 4, found.stderr
    assert all("Every executor needs the rocketstore wheel" in line for line in reported)


def test_discovery_imports_nothing_of_rocketstore() -> None:
    program = (
        "import sys, pyspark_rocketstore as p\n"
        "print(p.DefaultSource.name(), any(m.split('.')[0] == 'rocketstore' for m in sys.modules))"
    )
    assert run_python(program).stdout.split() == ["rocketstore", "False"]


def test_discovery_never_raises() -> None:
    program = (
        "import sys\nsys.modules['pyspark'] = None\nimport pyspark_rocketstore\n"
        "sys.modules['rocketstore'] = None\nprint('fine')"
    )
    assert run_python(program).stdout.split() == ["fine"]


def test_the_package_is_imported_without_pyspark() -> None:
    program = (
        "import sys, rocketstore.spark\n"
        "print(any(m in sys.modules for m in ('pyspark', 'pyarrow', 'pandas')))\n"
        "print('scan' in dir(rocketstore.spark))"
    )
    assert run_python(program).stdout.split() == ["False", "True"]


def test_no_module_hides_the_name_it_holds() -> None:
    program = (
        "import rocketstore.spark as s, importlib, inspect\n"
        "for name, module in s._PUBLIC.items():\n"
        "    importlib.import_module(f'rocketstore.spark.{module}')\n"
        "print([n for n in s._PUBLIC if inspect.ismodule(getattr(s, n))])"
    )
    found = run_python(program)
    assert found.stdout.split() == ["[]"], found.stderr
