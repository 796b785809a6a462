"""The one owner of ``consumerOffset.json``: what is in memory, on disk, and of others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.config_managers import ConsumerOffsetManager
from rocketstore.config_managers import files as config_files
from rocketstore.config_managers.live_offsets import LiveConsumerOffsets, StoredConsumerOffsets
from rocketstore.errors import ReentrantCallError, StoreFullError


def live(root: Path) -> LiveConsumerOffsets:
    return LiveConsumerOffsets(root, lambda: 1_700_000_000_000)


def on_disk(root: Path, group: str = "g") -> int:
    return StoredConsumerOffsets(root).query_offset(group, "T", 0)


def test_changes_are_in_memory_until_they_are_persisted(tmp_path: Path) -> None:
    offsets = live(tmp_path)
    assert offsets.query_offset("g", "T", 0) == -1
    offsets.commit_offset("g", "T", 0, 5)
    assert (offsets.query_offset("g", "T", 0), on_disk(tmp_path)) == (5, -1)
    calls: list[int] = []
    assert offsets.persist(lambda: calls.append(on_disk(tmp_path)))
    assert (calls, on_disk(tmp_path)) == ([-1], 5)
    offsets.commit_offset("g", "T", 0, 5)
    assert not offsets.has_changes
    assert not offsets.persist(lambda: calls.append(0))
    offsets.commit_offset("g", "T", 0, 3)  # backwards, as a broker
    assert offsets.persist()
    assert on_disk(tmp_path) == 3
    assert offsets.all_offsets() == {"g": {("T", 0): 3}}


def test_what_others_write_meanwhile_is_kept(tmp_path: Path) -> None:
    offsets = live(tmp_path)
    offsets.commit_offset("g", "T", 0, 1)
    offsets.persist()
    other = ConsumerOffsetManager(tmp_path)
    other.load()
    other.commit_offset("h", "T", 0, 7)
    other.persist()
    assert offsets.query_offset("h", "T", 0) == 7
    offsets.commit_offset("g", "T", 0, 2)
    offsets.persist()
    assert (on_disk(tmp_path), on_disk(tmp_path, "h")) == (2, 7)


def test_a_full_disk_loses_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = live(tmp_path)
    offsets.commit_offset("g", "T", 0, 1)
    write = config_files.write_config_file

    def refuse(*_: Any) -> None:
        raise StoreFullError(28, "no room")

    monkeypatch.setattr(config_files, "write_config_file", refuse)
    with pytest.raises(StoreFullError):
        offsets.persist()
    assert offsets.has_changes
    assert offsets.query_offset("g", "T", 0) == 1
    monkeypatch.setattr(config_files, "write_config_file", write)
    assert offsets.persist()
    assert on_disk(tmp_path) == 1


def test_an_interrupted_call_is_not_repeated_within_itself(tmp_path: Path) -> None:
    offsets = live(tmp_path)
    offsets.commit_offset("g", "T", 0, 1)
    with pytest.raises(ReentrantCallError):
        offsets.persist(offsets.persist)
    assert offsets.persist()


def test_many_threads_never_write_an_older_state(tmp_path: Path) -> None:
    offsets = live(tmp_path)
    failures: list[str] = []

    def work(queue_id: int) -> None:
        for offset in range(1, 60):
            offsets.commit_offset("g", "T", queue_id, offset)
            offsets.persist()
            found = StoredConsumerOffsets(tmp_path).query_offset("g", "T", queue_id)
            if found != offset:
                failures.append(f"{queue_id}: {found} instead of {offset}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_transactions_and_consumers_share_the_table(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "a") as store:
        store.put("T", b"x")
        for number in range(3):
            store.begin("T", b"%d" % number, group="p").commit()
        with store.consumer("g", "T", idle_timeout_s=0) as consumer:
            assert len(list(consumer)) == 4
    groups = StoredConsumerOffsets(tmp_path / "s").all_offsets()
    assert groups["g"] == {("T", 0): 4}
    assert groups["CID_RMQ_SYS_TRANS"]["RMQ_SYS_TRANS_HALF_TOPIC", 0] == 3
