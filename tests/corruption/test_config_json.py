"""E07, E08: tables below ``config`` that are damaged or odd: read, taken from ``.bak``, or refused
with file and position; both files are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from corruption.crafted import snapshot
from rocketstore import CorruptionError, MappedFileError, UnsafePathError
from rocketstore.config_managers import (
    ConfigManager,
    ConsumerFilterManager,
    ConsumerOffsetManager,
    DelayOffsetManager,
    LmqConsumerOffsetManager,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from rocketstore.config_managers import files as config_files
from rocketstore.config_managers.files import read_config_file, topic_attributes, write_config_file
from support.directory import files_below

GOOD = b'{"offsetTable":{"T@g":{0:12,1:9\n\t\t}}}'
BAD: dict[str, tuple[bytes, int]] = {
    "cut_off": (GOOD[:20], 16),
    "cut_to_one_byte": (b"{", 1),
    "empty": (b"", 0),
    "blanks": (b" \n", 2),
    "zeros": (bytes(4096), 0),
    "zeros_behind": (GOOD + bytes(100), len(GOOD)),
    "200000_brackets": (b"[" * 200_000, 100),
    "200000_objects": (b'{"a":' * 200_000, 500),
    "5000_digits": (b'{"offsetTable":{"T@g":{0:' + b"7" * 5000 + b"}}}", 25),
    "no_object": (b"[1]", 0),
    "text": (b'"x"', 0),
    "binary": (bytes(range(128, 256)) * 10, 0),
    "two_documents": (GOOD + GOOD, len(GOOD)),
    "more_than_32_mib": (b" " * (32 * 1024 * 1024 + 1), 32 * 1024 * 1024),
}
CONTENT: dict[str, tuple[bytes, str]] = {
    "offset_of_65_bits": (
        b'{"offsetTable":{"T@g":{0:9223372036854775808}}}',
        "$.offsetTable.T@g.0:",
    ),
    "fraction": (
        b'{"offsetTable":{"T@g":{0:1.5}}}',
        "$.offsetTable.T@g.0: expected a whole number, found 1.5",
    ),
    "queue_of_33_bits": (b'{"offsetTable":{"T@g":{4294967296:1}}}', "$.offsetTable.T@g:"),
    "queue_is_a_word": (
        b'{"offsetTable":{"T@g":{"x":1}}}',
        "$.offsetTable.T@g: expected a whole number, found 'x'",
    ),
    "list": (b'{"offsetTable":[]}', "$.offsetTable: expected an object, found list"),
    "version": (
        b'{"offsetTable":{},"dataVersion":{"counter":true}}',
        "$.dataVersion.counter: expected a whole number, found True",
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "store" / "config").mkdir(parents=True)
    return tmp_path / "store"


def files(root: Path, main: bytes | None, backup: bytes | None) -> Path:
    path = root / "config" / "consumerOffset.json"
    for target, content in ((path, main), (path.with_name(path.name + ".bak"), backup)):
        if content is not None:
            target.write_bytes(content)
    return path


@pytest.mark.parametrize(("content", "position"), BAD.values(), ids=BAD.keys())
def test_e07_bad_file_falls_back_to_bak(root: Path, content: bytes, position: int) -> None:
    path = files(root, content, GOOD)
    before = snapshot(root)
    manager = ConsumerOffsetManager(root)
    assert manager.load()
    assert manager.query_offsets("g", "T") == {0: 12, 1: 9}
    assert manager.problem is not None
    assert (manager.problem.path, manager.problem.position) == (str(path), position)
    assert snapshot(root) == before


@pytest.mark.parametrize(("content", "position"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("backup", [None, b"", b"{"], ids=["no_bak", "empty_bak", "bad_bak"])
def test_e07_clear_error_when_neither_is_good(
    root: Path, content: bytes, position: int, backup: bytes | None
) -> None:
    path = files(root, content, backup)
    before = snapshot(root)
    manager = ConsumerOffsetManager(root)
    manager.commit_offset("g", "T", 0, 5)
    with pytest.raises(CorruptionError) as caught:
        manager.load()
    assert (caught.value.path, caught.value.position) == (str(path), position)
    assert "consumerOffset.json.bak" in str(caught.value)
    assert manager.query_offset("g", "T", 0) == 5
    assert snapshot(root) == before


@pytest.mark.parametrize(("content", "where"), CONTENT.values(), ids=CONTENT.keys())
def test_e07_values_of_the_wrong_kind(root: Path, content: bytes, where: str) -> None:
    path = files(root, content, GOOD)
    manager = ConsumerOffsetManager(root)
    assert manager.load()
    assert manager.query_offset("g", "T", 1) == 9
    assert where in str(manager.problem)
    path.with_name(path.name + ".bak").unlink()
    with pytest.raises(CorruptionError, match=r"no consumerOffset\.json\.bak"):
        manager.load()
    assert manager.query_offset("g", "T", 1) == 9


def test_e07_every_truncation_of_a_file_is_reported(root: Path) -> None:
    """Whatever a torn write leaves: the whole of it, or the ``.bak``, never a part."""
    other = GOOD.replace(b"12", b"77")
    for end in range(len(GOOD)):
        files(root, GOOD[:end], other)
        manager = ConsumerOffsetManager(root)
        assert manager.load()
        assert manager.query_offset("g", "T", 0) == 77
        assert manager.problem is not None


def test_e07_missing_file_is_read_from_bak_and_none_is_an_empty_table(root: Path) -> None:
    manager = ConsumerOffsetManager(root)
    assert not manager.load()
    assert manager.offset_table == {}
    files(root, None, GOOD)
    assert manager.load()
    assert manager.query_offset("g", "T", 0) == 12
    assert manager.problem is None
    files(root, None, b"{")
    with pytest.raises(CorruptionError, match=r"consumerOffset\.json\.bak at position 1"):
        manager.load()
    (root / "config" / "consumerOffset.json.bak").unlink()
    (root / "config").rmdir()
    assert not manager.load()


@pytest.mark.parametrize(
    "content",
    [
        b'{"offsetTable":{"T@g":{0:12,1:9\n\t\t}}}',
        b'\xef\xbb\xbf{"offsetTable":{"T@g":{0:12,1:9}}}',
        b'{"offsetTable":{"T@g":{\n\t\t\t0:12,\n\t\t\t1:9\n\t\t}}}',
        b'{"offsetTable":{"T@g":{"0":12,"1":9}}}',
        b"{'offsetTable':{'T@g':{0:+12,1:9,},},}",
        b'{offsetTable:{"T@g":{0:"12",1:9.0}}} // by hand',
        b'{"dataVersion":{"$ref":"$.x"},"x":{},"offsetTable":{"T@g":{0:12,1:9}}}',
        b'{"newer":{0:{"a":[]}},"offset_table":null,"offsetTable":{"T@g":{0:12,1:9},"U@g":null}}',
    ],
)
def test_e08_dialects_are_read(root: Path, content: bytes) -> None:
    files(root, content, b"{")
    manager = ConsumerOffsetManager(root)
    assert manager.load()
    assert manager.problem is None
    assert manager.query_offsets("g", "T") == {0: 12, 1: 9}


MANAGERS: list[type[ConfigManager]] = [
    TopicConfigManager,
    SubscriptionGroupManager,
    ConsumerOffsetManager,
    LmqConsumerOffsetManager,
    DelayOffsetManager,
    ConsumerFilterManager,
]


@pytest.mark.parametrize("kind", MANAGERS)
@pytest.mark.parametrize("content", [b"", b"{", b"[" * 200_000])
def test_e07_every_table_is_kept(root: Path, kind: type[ConfigManager], content: bytes) -> None:
    path = root / "config" / kind.FILE_NAME
    path.write_bytes(content)
    before = snapshot(root)
    with pytest.raises(CorruptionError):
        kind(root).load()
    assert snapshot(root) == before


# --- what a store asks for --------------------------------------------------------------------

TOPICS = b'{"topicConfigTable":{"B":{"attributes":{"queue.type":"BatchCQ"}},"T":{"attributes":{}}}}'


def test_topic_attributes(root: Path) -> None:
    path = root / "config" / "topics.json"
    notes: list[str] = []
    assert topic_attributes(root, notes) == {}
    path.write_bytes(TOPICS)
    assert topic_attributes(root, notes) == {"B": {"queue.type": "BatchCQ"}}
    assert topic_attributes(root) == {"B": {"queue.type": "BatchCQ"}}
    assert notes == []


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"topicConfigTable":[]}',
        b'{"topicConfigTable":{"T":7}}',
        b'{"topicConfigTable":{"T":{"attributes":[1]}}}',
        b'{"topicConfigTable":{"T":{"attributes":{"queue.type":1}}}}',
    ],
)
def test_e07_topic_attributes_of_a_bad_table(root: Path, content: bytes) -> None:
    path = root / "config" / "topics.json"
    path.write_bytes(content)
    with pytest.raises(CorruptionError):
        topic_attributes(root)
    notes: list[str] = []
    assert topic_attributes(root, notes) == {}
    assert len(notes) == 1
    assert "topics.json" in notes[0]
    path.with_name("topics.json.bak").write_bytes(TOPICS)
    assert topic_attributes(root, notes) == {"B": {"queue.type": "BatchCQ"}}
    assert "topics.json.bak is read instead" in notes[1]


def test_e07_a_writer_does_not_guess_queue_types(tmp_path: Path) -> None:
    # It opened, noted that the table is bad, and would have made plain queues for batch topics.
    with rocketstore.open(tmp_path / "store", "x") as store:
        assert store.put("T", b"x").ok
    path = tmp_path / "store" / "config" / "topics.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(TOPICS[:40])
    before = files_below(tmp_path / "store")
    with pytest.raises(CorruptionError, match=r"topics\.json"):
        rocketstore.open(tmp_path / "store", "r+")
    assert files_below(tmp_path / "store") == before
    with rocketstore.open(tmp_path / "store", "r") as store:
        assert any("topics.json" in note for note in store.recovery_report.notes)
        assert [message.body for message in store.scan()] == [b"x"]


# --- no regular files, links ------------------------------------------------------------------


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_table_that_is_no_regular_file(root: Path, make: Callable[[Any], None]) -> None:
    make(root / "config" / "topics.json")
    with pytest.raises(MappedFileError, match=r"topics\.json"):
        TopicConfigManager(root).load()
    with pytest.raises(MappedFileError):
        TopicConfigManager(root).persist()


@pytest.mark.parametrize("name", ["config", "config/topics.json", "config/topics.json.bak"])
def test_links_out_of_the_store_are_refused(root: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    if name == "config":
        outside.mkdir()
        (outside / "topics.json").write_bytes(TOPICS)
        (root / "config").rmdir()
    else:
        outside.write_bytes(TOPICS)
    (root / name).symlink_to(outside)
    before = snapshot(tmp_path)
    manager = TopicConfigManager(root)
    with pytest.raises(UnsafePathError):
        manager.load()
    if not name.endswith(".bak"):
        with pytest.raises(UnsafePathError):
            manager.persist()
        assert snapshot(tmp_path) == before
    else:
        manager.persist()
        assert outside.read_bytes() == TOPICS


# --- writing ----------------------------------------------------------------------------------


def test_bad_file_never_becomes_the_bak(root: Path) -> None:
    """RocketMQ to 5.3 copies a torn file over the last good one."""
    path = files(root, b'{"torn', GOOD)
    manager = ConsumerOffsetManager(root)
    assert manager.load()
    manager.persist()
    assert path.with_name(path.name + ".bak").read_bytes() == GOOD
    assert (root / "quarantine" / "config-consumerOffset.json").read_bytes() == b'{"torn'
    path.write_bytes(b"")
    manager.persist()
    assert (root / "quarantine" / "config-consumerOffset.json-1").read_bytes() == b""
    again = ConsumerOffsetManager(root)
    assert again.load()
    assert again.problem is None
    assert again.offset_table == {"T@g": {0: 12, 1: 9}}


@pytest.mark.parametrize("value", ['"x"', "3.5", "true", "[]"])
def test_a_table_with_a_wrong_value_never_becomes_the_bak(root: Path, value: str) -> None:
    """It is JSON, but its ``.bak`` was read instead of it."""
    content = b'{"offsetTable":{"T@g":{"0":%s},"T@other":{"0":7}}}' % value.encode()
    path = files(root, content, GOOD)
    manager = ConsumerOffsetManager(root)
    assert manager.load()
    assert manager.problem is not None
    manager.persist()
    assert path.with_name(path.name + ".bak").read_bytes() == GOOD
    assert (root / "quarantine" / "config-consumerOffset.json").read_bytes() == content


@pytest.mark.parametrize("failing", range(4))
def test_disk_full_at_any_step_leaves_a_whole_file(
    root: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of replacing the two files fails once; one of them is whole at any time."""
    path = files(root, GOOD, b'{"offsetTable":{}}')
    manager = ConsumerOffsetManager(root)
    manager.load()
    manager.commit_offset("g", "T", 0, 13)
    steps = []
    write = os.write
    replace = os.replace

    def step(act: Callable[..., Any], *arguments: Any) -> Any:
        steps.append(act)
        if len(steps) == failing + 1:
            raise OSError(28, "No space left on device")
        return act(*arguments)

    monkeypatch.setattr(os, "write", lambda fd, data: step(write, fd, data))
    monkeypatch.setattr(os, "replace", lambda source, target: step(replace, source, target))
    with pytest.raises(OSError, match=r"No space|no room"):
        manager.persist()
    monkeypatch.undo()
    assert len(steps) == failing + 1
    assert sorted(p.name for p in (root / "config").iterdir()) == [path.name, f"{path.name}.bak"]
    again = ConsumerOffsetManager(root)
    assert again.load()
    assert again.problem is None
    assert again.query_offset("g", "T", 0) == 12
    manager.persist()
    assert again.load()
    assert again.query_offset("g", "T", 0) == 13


def test_what_could_not_be_read_again_is_not_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "config" / "delayOffset.json"
    monkeypatch.setattr(config_files.json_dialect, "MAX_NBYTES", 100)
    with pytest.raises(ValueError, match="would have"):
        write_config_file(path, root, {"a": "x" * 100})
    assert not path.exists()
    write_config_file(path, root, {"a": "x"})
    assert read_config_file(path, root).content == {"a": "x"}
