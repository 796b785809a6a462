"""``format("rocketstore")`` and ``scan`` in a session."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import rocketstore
from golden import golden_stores
from rocketstore.arrow.columns import resolve
from rocketstore.errors import ConfigError, FilterSyntaxError, MappedFileError
from rocketstore.spark import export_parquet, register, replay, scan
from support import random_stores
from support.message_table import ALL, scanned

pytestmark = pytest.mark.xdist_group("spark")


def arrow(frame: Any) -> pa.Table:
    """The rows of a DataFrame in the order of its partitions, without what Spark notes aside."""
    found = frame.toArrow()
    return pa.table(found.columns, schema=pa.schema([f.remove_metadata() for f in found.schema]))


def load(spark: Any, root: Path | str, **options: Any) -> Any:
    return spark.read.format("rocketstore").options(**options).load(str(root))


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Whether tables are equal; Spark's name their time zone and maps' parts in its own way."""
    return found.cast(expected.schema).equals(expected)


# --- whole stores -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden_stores.names("broker-5.5", "crash-5", "plain-5.3"))
def test_golden_stores_are_read_whole(name: str, tmp_path: Path, spark: Any) -> None:
    root = golden_stores.unpack(name, tmp_path)
    expected = scanned(root, ALL)
    by_scan = scan(spark, root, columns=ALL, split_bytes=50_000)
    assert same(arrow(by_scan), expected)
    assert by_scan.rdd.getNumPartitions() > 1
    by_source = load(spark, root, columns=",".join(ALL), maxPartitionBytes=60_000)
    assert same(arrow(by_source), expected)


@pytest.mark.parametrize("nbytes", [4_999_999, 256 << 20])
def test_a_random_store_is_read_whole(
    nbytes: int, random_store: Path, random_table: pa.Table, spark: Any
) -> None:
    assert same(arrow(load(spark, random_store, maxPartitionBytes=nbytes)), random_table)
    assert same(arrow(scan(spark, random_store, split_bytes=nbytes)), random_table)


def test_counts_and_groups(random_store: Path, random_table: pa.Table, spark: Any) -> None:
    frame = load(spark, random_store, columns="topic,tags")
    assert frame.count() == random_stores.ROWS
    found = {
        (row.topic, row.tags): row["count"]
        for row in frame.groupBy("topic", "tags").count().collect()
    }
    groups = random_table.group_by(["topic", "tags"]).aggregate([([], "count_all")])
    assert found == {(r["topic"], r["tags"]): r["count_all"] for r in groups.to_pylist()}


def test_a_store_without_messages(tmp_path: Path, spark: Any) -> None:
    rocketstore.open(tmp_path / "store", "x").close()
    assert load(spark, tmp_path / "store").collect() == []
    assert scan(spark, tmp_path / "store").collect() == []


# --- options, schemas, SQL --------------------------------------------------------------------


def test_filters_reach_the_reader(random_store: Path, random_table: pa.Table, spark: Any) -> None:
    expected = random_table.filter(
        pc.and_(pc.equal(random_table["topic"], "TopicB"), pc.equal(random_table["tags"], "red"))
    )
    options = {"subscribe": "TopicB", "tags": "red", "columns": "core"}
    assert same(arrow(load(spark, random_store, **options)), expected)
    assert same(arrow(scan(spark, random_store, topics="TopicB", tags=["red"])), expected)
    assert load(spark, random_store, keys="k77").count() == 1
    assert scan(spark, random_store, keys=["k77", "k79"], columns="queueId").count() == 2
    times = {"begin": random_stores.FIRST_TIME + 1, "end": random_stores.FIRST_TIME + 5}
    rows = scan(spark, random_store, columns=["storeTimestamp"], **times).distinct().count()
    assert 1 <= rows <= 4
    part = {"start": 1_000_000, "stop": 3_000_000}
    offsets = pc.field("physicalOffset")
    between = random_table.filter((offsets >= part["start"]) & (offsets < part["stop"]))
    found = scan(spark, random_store, batch_rows=100, min_partitions=3, **part)
    assert same(arrow(found), between)


def test_kafkas_columns(tmp_path: Path, spark: Any) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    names = resolve("kafka", include_properties=True)
    frame = load(spark, root, columns="kafka", includeHeaders="true")
    assert frame.columns == names
    assert same(arrow(frame), scanned(root, names))
    text = frame.selectExpr("CAST(value AS STRING) AS text", "headers[0].key AS name")
    assert text.count() == scanned(root, ["topic"]).num_rows


def test_a_schema_of_the_users_own(random_store: Path, random_table: pa.Table, spark: Any) -> None:
    read = spark.read.format("rocketstore").schema("body binary, queueId int")
    found = arrow(read.load(str(random_store)))
    assert same(found, random_table.select(["body", "queueId"]))
    wrong = spark.read.format("rocketstore").schema("queueId bigint").load(str(random_store))
    with pytest.raises(PySparkException, match="queueId as bigint; it is int"):
        wrong.count()


def test_times_are_instants_in_any_zone(random_store: Path, spark: Any) -> None:
    first = random_stores.FIRST_TIME + 1
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for name in ("UTC", "Asia/Tokyo"):
            spark.conf.set("spark.sql.session.timeZone", name)
            for frame in (load(spark, random_store), scan(spark, random_store)):
                least = frame.agg(sf.unix_millis(sf.min("storeTimestamp"))).first()[0]
                assert first <= least < first + 5
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_unchecked_columns_say_so(random_store: Path, spark: Any) -> None:
    frame = load(spark, random_store, checkCrc="false", columns="body")
    assert frame.schema["body"].metadata == {"crc": "unchecked"}
    assert frame.count() == random_stores.ROWS
    frame = scan(spark, random_store, check_crc=False, columns="body")
    assert frame.schema["body"].metadata == {"crc": "unchecked"}
    assert load(spark, random_store).schema["body"].metadata == {}


def test_sql(random_store: Path, random_table: pa.Table, spark: Any) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW source_sql_messages USING rocketstore "
        f"OPTIONS (path '{random_store}', columns 'topic,queueId,body', subscribe 'TopicA')"
    )
    (row,) = spark.sql(
        "SELECT count(*) AS messages, sum(octet_length(body)) AS bytes FROM source_sql_messages "
        "WHERE queueId = 2"
    ).collect()
    mine = random_table.filter((pc.field("topic") == "TopicA") & (pc.field("queueId") == 2))
    assert row.messages == mine.num_rows
    assert row.bytes == sum(map(len, mine["body"].to_pylist()))


def test_a_table_of_the_catalog_is_refused(random_store: Path, spark: Any) -> None:
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(
            f"CREATE TABLE source_sql_table USING rocketstore OPTIONS (path '{random_store}')"
        )


# --- errors are reported ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscibe": "A"}, "did you mean 'subscribe'"),
        ({"onCorruption": "ignore"}, "one of fail, skip, stop"),
        ({"columns": "bdoy"}, "did you mean 'body'"),
        ({"startingOffsets": "latest"}, "cannot begin at the latest"),
    ],
)
def test_wrong_options(
    options: dict[str, str], message: str, random_store: Path, spark: Any
) -> None:
    with pytest.raises(PySparkException, match=message):
        load(spark, random_store, **options).count()


def test_no_store_and_dledger(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    log = tmp_path / "ledger" / "dledger-n0" / "data"
    log.mkdir(parents=True)
    (log / "00000000000000000000").write_bytes(bytes(4096))
    for name, message in (("absent", "absent"), ("other", "other"), ("ledger", "DLedger")):
        with pytest.raises(PySparkException, match=message):
            load(spark, tmp_path / name).count()
        with pytest.raises((FileNotFoundError, MappedFileError), match=message):
            scan(spark, tmp_path / name)


def test_damage(tmp_path: Path, spark: Any) -> None:
    root = tmp_path / "store"
    random_stores.make(root, 2000, segment_nbytes=1 << 19)
    expected = scanned(root, resolve("core"))
    hit = expected["physicalOffset"][1000].as_py()
    path = root / "commitlog" / "00000000000000000000"
    with path.open("r+b") as file:
        file.seek(hit + 4)
        file.write(b"\xff")
    good = expected.filter(pc.field("physicalOffset") != hit)
    for read in (
        lambda policy: load(spark, root, onCorruption=policy, maxPartitionBytes=60_001),
        lambda policy: scan(spark, root, on_corruption=policy, split_bytes=60_001),
    ):
        with pytest.raises(PySparkException, match=f"{path} at position {hit}"):
            read("fail").count()
        assert same(arrow(read("skip")), good)
    stopped = arrow(load(spark, root, onCorruption="stop"))
    assert same(stopped, expected.slice(0, 1000))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_corruption": "ignore"}, "one of fail, skip, stop"),
        ({"split_bytes": 0}, "split_bytes is 0"),
        ({"columns": "bdoy"}, "did you mean 'body'"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"batch_bytes": 1 << 40}, "batch_bytes"),
        ({"min_partitions": 0}, "min_partitions"),
    ],
)
def test_wrong_arguments_of_scan(
    arguments: dict[str, Any], message: str, random_store: Path, spark: Any
) -> None:
    with pytest.raises(ValueError, match=message):
        scan(spark, random_store, **arguments)
    with pytest.raises(TypeError, match="topics"):
        scan(spark, random_store, topics=[1])  # type: ignore[list-item]


# --- filters that Spark hands down ------------------------------------------------------------


@pytest.fixture
def pushing(spark: Any) -> Any:
    session = spark.newSession()
    register(session, filters=True)
    return session


def test_filters_handed_down_change_no_answer(
    random_store: Path, random_table: pa.Table, pushing: Any
) -> None:
    first = datetime.datetime.fromtimestamp(random_stores.FIRST_TIME / 1000, datetime.UTC)
    at = first + datetime.timedelta(milliseconds=300)
    cases = {
        "topic = 'TopicB'": pc.field("topic") == "TopicB",
        "topic IN ('TopicB', 'None') AND tags = 'red'": (pc.field("topic") == "TopicB")
        & (pc.field("tags") == "red"),
        "keys = 'k77 common'": pc.field("keys") == "k77 common",
        "physicalOffset > 5000000 AND physicalOffset <= 20000000": (
            pc.field("physicalOffset") > 5_000_000
        )
        & (pc.field("physicalOffset") <= 20_000_000),
        f"storeTimestamp >= timestamp '{at.isoformat()}' AND tags IS NULL": (
            pc.field("storeTimestamp") >= pa.scalar(at, pa.timestamp("us", "UTC"))
        )
        & pc.field("tags").is_null(),
        "topic = 'TopicA' AND topic = 'TopicB'": pc.scalar(False),
    }
    for condition, expected in cases.items():
        found = arrow(load(pushing, random_store).where(condition))
        assert same(found, random_table.filter(expected)), condition


def test_filters_are_asked_for_by_name(random_store: Path, spark: Any) -> None:
    session = spark.newSession()
    register(session)
    frame = load(session, random_store)
    assert frame.where("topic = 'TopicB'").count() < frame.count() == random_stores.ROWS


class OldSession:
    version = "4.0.1"


def test_an_old_spark_has_no_filters() -> None:
    with pytest.raises(ConfigError, match=r"4\.1 or later, not 4\.0\.1"):
        register(OldSession(), filters=True)  # type: ignore[arg-type]


# --- SQL filters ------------------------------------------------------------------------------

EXPRESSION = "TAGS IN ('red', 'blue') AND trace IS NOT NULL OR KEYS = 'k7 common'"


def test_a_filter_is_evaluated_in_the_scan(random_store: Path, spark: Any, tmp_path: Path) -> None:
    made = rocketstore.Sql92Filter(EXPRESSION)
    with rocketstore.open(random_store, derive="none") as store:
        wanted = [message.physical_offset for message in store.scan(filter=made)]
    assert 1000 < len(wanted) < random_stores.ROWS // 10
    options = {"columns": "physicalOffset", "maxPartitionBytes": 4_999_999}
    by_source = load(spark, random_store, filter=EXPRESSION, **options)
    assert arrow(by_source).column(0).to_pylist() == wanted
    for given in (EXPRESSION, made):
        by_scan = scan(spark, random_store, filter=given, columns="physicalOffset")
        assert arrow(by_scan).column(0).to_pylist() == wanted
    # Other options, and Spark's own conditions, apply beside it.
    both = load(spark, random_store, filter=EXPRESSION, subscribe="TopicA", columns="topic,tags")
    with rocketstore.open(random_store, derive="none") as store:
        red = sum(m.tags == "red" for m in store.scan(topics=["TopicA"], filter=made))
    assert both.where("tags = 'red'").count() == red > 0
    rows = replay(spark, random_store, filter=EXPRESSION, topics="TopicB").count()
    files = export_parquet(
        spark, str(random_store), str(tmp_path / "out"), filter=EXPRESSION, topics="TopicB"
    ).collect()
    assert sum(file["rows"] for file in files) == rows > 0


@pytest.mark.parametrize("expression", ["n >", "(" * 20_000, "n = 1 #", "\ud800"])
def test_a_bad_filter_is_refused_before_any_job(
    random_store: Path, spark: Any, tmp_path: Path, expression: str
) -> None:
    with pytest.raises(FilterSyntaxError):
        scan(spark, random_store, filter=expression)
    with pytest.raises(FilterSyntaxError):
        replay(spark, random_store, filter=expression)
    with pytest.raises(FilterSyntaxError):
        export_parquet(spark, str(random_store), str(tmp_path / "out"), filter=expression)
    assert not (tmp_path / "out").exists()
    if expression.isascii():  # others do not reach Java
        with pytest.raises(PySparkException, match="filter: "):
            load(spark, random_store, filter=expression)
