"""RocketMQ opens, serves and goes on with what the Spark sink and ``bulk_load`` wrote.

Spark itself only carries rows to the sink's classes, so they are called here without a session.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from interop import catalogue, maven, ours
from interop.cases import changed, copy, parts
from interop.comparing import compare
from interop.harness import VERSIONS, Driver
from interop.workload import FEATURES, Job
from rocketstore import MessageStoreConfig
from rocketstore.spark.jobs.bulk_loading import write_store
from rocketstore.spark.sink import stage
from rocketstore.spark.sink.writer import StagedWriter

maven.require_java()

CONFIG = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "200",
    "maxIndexNum": "1000",
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
}
COUNT = 900
ARROW = pa.schema(
    [
        ("body", pa.binary()),
        *((name, pa.string()) for name in ("topic", "tags", "keys")),
        ("queueId", pa.int32()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("flag", pa.int32()),
        ("bornTimestamp", pa.timestamp("us", "UTC")),
    ]
)


SCHEMA = from_arrow_schema(ARROW)


def table(seed: int) -> pa.Table:
    """Messages of three topics."""
    chance = random.Random(seed)
    rows = [
        {
            "body": chance.randbytes(chance.randrange(300)),
            "topic": f"Topic{chance.randrange(3)}",
            "tags": chance.choice(["A", "B", "标签", None]),
            "keys": chance.choice([None, f"k{number}", f"k{number} j{number % 10}"]),
            "queueId": chance.choice([None, 0, 1, 2]),
            "properties": chance.choice([None, [("UNIQ_KEY", f"{number:032X}"), ("p", "值")]]),
            "flag": chance.randrange(-3, 4),
            "bornTimestamp": chance.choice([None, 1_700_000_000_000_000 + number * 1000]),
        }
        for number in range(COUNT)
    ]
    return pa.Table.from_pylist(rows, ARROW)


def by_sink(root: Path, job: Job) -> None:
    """Two batches into a store that was made for the version."""
    ours.open_store(root, "x", job).close()
    for version in range(2):
        options = {"path": str(root), "txnAppId": "app", "txnVersion": str(version)}
        writer = StagedWriter(options, SCHEMA, False)
        batches = table(version).to_batches(max_chunksize=100)
        writer.commit([writer.write(iter(batches[:4])), writer.write(iter(batches[4:]))])


def by_bulk_load(root: Path, job: Job) -> None:
    """The same rows as a whole store."""
    config = MessageStoreConfig.from_properties(job.config).replace(
        broker_version=job.version, store_host=ours.STORE_HOST
    )
    settings = stage.encoder_settings(None, config)
    files = [
        stage.write_stage(
            table(number).to_batches(),
            str(root.parent / "stage"),
            partition=number,
            attempt=0,
            settings=settings,
            counted=True,
        )
        for number in range(2)
    ]
    root.mkdir()
    report = write_store(None, files, root, settings, config)
    assert report.rows == 2 * COUNT


def questions(root: Path, job: Job) -> list[dict[str, Any]]:
    """Every queue from its start, and every fifth message by key, time and offset."""
    asked: list[dict[str, Any]] = [{"op": "wait"}]
    with ours.open_store(root, "r", job) as store:
        assert not store.verify().findings
        messages = list(store.scan())
        assert len(messages) == 2 * COUNT
        for topic in store.topics():
            for queue_id in store.queues(topic):
                end = store.max_offset_in_queue(topic, queue_id)
                queue = {"topic": topic, "queueId": queue_id}
                asked += [
                    {"op": "get", **queue, "offset": at, "max": 32} for at in range(0, end + 1, 32)
                ]
        for message in messages[::5]:
            queue = {"topic": message.topic, "queueId": message.queue_id}
            asked.append({"op": "bytime", **queue, "ts": message.store_timestamp})
            asked.append({"op": "look", "offset": message.physical_offset})
            for key in (message.keys or "").split():
                asked.append({"op": "query", "topic": message.topic, "key": key, "max": 64})
    return asked


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_rocketmq_serves_what_spark_wrote(version: str, tmp_path: Path) -> None:
    job = Job(0, version, FEATURES["plain"], CONFIG, ())
    written: dict[str, Callable[[Path, Job], None]] = {"sink": by_sink, "load": by_bulk_load}
    compared, known = 0, Counter[str]()
    with Driver(version, tmp_path) as driver:
        for name, write in written.items():
            root = tmp_path / name / "store"
            root.parent.mkdir()
            write(root, job)
            asked = questions(root, job)
            target = copy(root, "java")
            before = parts(target, ("commitlog", "consumequeue"))
            assert driver.open(name, target, job.config).result()["load"]
            theirs = driver.ask(name, asked).result()["answers"]
            with ours.open_store(root, "r", job) as store:
                found = compare(asked, theirs, ours.ask(store, asked), name)
            assert not found.failures, "\n".join(found.failures[:3])
            compared += found.compared
            known += found.known
            driver.close([name])
            assert changed(before, parts(target, ("commitlog", "consumequeue"))) == []
            with ours.open_store(target, "r+", job) as store:
                assert store.put("Topic0", b"more").ok
                assert len(list(store.scan())) == 2 * COUNT + 1
    row = {"feature": "plain", "stores": len(written), "compared": compared, "failed": 0}
    catalogue.record("spark", version, [{**row, "known": dict(known)}])
