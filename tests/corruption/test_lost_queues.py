"""The files of a queue are gone and its messages have expired: no log shows its queue offsets.

The queue began at 0 again. A consumer group at 38 got none of the next 38 messages, and no command
reported a fault.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.dispatch.dispatcher import CommitLogDispatcher
from rocketstore.verify.report import VerifyReport
from support.command_line import lines, run

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16384,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
    "broker_version": "5.3.3",
}
TIME = 1_700_000_000_000
DELAYED = "SCHEDULE_TOPIC_XXXX"
INNER = rocketstore.formats.SYS_FLAG_INNER_BATCH | rocketstore.formats.SYS_FLAG_NEED_UNWRAP
TABLES: dict[str, Any] = {
    "topics.json": {
        "topicConfigTable": {
            "Old": {"topicName": "Old"},
            "New": {"topicName": "New"},
            "%RETRY%G": {"topicName": "%RETRY%G"},
            "Batch": {"topicName": "Batch", "attributes": {"queue.type": "BatchCQ"}},
        }
    },
    "consumerOffset.json": {
        "offsetTable": {
            "Old@G": {"0": 38, "1": 0},
            "Old@H": {"0": 11},
            "%RETRY%G@G": {"0": 3},
            "Batch@G": {"0": 12},
            "New@G": {"0": 700},
            "Deleted@G": {"0": 9},
            "Far@G": {"0": 2**40},
        }
    },
    "delayOffset.json": {"offsetTable": {"1": 5, "2": 0}},
}
NEXT = {"Old": 38, "%RETRY%G": 3, "Batch": 12, DELAYED: 5}


def put(store: rocketstore.DefaultMessageStore, topic: str) -> int:
    """Put a message; return its queue offset."""
    words: dict[str, Any] = {}
    if topic == "Batch":
        words = {"sys_flag": INNER, "properties": {"INNER_NUM": "3"}}
    if topic == DELAYED:
        words = {"properties": {"DELAY": "1"}}
    result = store.put("New" if topic == DELAYED else topic, b"x" * 90, 0, "t", "key", **words)
    assert result.ok
    return int(result.queue_offset)


def build(root: Path, *, expired: bool) -> None:
    """Make a store of which only queue 0 of ``New`` has messages left, if ``expired``."""
    clock = iter(range(TIME, 2 * TIME, 1000)).__next__
    attributes = {"Batch": {"queue.type": "BatchCQ"}}
    with rocketstore.open(root, "x", clock=clock, topic_attributes=attributes, **OPTIONS) as store:
        for topic, count in (("Old", 40), ("%RETRY%G", 3), ("Batch", 4), (DELAYED, 6)):
            for _ in range(count):
                put(store, topic)
        for _ in range(700 if expired else 10):
            put(store, "New")
    if expired:
        with rocketstore.open(root, "r+", **OPTIONS) as store:
            assert store.clean_expired().files
    (root / "config").mkdir()
    for name, table in TABLES.items():
        (root / "config" / name).write_text(json.dumps(table))


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without a fault; not to be changed."""
    root = tmp_path_factory.mktemp("expired") / "store"
    build(root, expired=True)
    assert verify(root).ok
    return root


@pytest.fixture
def root(expired: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(expired, tmp_path / "store"))


def verify(root: Path) -> VerifyReport:
    with rocketstore.open(root) as store:
        return store.verify()


def lost_of(report: VerifyReport) -> list[str]:
    """Queues of the findings that a queue is lost, by the folders that they name."""
    paths = [Path(one.path) for one in report.findings if one.kind == "lost-queue"]
    return [f"{path.parent.name}/{path.name}" for path in paths]


def lose(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def change_table(root: Path, name: str, **columns: Any) -> None:
    path = root / "config" / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **columns}))


LOSSES = {
    "consumequeue": ("Old", "%RETRY%G", DELAYED),
    "consumequeue/Old": ("Old",),
    f"consumequeue/{DELAYED}/0": (DELAYED,),
    "batchconsumequeue": ("Batch",),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_every_command_names_it_and_a_put_goes_on(root: Path, lost: str) -> None:
    lose(root, lost)
    if lost == "consumequeue/Old":
        (root / "abort").touch()
    names = sorted(f"{topic}/0" for topic in LOSSES[lost])
    assert sorted(lost_of(verify(root))) == names
    *rows, summary = lines(run("recover", root, "--format", "ndjson", code=1))
    assert [row["kind"] for row in rows].count("lost-queue") == len(names)
    assert summary["left"] == {"lost-queue": len(names)}
    with rocketstore.open(root, "r+", start=False) as store:
        notes = store.recovery_report.notes
        for topic in LOSSES[lost]:
            assert any(f"{topic} queue 0" in n and str(NEXT[topic]) in n for n in notes)
    again = verify(root)
    assert sorted(lost_of(again)) == names
    assert set(again.finding_counts) == {"lost-queue"}
    with rocketstore.open(root, "r+") as store:
        for topic in LOSSES[lost]:
            assert put(store, topic) == NEXT[topic]
        assert store.wait_dispatched(60)
        for topic in LOSSES[lost]:
            offset = NEXT[topic]
            (message,) = store.get_message("G", topic, 0, offset, 1).messages
            assert message.queue_offset == offset
            assert store.min_offset_in_queue(topic, 0) == offset
        assert store.recovery_report.refused == []
        assert store.verify().findings == []
    assert verify(root).ok
    lose(root, "rocketstore.state", lost)
    with rocketstore.open(root, "r+") as store:  # from the log
        for topic in LOSSES[lost]:
            (message,) = store.get_message("G", topic, 0, NEXT[topic], 1).messages
            assert message.queue_offset == NEXT[topic]


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/Old/0/" + "0" * 17 + "400"])
def test_a_broker_s_own_store(root: Path, lost: str) -> None:
    """It has no state file; the folder that is empty, or missing for all queues, shows the loss."""
    if lost != "consumequeue":
        assert [path.name for path in (root / "consumequeue/Old/0").iterdir()] == [lost[-20:]]
    lose(root, "rocketstore.state", lost)
    assert "Old/0" in lost_of(verify(root))
    with rocketstore.open(root, "r+") as store:
        assert put(store, "Old") == 38


def test_what_rocketmq_leaves_in_normal_use_is_a_note(root: Path) -> None:
    """A slave that began with the newest segment, and ``cleanExpiredCQ``: no such queue, and no
    other sign that it was there."""
    lose(root, "rocketstore.state", "consumequeue/Old")
    report = verify(root)
    assert report.ok
    assert any("Old queue 0" in note and "broker starts at 0" in note for note in report.notes)
    with rocketstore.open(root, "r+") as store:
        assert put(store, "Old") == 0


def test_no_alarm_without_a_loss(tmp_path: Path, root: Path) -> None:
    """Deleted topics leave offsets, and wrong tables name what no log can have held."""
    for topic in ("Deleted", "Far"):
        assert not (root / "consumequeue" / topic).exists()
    lose(root, "consumequeue/Old")
    assert lost_of(verify(root)) == ["Old/0"]
    table = TABLES["consumerOffset.json"]["offsetTable"]
    change_table(root, "consumerOffset.json", offsetTable={**table, "Old@G": {}, "Old@H": {}})
    assert lost_of(verify(root)) == []
    young = tmp_path / "young"
    build(young, expired=False)
    change_table(young, "consumerOffset.json", offsetTable={"%RETRY%G@H": {"7": 3}})
    lose(young, "consumequeue")
    assert lost_of(verify(young)) == []
    with rocketstore.open(young, "r+") as store:
        assert store.put("Old", b"x", 0).queue_offset == 40
        assert store.put("%RETRY%G", b"x", 7).queue_offset == 0


def test_the_state_file_counts_those_that_no_table_names(root: Path) -> None:
    lose(root, "config", "consumequeue")
    (finding,) = (one for one in verify(root).findings if one.kind == "lost-queue")
    assert finding.path == str(root / "consumequeue")
    assert "3 now have none" in finding.reason
    report = rocketstore.recover(root)
    assert report.left == {"lost-queue": 1}
    assert rocketstore.recover(root).left == {}


@pytest.mark.parametrize("state", ["there", "gone"])
def test_killed_while_the_queues_are_rebuilt(
    root: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(root, "consumequeue", *(["rocketstore.state"] if state == "gone" else []))
    child = os.fork()
    if child == 0:
        dispatch = CommitLogDispatcher.dispatch_until

        def killed(self: CommitLogDispatcher, stop: int, **others: Any) -> Any:
            dispatch(self, stop, **others)
            os._exit(9)

        monkeypatch.setattr(CommitLogDispatcher, "dispatch_until", killed)
        rocketstore.open(root, "r+")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with rocketstore.open(root, "r+") as store:
        assert put(store, "Old") == 38


def test_info_names_it_too(root: Path) -> None:
    assert "Old queue 0" not in run("info", root, "--format", "json").stdout
    lose(root, "consumequeue/Old")
    assert "it is lost" in run("info", root, "--format", "json", code=1).stdout


def test_queues_in_rocksdb_are_not_missed(root: Path) -> None:
    lose(root, "consumequeue", "batchconsumequeue", "config/delayOffset.json")
    (root / "consumequeue_rocksdb").mkdir()
    for name in ("CURRENT", "MANIFEST-000001"):
        (root / "consumequeue_rocksdb" / name).write_text("MANIFEST-000001\n")
    assert lost_of(verify(root)) == []
    assert "it is lost" not in run("info", root, "--format", "json").stdout
