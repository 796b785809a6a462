"""``ls``: topics, queues and files, on stores of every kind of queue."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from support.command_line import NASTY_TOPIC, lines, make_store, run


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("ls") / "store")


def test_topics(pristine: Path) -> None:
    rows = {row["topic"]: row for row in lines(run("ls", pristine))}
    assert list(rows) == ["TopicA", "TopicB", NASTY_TOPIC]
    assert (rows["TopicA"]["queues"], rows["TopicA"]["messages"]) == (2, 40)
    assert rows["TopicA"]["files"] == 2
    assert rows["TopicA"]["bytes"] == 800
    assert "40" in run("ls", pristine, "-f", "table").stdout


def test_queues(pristine: Path) -> None:
    first, second = lines(run("ls", pristine, "TopicA"))
    assert (first["queueId"], first["minOffset"], first["maxOffset"]) == (0, 0, 20)
    (begin,) = lines(run("get", pristine, "TopicA", 1, "-n", 1))
    (last,) = lines(run("get", pristine, "TopicA", 1, "-o", 19))
    assert second["firstTimestamp"] == begin["storeTimestamp"]
    assert second["lastTimestamp"] == last["storeTimestamp"]
    assert len(lines(run("ls", pristine, "--queues"))) == 4
    assert "2023-11-1" in run("ls", pristine, "--queues", "-f", "table").stdout


def test_files(pristine: Path) -> None:
    rows = {row["path"]: row for row in lines(run("ls", pristine, "--files"))}
    found = [path for path in pristine.rglob("*") if path.is_file()]
    on_disk = {os.path.relpath(path, pristine): path.stat().st_size for path in found}
    assert {name: row["bytes"] for name, row in rows.items()} == on_disk
    segment = rows[os.path.join("commitlog", "0" * 20)]
    assert (segment["kind"], segment["firstOffset"], segment["endOffset"]) == (
        "commitLog",
        0,
        16384,
    )
    queue = rows[os.path.join("consumequeue", "TopicA", "0", "0" * 20)]
    assert (queue["kind"], queue["firstOffset"], queue["endOffset"]) == ("consumeQueue", 0, 20)
    assert rows["checkpoint"]["firstOffset"] is None


def test_links_are_named_and_not_followed(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    (root / "commitlog" / "out").symlink_to(tmp_path / "outside")
    rows = {row["path"]: row["kind"] for row in lines(run("ls", root, "--files"))}
    assert rows[os.path.join("commitlog", "out")] == "link"
    assert not [name for name in rows if "secret" in name]


def test_what_is_not_there(pristine: Path, tmp_path: Path) -> None:
    assert "there is no topic 'None'" in run("ls", pristine, "None", code=1).stderr
    assert "give it without a topic" in run("ls", pristine, "T", "--files", code=2).stderr
    (tmp_path / "empty").mkdir()
    assert "is not a store" in run("ls", tmp_path / "empty", code=3).stderr
    run("ls", tmp_path / "empty", "--files", code=1)


@pytest.mark.parametrize(
    ("name", "topic", "kind"),
    [
        ("inner-5.3.3", "BCQ", "BatchCQ"),
        ("lmq-5.3.3", "%LMQ%a", "LightCQ"),
        ("rocksdb-5.5.0", "TopicA", "SimpleCQ"),
    ],
)
def test_other_kinds_of_queue(name: str, topic: str, kind: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    topics = {row["topic"]: row for row in lines(run("ls", root))}
    with rocketstore.open(root) as store:
        expected = sum(
            store.max_offset_in_queue(topic, one) - store.min_offset_in_queue(topic, one)
            for one in store.queues(topic)
        )
    assert topics[topic]["messages"] == expected > 0
    assert topics[topic]["type"] == kind
    assert (topics[topic]["files"] == 0) == name.startswith("rocksdb")
    (facts,) = lines(run("info", root))
    assert {row["topic"]: row["type"] for row in facts["topics"]}[topic] == kind
