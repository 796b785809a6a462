"""Staged batches for tests, and what a store holds of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import rocketstore
from rocketstore.spark.sink import stage

NOW = 1_700_000_000_000
SEGMENT_NBYTES = 20_000
#: Small files, so that a batch rolls.
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT_NBYTES,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 1000,
}


def bodies(batch: int, count: int, partition: int = 0) -> list[bytes]:
    """The bodies of a partition of a batch."""
    return [b"batch %d partition %d row %d" % (batch, partition, i) for i in range(count)]


def stage_batch(
    root: Path, batch: int, counts: list[int], *, name: str = "stage", **options: Any
) -> tuple[str, list[stage.StagedFile]]:
    """Stage partitions with so many rows; the folder and its files."""
    folder = root.parent / name / str(batch)
    config = rocketstore.MessageStoreConfig(**OPTIONS)
    files = []
    for partition, count in enumerate(counts):
        rows = bodies(batch, count, partition)
        table = pa.record_batch({"body": rows, "keys": [f"k{i}" for i in range(count)]})
        files.append(
            stage.write_stage(
                [table.slice(0, count // 2), table.slice(count // 2)],
                str(folder),
                partition=partition,
                attempt=batch,
                settings=stage.encoder_settings(root, config),
                topic="T",
                **options,
            )
        )
    return str(folder), files


def stored(root: Path) -> list[bytes]:
    """The bodies of a store in the order of its log."""
    with rocketstore.open(root) as store:
        report = store.verify()
        assert not report.findings, report.findings
        return [bytes(message.body) for message in store.scan()]
