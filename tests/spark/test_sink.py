"""The sink in a Spark session: batches, streams, retries; each row once."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

import rocketstore
from rocketstore import formats
from rocketstore.spark.sink.writer import StagedStreamWriter
from support import staging

pytestmark = pytest.mark.xdist_group("spark")
UTC = datetime.UTC


def save(df: Any, root: Path, **options: Any) -> None:
    """Append the table to the store."""
    df.write.format("rocketstore").options(**options).mode("append").save(str(root))


def small_store(root: Path) -> Path:
    """An empty store whose files are small; the sink goes on as it finds it."""
    rocketstore.open(root, "a", **staging.OPTIONS).close()
    return root


def stored(root: Path) -> list[Any]:
    """The messages of a store that verifies."""
    with rocketstore.open(root) as store:
        assert not store.verify().findings
        return list(store.scan())


def left_in_stage(root: Path) -> list[Path]:
    """What lies in the stage."""
    folder = root / formats.SPARK_DIR / "stage"
    return list(folder.rglob("*.seg")) if folder.exists() else []


def test_what_a_source_read_can_be_written(spark: Any, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "from", "a", **staging.OPTIONS) as store:
        for number in range(20):
            store.put("T", b"%d" % number, number % 3, "A", ["k", f"k{number}"], unique_key=True)
    table = spark.read.format("rocketstore").option("columns", "full").load(str(tmp_path / "from"))
    columns = ("topic", "queueId", "tags", "keys", "properties", "flag", "bornTimestamp", "body")
    save(table.select(*columns).coalesce(1), small_store(tmp_path / "to"))
    assert [
        (one.topic, one.queue_id, one.body, one.properties) for one in stored(tmp_path / "to")
    ] == [(one.topic, one.queue_id, one.body, one.properties) for one in stored(tmp_path / "from")]


def test_a_table_without_rows_makes_an_empty_store(spark: Any, tmp_path: Path) -> None:
    save(spark.createDataFrame([], "body string"), tmp_path / "new", topic="T")
    assert stored(tmp_path / "new") == []
    assert spark.read.format("rocketstore").load(str(tmp_path / "new")).count() == 0


def test_all_columns_become_messages(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    born = datetime.datetime(2024, 2, 29, 12, 30, 15, 123_456, tzinfo=UTC)
    table = spark.createDataFrame(
        [
            ("T1", b"one", "A", "k1 k2", 2, {"x": "1", "y": "ü"}, 7, born, None),
            ("T2", b"two", None, None, None, None, None, None, None),
            ("T1", b"late", "B", None, 1, {}, None, None, 3),
        ],
        "topic string, body binary, tags string, keys string, queueId bigint, "
        "properties map<string,string>, flag smallint, bornTimestamp timestamp, delayLevel int",
    ).coalesce(1)
    save(table, root)
    one, two, late = stored(root)
    assert (one.topic, one.body, one.tags, one.keys, one.queue_id, one.flag) == (
        *("T1", b"one", "A", "k1 k2", 2, 7),
    )
    assert one.properties == {"x": "1", "y": "ü", "TAGS": "A", "KEYS": "k1 k2"}
    assert one.born_timestamp == int(born.timestamp() * 1000)
    assert (two.topic, two.body, two.queue_id, two.properties) == ("T2", b"two", 1, {})
    assert two.born_timestamp == two.store_timestamp
    assert (late.topic, late.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert late.properties["REAL_TOPIC"] == "T1"
    assert not left_in_stage(root)
    back = spark.read.format("rocketstore").load(str(root)).where("topic = 'T1'").collect()
    assert [bytes(row.body) for row in back] == [b"one"]


def test_rows_of_many_tasks_keep_their_order_and_spread_over_queues(
    spark: Any, tmp_path: Path
) -> None:
    root = small_store(tmp_path / "store")
    table = spark.range(0, 30_000, 1, 3).select(F.col("id").cast("string").alias("body"))
    save(table, root, topic="T", queues=5, stagingDir=tmp_path / "elsewhere")
    assert [int(bytes(m.body)) for m in stored(root)] == list(range(30_000))
    with rocketstore.open(root) as store:
        assert [store.max_offset_in_queue("T", q) for q in store.queues("T")] == [6000] * 5
    assert not (root / formats.SPARK_DIR / "stage").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_transaction_lands_once(spark: Any, tmp_path: Path) -> None:
    root = small_store(tmp_path / "store")
    for version in (1, 1, 2, 1):
        table = spark.createDataFrame([(f"v{version}",)], "body string")
        save(table, root, topic="T", txnAppId="app", txnVersion=version)
    assert [m.body for m in stored(root)] == [b"v1", b"v2"]


def test_a_failed_task_is_tried_again_and_a_failed_write_leaves_nothing(
    spark: Any, tmp_path: Path
) -> None:
    """local[2] tries no task twice; the attempts' names differ all the same."""
    root = small_store(tmp_path / "store")
    with rocketstore.open(root, "r+") as store:
        store.put("T", b"there")
    table = spark.range(0, 1000, 1, 2).select(
        F.when(F.col("id") == 700, F.lit(None)).otherwise(F.col("id").cast("string")).alias("body")
    )
    with pytest.raises(Exception, match="partition 1, row 200: column body is null"):
        save(table, root, topic="T")
    assert [m.body for m in stored(root)] == [b"there"]
    assert not left_in_stage(root)


def test_a_store_in_use_is_not_written(spark: Any, tmp_path: Path) -> None:
    root = small_store(tmp_path / "store")
    table = spark.createDataFrame([("x",)], "body string")
    with (
        rocketstore.open(root, "r+"),
        pytest.raises(Exception, match="StoreLockedError"),
    ):
        save(table, root, topic="T", txnAppId="a", txnVersion=1)
    assert not left_in_stage(root)
    save(table, root, topic="T", txnAppId="a", txnVersion=1)
    assert [m.body for m in stored(root)] == [b"x"]


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        ("body string", {}, "give the topic"),
        ("text string", {"topic": "T"}, "does not support column 'text'"),
        ("body string, tag string", {"topic": "T"}, "did you mean tags"),
        ("topic string", {}, "no column body"),
        ("body int", {"topic": "T"}, "column body is int"),
        ("body string, properties map<string,int>", {"topic": "T"}, "column properties is map"),
        ("body string", {"topic": "a b"}, "a character that RocketMQ does not allow"),
        ("body string", {"topic": "t" * 128}, "option topic has 128 bytes, more than"),
        ("body string", {"topic": "T", "queues": "0"}, "option queues is 0"),
        ("body string", {"topic": "T", "queues": "many"}, "must be a whole number"),
        ("body string", {"topic": "T", "txnAppId": "a"}, "give both txnAppId and txnVersion"),
        ("body string", {"topic": "T", "topics": "a"}, "topics"),
        ("body string", {"topic": "T", "stagingDir": "s3://b/x"}, "mounted"),
    ],
)
def test_wrong_tables_and_options_are_refused_before_any_task_runs(
    spark: Any, tmp_path: Path, schema: str, options: dict[str, str], text: str
) -> None:
    root = tmp_path / "store"
    with pytest.raises(Exception, match=text):
        save(spark.createDataFrame([], schema), root, **options)
    assert not root.exists()


def test_overwriting_is_refused(spark: Any, tmp_path: Path) -> None:
    table = spark.createDataFrame([("x",)], "body string")
    with pytest.raises(Exception, match="mode overwrite would delete"):
        table.write.format("rocketstore").option("topic", "T").mode("overwrite").save(
            str(tmp_path / "store")
        )


def stream(spark: Any, source: Path, root: Path, checkpoint: Path, **options: Any) -> None:
    """Run what is there as micro-batches of one file each."""
    query = (
        spark.readStream.schema("body string")
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
        .writeStream.format("rocketstore")
        .option("checkpointLocation", str(checkpoint))
        .options(topic="T", **options)
        .trigger(availableNow=True)
        .start(str(root))
    )
    try:
        assert query.awaitTermination(240)
        error = query.exception()
    finally:
        query.stop()
    if error is not None:
        raise error


def add_file(source: Path, number: int) -> None:
    """A file of ten rows."""
    source.mkdir(exist_ok=True)
    rows = "".join(f'{{"body": "file {number} row {i}"}}\n' for i in range(10))
    (source / f"{number:03d}.json").write_text(rows)


def test_a_stream_writes_each_batch_once_however_often_it_is_repeated(
    spark: Any, tmp_path: Path
) -> None:
    source, root, checkpoint = (tmp_path / name for name in ("in", "store", "checkpoint"))
    for number in range(3):
        add_file(source, number)
    small_store(root)
    stream(spark, source, root, checkpoint)
    first = [bytes(m.body) for m in stored(root)]
    assert sorted(first) == sorted(b"file %d row %d" % (n, i) for n in range(3) for i in range(10))
    # The query died before it noted that its last batch is done: Spark repeats the batch.
    (checkpoint / "commits" / "2").unlink()
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    add_file(source, 3)
    stream(spark, source, root, checkpoint)
    bodies = [bytes(m.body) for m in stored(root)]
    assert bodies[:30] == first
    assert sorted(bodies[30:]) == [b"file 3 row %d" % i for i in range(10)]
    assert not left_in_stage(root)


def test_a_stream_goes_on_when_its_store_was_in_use(spark: Any, tmp_path: Path) -> None:
    source, root, checkpoint = (tmp_path / name for name in ("in", "store", "checkpoint"))
    add_file(source, 0)
    small_store(root)
    with rocketstore.open(root, "r+"), pytest.raises(Exception, match="StoreLockedError"):
        stream(spark, source, root, checkpoint)
    assert not left_in_stage(root)
    stream(spark, source, root, checkpoint)
    assert len(stored(root)) == 10
    with pytest.raises(Exception, match="txnVersion of a stream"):
        stream(spark, source, root, tmp_path / "other", txnVersion=1, txnAppId="a")
    shutil.rmtree(checkpoint)


def test_a_batch_clears_what_dead_tries_of_its_query_left(tmp_path: Path) -> None:
    """Without a session: a task that died never named its file, so ``abort`` cannot know it."""
    root = small_store(tmp_path / "store")
    rows = pa.record_batch({"body": [b"x"]})
    options = {"path": str(root), "topic": "T"}
    writer = StagedStreamWriter(options, from_arrow_schema(rows.schema), False)
    staging_root = root / formats.SPARK_DIR / "stage"
    for name in ("q1-3", "q1-4", "q2-4"):
        message = writer.stage_rows(iter([rows]), str(staging_root / name), name[:2])
        if name == "q1-4":
            wanted = message
    writer.commit([wanted, None], 4)
    assert [path.name for path in staging_root.iterdir()] == ["q2-4"]
    assert [m.body for m in stored(root)] == [b"x"]
    writer.abort([message], 4)
    assert left_in_stage(root) == []
