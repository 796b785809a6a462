"""A store whose log is not there: elsewhere, on a disk that is not mounted, over several disks."""

from __future__ import annotations

import os
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import SEGMENT, snapshot
from golden import golden_stores
from rocketstore import ConfigError, MappedFileError, formats
from support.command_line import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# ``put STORE TOPIC hello`` on a broker's store whose storePathCommitLog was on another disk began
# a new log at offset 0, and deleted all queues and keys that named the old one; "r+", "a",
# ``salvage`` and ``clean`` did the same, and reading showed a store without a message.


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    """A copy of a store that was closed in order."""
    return Path(shutil.copytree(template, tmp_path / "store", symlinks=True))


def without_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def emptied(root: Path) -> None:
    without_log(root)
    (root / "commitlog").mkdir()


def mounted_empty(root: Path) -> None:
    emptied(root)
    (root / "commitlog" / "lost+found").mkdir()


def only_an_empty_file(root: Path) -> None:
    emptied(root)
    (root / "commitlog" / formats.offset_to_file_name(0)).touch()


def only_a_later_empty_file(root: Path) -> None:
    emptied(root)
    (root / "commitlog" / formats.offset_to_file_name(SEGMENT)).touch()


GONE = [without_log, emptied, mounted_empty, only_an_empty_file, only_a_later_empty_file]


def refuses(root: Path, *texts: str, **options: object) -> None:
    """Every way in says that the log is missing, and nothing changes."""
    before = snapshot(root)
    ways: list[Callable[[], object]] = [
        lambda: rocketstore.open(root, "r", **options),
        lambda: rocketstore.open(root, "r", derive="full", **options),
        lambda: rocketstore.open(root, "r", derive="none", **options),
        lambda: rocketstore.open(root, "r+", **options),
        lambda: rocketstore.open(root, "a", **options),
        lambda: rocketstore.salvage(root, **options),
        lambda: rocketstore.salvage(root, what_if=True, **options),
    ]
    for way in ways:
        with pytest.raises(MappedFileError) as caught:
            way()
        for text in ("the log is missing", "store_path_commit_log", *texts):
            assert text in str(caught.value)
        assert snapshot(root) == before


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("crashed", [True, False])
def test_every_mode_refuses(
    root: Path, gone: Callable[[Path], None], state: bool, crashed: bool
) -> None:
    gone(root)
    if not state:
        (root / "rocketstore.state").unlink()
    (root / "lock").unlink()  # nor is that made
    if crashed:
        (root / "abort").touch()
    refuses(root, str(root / "commitlog"))


@pytest.mark.parametrize("name", golden_stores.names("plain", "inner", "ext", "crash"))
def test_a_brokers_store_without_its_log(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    shutil.move(root / "commitlog", tmp_path / "another disk")
    refuses(root, str(root / "checkpoint"))


@pytest.mark.parametrize("name", golden_stores.names("rocksdb"))
@pytest.mark.parametrize("only_queues", [False, True])
def test_queues_in_rocksdb_without_their_log(name: str, only_queues: bool, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    shutil.rmtree(root / "commitlog")
    if only_queues:
        only(root, "consumequeue_rocksdb", "consumequeue")
    with pytest.raises(MappedFileError, match="the log is missing"):
        rocketstore.open(root)


def only(root: Path, *kept: str) -> None:
    for path in root.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def table(root: Path, name: str, text: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(text)


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def a_unit_after_fillers(root: Path) -> None:
    filler = struct.pack(">qiq", 0, 2**31 - 1, 0)
    unit = struct.pack(">qiq", 4711, 100, 0)
    write(root / "consumequeue" / "T" / "0" / f"{0:020}", filler * 5 + unit + bytes(20 * 10))


def a_unit_in_a_sparse_file(root: Path) -> None:
    path = root / "consumequeue" / "T" / "0" / f"{6_000_000:020}"
    write(path, b"")
    with path.open("r+b") as file:
        file.truncate(6_000_000)
        file.seek(20 * 250_000)
        file.write(struct.pack(">qiq", 2**33, 100, 0))


PROOFS: dict[str, Callable[[Path], object]] = {
    "rocketstore.state": lambda root: only(root, "rocketstore.state"),
    "checkpoint": lambda root: only(root, "checkpoint"),
    "consumequeue": lambda root: only(root, "consumequeue"),
    "index": lambda root: only(root, "index"),
    "consumequeue/T": lambda root: (only(root), a_unit_after_fillers(root)),
    "consumequeue/T/0": lambda root: (only(root), a_unit_in_a_sparse_file(root)),
    "batchconsumequeue": lambda root: (
        only(root),
        write(root / "batchconsumequeue/T/0" / f"{0:020}", struct.pack(">qi34x", 0, 100)),
    ),
    "consumequeue_ext": lambda root: (
        only(root),
        write(root / "consumequeue_ext/T/0" / f"{0:020}", struct.pack(">hqqh", 20, 1, 2, 0)),
    ),
    "config/consumerOffset.json": lambda root: (
        only(root),
        table(root, "consumerOffset.json", '{"offsetTable":{"T@g":{0:0,1:12}}}'),
    ),
    "config/lmqConsumerOffset.json": lambda root: (
        only(root),
        table(root, "lmqConsumerOffset.json", '{"offsetTable":{"%LMQ%q@g":3}}'),
    ),
    "config/delayOffset.json": lambda root: (
        only(root),
        table(root, "delayOffset.json", '{"offsetTable":{1:7}}'),
    ),
    "config/consumerOffset.json.bak": lambda root: (
        only(root),
        table(root, "consumerOffset.json", "{"),
        table(root, "consumerOffset.json.bak", '{"offsetTable":{"T@g":{"0":1}}}'),
    ),
}


@pytest.mark.parametrize("name", PROOFS)
def test_each_alone_shows_that_there_was_a_log(root: Path, name: str) -> None:
    PROOFS[name](root)
    refuses(root, str(root / name))


@pytest.mark.parametrize("checkpoint", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
def test_any_time_or_offset_of_a_checkpoint_counts(
    root: Path, checkpoint: tuple[int, int, int, int]
) -> None:
    only(root)
    content = struct.pack(">qqqq", *checkpoint).ljust(formats.CHECKPOINT_FILE_NBYTES, b"\0")
    (root / "checkpoint").write_bytes(content)
    refuses(root, "checkpoint")


def nothing(root: Path) -> None: ...


def topics(root: Path) -> None:
    table(root, "topics.json", '{"topicConfigTable":{"TBW102":{"topicName":"TBW102"}}}')


def zeros(root: Path) -> None:
    table(root, "consumerOffset.json", '{"offsetTable":{"T@g":{0:0}}}')
    table(root, "delayOffset.json", '{"offsetTable":{}}')
    (root / "checkpoint").write_bytes(bytes(formats.CHECKPOINT_FILE_NBYTES))


def unused_files(root: Path) -> None:
    """As a broker makes them before the first message."""
    write(
        root / "index" / "20261126150000000", struct.pack(">qqqqii", 0, 0, 0, 0, 0, 1) + bytes(420)
    )
    write(root / "consumequeue" / "T" / "0" / f"{0:020}", bytes(6_000_000))


@pytest.mark.parametrize("left", [nothing, topics, zeros, unused_files])
def test_a_store_without_a_message_begins_its_log(root: Path, left: Callable[[Path], None]) -> None:
    only(root)
    (root / "commitlog").mkdir()
    left(root)
    with rocketstore.open(root, "r") as store:
        assert list(store.scan()) == []
    with rocketstore.open(root, "a", max_hash_slot_num=5, max_index_num=20) as store:
        assert store.put("T", b"first").physical_offset == 0


COMMANDS = [
    ("put", "TopicX", "hello"),
    ("salvage",),
    ("salvage", "--what-if"),
    ("clean", "--hours", "0"),
    ("ls",),
    ("scan",),
    ("tail", "-n", "3"),
    ("get", "Orders", "0"),
    ("find", "--key", "k1"),
    ("verify",),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_refuses(root: Path, words: tuple[str, ...]) -> None:
    without_log(root)
    before = snapshot(root)
    result = run(words[0], root, *words[1:], code=3)
    assert "the log is missing" in result.stdout + result.stderr
    assert snapshot(root) == before


def test_the_log_is_found_where_it_is_named(root: Path, tmp_path: Path) -> None:
    with rocketstore.open(root) as store:
        wanted = [bytes(message.raw) for message in store.scan()]
    shutil.move(root / "commitlog", tmp_path / "disk")
    refuses(root)
    for mode in ("r", "r+", "a"):
        with rocketstore.open(root, mode, store_path_commit_log=str(tmp_path / "disk")) as store:
            assert [bytes(message.raw) for message in store.scan()] == wanted
    assert not (root / "commitlog").exists()


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_named_folder_that_is_not_there(tmp_path: Path, mode: str) -> None:
    """Also for a store without a message: a slip of the pen is no empty log."""
    (tmp_path / "store").mkdir()
    before = snapshot(tmp_path)
    with pytest.raises(MappedFileError, match="there is no folder"):
        rocketstore.open(tmp_path / "store", mode, store_path_commit_log=str(tmp_path / "disk"))
    assert snapshot(tmp_path) == before


def scatter(root: Path, disks: Path) -> None:
    """Move the log's segments to three folders, by turns."""
    for number in (1, 2, 3):
        (disks / str(number)).mkdir()
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        path.rename(disks / str(number % 3 + 1) / path.name)


@pytest.mark.parametrize("separated", ["{0}/1,{0}/2,{0}/3", " {0}/3,{0}/1,,{0}/2,{0}/1,"])
@pytest.mark.parametrize("mode", ["r+", "a", "x"])
def test_a_log_in_several_folders_is_only_read(
    root: Path, tmp_path: Path, separated: str, mode: str
) -> None:
    with rocketstore.open(root) as store:
        whole = [(message.queue_offset, bytes(message.body)) for message in store.scan()]
    scatter(root, tmp_path)
    logs = separated.format(tmp_path).strip()
    before = snapshot(tmp_path)
    with rocketstore.open(root, store_path_commit_log=logs) as store:
        assert [(one.queue_offset, bytes(one.body)) for one in store.scan()] == whole
    path = tmp_path / "new" if mode == "x" else root
    with pytest.raises(ConfigError, match=r"rocketstore clone.* in 3 folders"):
        rocketstore.open(path, mode, store_path_commit_log=logs)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("separated", ["{0}/1,{0}/2", "{0}/1,", ",{0}/2", "{0}/4,{0}/2,{0}/3"])
@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_part_of_the_log_that_is_not_named_or_not_there(
    root: Path, tmp_path: Path, separated: str, mode: str
) -> None:
    # The list was taken for one folder of that name: mode "r" answered 0 of 200 messages.
    scatter(root, tmp_path)
    before = snapshot(tmp_path)
    logs = separated.format(tmp_path)
    if mode == "r" and "4" not in separated:
        with rocketstore.open(root, store_path_commit_log=logs) as store:
            assert any("missing" in one.reason for one in store.recovery_report.damaged)
    else:
        where = f"there is no folder {tmp_path}/4" if mode == "r" else ""
        with pytest.raises((ConfigError, MappedFileError), match=where):
            rocketstore.open(root, mode, store_path_commit_log=logs)
    assert snapshot(tmp_path) == before


def test_a_folder_with_a_comma_in_its_name(root: Path, tmp_path: Path) -> None:
    disk = tmp_path / "a,b"
    os.rename(root / "commitlog", disk)
    with rocketstore.open(root, "r+", store_path_commit_log=str(disk)) as store:
        assert store.put("Orders", b"x").ok
