"""Queues and index that were deleted come back byte for byte when the store is opened for
writing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from support.directory import files_below

#: Of inner-5.3.3, in the recorded configuration.
BATCH_QUEUE_NBYTES = 736
#: Of ext-4.9.8.
EXT_NBYTES = 2048


@pytest.mark.parametrize(
    "name", golden_stores.names("plain-", "crash-", "crc-", "inner-", "ext-", "lmq-")
)
def test_deleted_queues_and_index_come_back(name: str, tmp_path: Path) -> None:
    original = golden_stores.unpack(name, tmp_path / "original")
    root = golden_stores.unpack(name, tmp_path / "ours")
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "batchconsumequeue", ignore_errors=True)
    shutil.rmtree(root / "consumequeue_ext", ignore_errors=True)
    shutil.rmtree(root / "index")
    geometry = golden_stores.geometry(name)
    with rocketstore.open(
        root,
        "r+",
        broker_version=golden_stores.about(name)["rocketmq"],
        mapped_file_size_consume_queue=geometry.consume_queue_nbytes,
        max_hash_slot_num=geometry.slots,
        max_index_num=geometry.entries,
        mapper_file_size_batch_consume_queue=BATCH_QUEUE_NBYTES,
        enable_consume_queue_ext=name.startswith("ext-"),
        mapped_file_size_consume_queue_ext=EXT_NBYTES,
    ):
        pass
    assert files_below(root / "commitlog") == log_without_spare(original)
    assert files_below(root / "consumequeue") == queues_to_compare(name, original)
    batch_queues = files_below(root / "batchconsumequeue")
    assert batch_queues == files_below(original / "batchconsumequeue")
    assert bool(batch_queues) == name.startswith("inner-")
    ext = files_below(root / "consumequeue_ext")
    assert ext == files_below(original / "consumequeue_ext")
    assert bool(ext) == name.startswith("ext-")
    ours = list(files_below(root / "index").values())
    assert ours == list(files_below(original / "index").values())


def log_without_spare(root: Path) -> dict[str, bytes]:
    """The log's files without the all-zero one that a crash leaves after the last segment in
    use."""
    files = files_below(root / "commitlog")
    return {name: content for name, content in files.items() if content.strip(b"\0")}


def queues_to_compare(name: str, root: Path) -> dict[str, bytes]:
    return files_below(root / "consumequeue")
