"""The log of another store in place of the store's own: another disk is mounted there."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import OPTIONS, SEGMENT, Clock, snapshot
from golden import golden_stores
from rocketstore import MappedFileError
from rocketstore.store.verifying import verify_files
from support.command_line import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# ``put`` on a store whose log had been taken for another one's wrote into that, gave out queue
# offsets once more, and deleted queue and index files, which named nothing there.

WORDS = "is another store's"


def made(
    root: Path, topics: str, count: int, now: int, size: int = 150, *, killed: bool = False
) -> Path:
    """A store with ``count`` messages, in turns in each of the topics."""
    with rocketstore.open(root, "x", clock=Clock(now), **OPTIONS) as store:
        for number in range(count):
            body = b"x" * (size + (number % 7 if size % 2 == 0 else 0))
            store.put(topics[number % len(topics)], body, 0, "t", f"{number:05}")
        store.wait_dispatched(60)
        if killed:
            store.flush()
            return Path(shutil.copytree(root, root.with_name(f"{root.name}-killed")))
    return root


def with_log_of(root: Path, other: Path) -> Path:
    """Put the log of another store in place of the store's own, which is kept beside it."""
    (root / "commitlog").rename(root.with_name("right"))
    shutil.copytree(other / "commitlog", root / "commitlog")
    return root


def longer(folder: Path) -> Path:
    own = made(folder / "store", "AB", 300, 1_700_000_000_000)
    return with_log_of(own, made(folder / "other", "CD", 900, 1_600_000_000_000))


def of_the_same_topics(folder: Path) -> Path:
    own = made(folder / "store", "AB", 300, 1_700_000_000_000)
    return with_log_of(own, made(folder / "other", "ABC", 900, 1_700_000_100_000, 180))


def with_records_in_the_same_places(folder: Path) -> Path:
    own = made(folder / "store", "AB", 300, 1_700_000_000_000, 151)
    return with_log_of(own, made(folder / "other", "CD", 900, 1_600_000_000_000, 151))


def shorter(folder: Path) -> Path:
    own = made(folder / "store", "AB", 300, 1_700_000_000_000)
    return with_log_of(own, made(folder / "other", "CD", 150, 1_600_000_000_000))


def that_begins_later(folder: Path) -> Path:
    own = made(folder / "store", "AB", 100, 1_700_000_000_000)
    other = made(folder / "other", "CD", 900, 1_600_000_000_000)
    for number in range(5):
        (other / "commitlog" / f"{number * SEGMENT:020}").unlink()
    return with_log_of(own, other)


def of_a_copy_that_went_on(folder: Path) -> Path:
    own = made(folder / "store", "AB", 300, 1_700_000_000_000)
    other = Path(shutil.copytree(own, folder / "other"))
    for root, size, count in ((own, 200, 20), (other, 333, 90)):
        with rocketstore.open(root, "a") as store:
            for _ in range(count):
                store.put("A", b"y" * size)
    return with_log_of(own, other)


def after_a_kill(folder: Path) -> Path:
    own = made(folder / "store", "AB", 300, 1_700_000_000_000, killed=True)
    return with_log_of(own, made(folder / "other", "CD", 900, 1_600_000_000_000))


def of_a_broker(folder: Path, name: str, other: str) -> Path:
    own = golden_stores.unpack(name, folder)
    return with_log_of(own, golden_stores.unpack(other, folder / "other"))


KINDS: list[Callable[[Path], Path]] = [
    longer,
    of_the_same_topics,
    with_records_in_the_same_places,
    shorter,
    that_begins_later,
    of_a_copy_that_went_on,
    after_a_kill,
    lambda folder: of_a_broker(folder, "plain-4.9.8", "plain-5.3.3"),
    lambda folder: of_a_broker(folder, "plain-5.1.4", "plain-5.3.3"),  # it begins alike
    lambda folder: of_a_broker(folder, "lag-4.9.8", "plain-4.9.8"),
    lambda folder: of_a_broker(folder, "crash-5.3.3", "plain-4.9.8"),
]


@contextlib.contextmanager
def refused(root: Path) -> Iterator[None]:
    """What is done in the block is refused by name, and nothing changes."""
    before = snapshot(root)
    with pytest.raises(MappedFileError) as caught:
        yield
    for text in (WORDS, str(root / "commitlog"), "store_path_commit_log", "rocketstore.state"):
        assert text in str(caught.value)
    assert snapshot(root) == before


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_and_the_right_one_is_taken_again(
    tmp_path: Path, kind: Callable[[Path], Path]
) -> None:
    root = kind(tmp_path)
    for mode in ("r+", "a"):
        with refused(root):
            rocketstore.open(root, mode)
    for what_if in (True, False):
        with refused(root):
            rocketstore.salvage(root, what_if=what_if)
        with refused(root):
            rocketstore.recover(root, what_if=what_if)
    shutil.rmtree(root / "commitlog")
    (root.with_name("right")).rename(root / "commitlog")
    with rocketstore.open(root) as store:
        ends = {
            (topic, queue): store.max_offset_in_queue(topic, queue)
            for topic in store.topics()
            for queue in store.queues(topic)
        }
    with rocketstore.open(root, "a") as store:
        assert not store.recovery_report.damaged
        assert {key: store.max_offset_in_queue(*key) for key in ends} == ends
        first = next(key for key in ends if not key[0].startswith("%LMQ%"))
        assert store.put(first[0], b"next", first[1]).queue_offset == ends[first]
    assert not (root / "quarantine").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_readers_say_so(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    root = kind(tmp_path)
    with rocketstore.open(root) as store:
        assert WORDS in store.recovery_report.damaged[0].reason
        with pytest.raises(rocketstore.CorruptMessageError, match=WORDS):
            list(store.scan())
        assert list(store.scan(on_corruption="skip"))
    report = verify_files(root, rocketstore.MessageStoreConfig())
    assert report.findings[0].kind == "another-log"


def test_commands_say_so(tmp_path: Path) -> None:
    root = that_begins_later(tmp_path)
    before = snapshot(root)
    for words in (
        ("put", root, "A", "x"),
        ("clean", root, "--hours", 0),
        ("clean", root, "--hours", 0, "--what-if"),
        ("salvage", root),
        ("recover", root),
        ("get", root, "A", 0),
        ("scan", root),
    ):
        assert WORDS in run(*words, code=3).stderr
    assert WORDS in run("info", root, "--format", "csv", code=1).stdout
    reported = run("verify", root, "--json", code=1).stdout
    assert WORDS in reported
    assert '"command": ["rocketstore"' not in reported
    assert snapshot(root) == before


def test_an_open_reader_does_not_go_on_with_it(tmp_path: Path) -> None:
    own = made(tmp_path / "store", "AB", 100, 1_700_000_000_000)
    other = made(tmp_path / "other", "CD", 900, 1_600_000_000_000)
    for number in range(5):
        (other / "commitlog" / f"{number * SEGMENT:020}").unlink()
    with rocketstore.open(own) as store:
        with_log_of(own, other)
        with pytest.raises(MappedFileError, match=WORDS):
            store.refresh()
        assert sum(1 for _ in store.scan()) == 100


# --- what is no other store's log -----------------------------------------------------------------


def with_other_queues(root: Path, other: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(other / "consumequeue", root / "consumequeue")


@pytest.mark.parametrize(
    ("name", "other"), [("plain-4.9.8", "plain-5.3.3"), ("crash-5.3.3", "lag-4.9.8")]
)
def test_queues_of_another_store_are_rebuilt(tmp_path: Path, name: str, other: str) -> None:
    root = golden_stores.unpack(name, tmp_path)
    with_other_queues(root, golden_stores.unpack(other, tmp_path / "other"))
    with rocketstore.open(root, "a") as store:
        assert not store.recovery_report.damaged
        assert store.verify().ok


def test_a_log_that_was_lost_as_a_whole_and_filled(tmp_path: Path) -> None:
    root = made(tmp_path / "store", "AB", 300, 1_700_000_000_000)
    for path in sorted((root / "commitlog").iterdir()):
        path.write_bytes(b"\x55" * SEGMENT)
    before = shutil.copytree(root / "consumequeue", tmp_path / "queues")
    rocketstore.salvage(root)
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(before, root / "consumequeue")
    with rocketstore.open(root, "a") as store:
        assert store.put("A", b"next").ok


def test_old_queues_and_topics_without_a_log(tmp_path: Path) -> None:
    root = made(tmp_path / "store", "AB", 300, 1_700_000_000_000)
    shutil.copytree(root / "consumequeue", tmp_path / "old")
    with rocketstore.open(root, "a", clock=Clock(1_700_001_000_000)) as store:
        for number in range(600):
            store.put("B", b"%d" % number * 30)
    rocketstore.open(root, "a").close()
    run("clean", root, "--hours", 0)
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(tmp_path / "old", root / "consumequeue")
    with rocketstore.open(root, "a") as store:
        assert not store.recovery_report.damaged


def test_one_wrong_queue_is_that_queues_damage(tmp_path: Path) -> None:
    root = made(tmp_path / "store", "A", 300, 1_700_000_000_000)
    other = made(tmp_path / "other", "A", 300, 1_600_000_000_000, 180)
    with_other_queues(root, other)
    (root / "rocketstore.state").unlink()
    with rocketstore.open(root, "a") as store:
        assert not store.recovery_report.damaged
        assert store.verify().ok
