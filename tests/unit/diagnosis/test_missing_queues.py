"""Queues that the level ``quick`` finds missing, by the first records of segments."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import NAMES, unpack
from rocketstore import Message
from rocketstore.diagnosis.examination import doctor


def make(path: Path) -> Path:
    """Make a store of three queues, with two files each and many segments."""
    options = {"mapped_file_size_commit_log": 8192, "mapped_file_size_consume_queue": 2000}
    with rocketstore.open(path, "x", **options) as store:
        for number in range(450):
            store.put_message(
                Message("T", b"x" * 50, queue_id=number % 3, properties={"KEYS": "k"})
            )
        store.wait_dispatched()
    return path


def found(path: Path) -> dict[str, str]:
    """Return code and file of each finding of ``quick``."""
    verdict = doctor(path, level="quick")
    return {one.code: one.where[0].file for one in verdict.findings}


@pytest.mark.parametrize("name", NAMES)
def test_no_queue_of_a_sound_store_is_missing(name: str, tmp_path: Path) -> None:
    codes = {one.code for one in doctor(unpack(name, tmp_path), level="quick").findings}
    assert not codes & {"queue.missing", "queue.file.missing"}


def test_the_folder_of_one_queue_is_missed(tmp_path: Path) -> None:
    store = make(tmp_path / "store")
    assert not found(store)
    shutil.rmtree(store / "consumequeue/T/1")
    assert found(store) == {"queue.missing": "consumequeue/T/1"}
    (finding,) = doctor(store, level="quick").findings
    assert (finding.where[0].topic, finding.where[0].queue_id) == ("T", 1)
    assert finding.data.estimated
    assert finding.data.messages > 0
    assert finding.severity == "error"


@pytest.mark.parametrize("name", ["00000000000000000000", "00000000000000002000"])
def test_a_file_of_a_queue_is_missed(tmp_path: Path, name: str) -> None:
    store = make(tmp_path / "store")
    (store / "consumequeue/T/2" / name).unlink()
    assert found(store) == {"queue.file.missing": f"consumequeue/T/2/{name}"}


def test_a_folder_without_files_is_missed_by_its_files(tmp_path: Path) -> None:
    store = make(tmp_path / "store")
    for path in (store / "consumequeue/T/0").iterdir():
        path.unlink()
    assert set(found(store)) == {"queue.file.missing"}


def test_records_that_no_queue_has_are_not_missed_after_a_crash(tmp_path: Path) -> None:
    store = make(tmp_path / "store")
    (store / "abort").touch()
    for queue_id in (0, 1, 2):
        shutil.rmtree(store / f"consumequeue/T/{queue_id}")
    assert "queue.missing" not in found(store)


def test_queues_of_a_deleted_topic_are_not_missed(tmp_path: Path) -> None:
    store = make(tmp_path / "store")
    shutil.rmtree(store / "consumequeue/T")
    table = store / "config/topics.json"
    table.parent.mkdir()
    table.write_text('{"topicConfigTable": {"Other": {"topicName": "Other"}}}')
    assert "queue.missing" not in found(store)
    table.write_text('{"topicConfigTable": {"T": {"topicName": "T"}}}')
    assert "queue.missing" in found(store)
