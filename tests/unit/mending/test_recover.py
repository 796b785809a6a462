"""``recover``: queues, index and checkpoint fit the log again, and no message is added."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from crash.salvaging import tree
from golden import golden_stores
from rocketstore import formats
from rocketstore.dispatch import dispatcher as dispatch
from rocketstore.store.verifying import verify_files
from support.command_line import Result, run


def some_unit_file(root: Path) -> Path:
    return next(path for path in sorted(root.glob("consumequeue/T*/*/*")) if path.is_file())


def wrong_unit(root: Path) -> None:
    with some_unit_file(root).open("r+b") as file:
        file.write(b"\0\0\0\0\0\0\1\1")


def zeroed_unit(root: Path) -> None:
    with some_unit_file(root).open("r+b") as file:
        file.seek(20)
        file.write(bytes(20))


def queue_folder_gone(root: Path) -> None:
    shutil.rmtree(some_unit_file(root).parent)


def queue_file_truncated(root: Path) -> None:
    os.truncate(some_unit_file(root), 100)


def all_queues_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def index_gone(root: Path) -> None:
    shutil.rmtree(root / "index")


def index_hash(root: Path) -> None:
    """A flipped bit in an entry's hash, which opening a store does not look for."""
    path = sorted((root / "index").iterdir())[0]
    with path.open("r+b") as file:
        at = formats.index_file_nbytes(50, 7)
        file.seek(at + 3)
        old = file.read(1)
        file.seek(at + 3)
        file.write(bytes((old[0] ^ 1,)))


def index_file_truncated(root: Path) -> None:
    os.truncate(sorted((root / "index").iterdir())[-1], 2120)


def checkpoint_ahead(root: Path) -> None:
    (root / "checkpoint").write_bytes((2**60).to_bytes(8, "big") * 3 + bytes(4072))


DAMAGE: tuple[Callable[[Path], None], ...] = (
    wrong_unit,
    zeroed_unit,
    queue_folder_gone,
    queue_file_truncated,
    all_queues_gone,
    index_gone,
    index_hash,
    index_file_truncated,
    checkpoint_ahead,
)


@pytest.mark.parametrize("long", [False, True], ids=["compared", "long"])
@pytest.mark.parametrize("name", ["plain-5.3.3", "plain-4.9.8"])
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: one.__name__)
def test_what_verify_finds_is_mended(
    damage: Callable[[Path], None],
    name: str,
    long: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No command mended it but ``put``, which stored a message. ``long``: as in a log of which an
    opening compares the newest units only."""
    root = golden_stores.unpack(name, tmp_path)
    rocketstore.open(root, "r+").close()
    config = rocketstore.MessageStoreConfig()
    damage(root)
    if long:
        monkeypatch.setattr(dispatch, "COMPARED_NBYTES", 0)
        monkeypatch.setattr("rocketstore.store.dispatch_recovery.COMPARED_NBYTES", 0)
    log = {p: found for p, found in tree(root).items() if p.startswith("commitlog")}
    before = tree(root)
    assert not verify_files(root, config).ok
    planned = rocketstore.recover(root, what_if=True)
    assert planned.was_needed
    assert planned.finding_counts
    assert tree(root) == before
    report = rocketstore.recover(root)
    assert report.finding_counts == planned.finding_counts
    assert report.left == {}
    assert verify_files(root, config).ok
    assert {p: found for p, found in tree(root).items() if p.startswith("commitlog")} == log
    assert not rocketstore.recover(root, what_if=True).was_needed


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    with (root / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(30_000)
        log.write(b"\xff" * 100)
    before = tree(root)
    for what_if in (True, False):
        with pytest.raises(rocketstore.CorruptionError):
            rocketstore.recover(root, what_if=what_if)
    assert tree(root) == before


def test_a_torn_end_is_truncated(tmp_path: Path) -> None:
    root = golden_stores.unpack("crash-5.3.3", tmp_path)
    with rocketstore.open(root) as store:
        count = sum(1 for _ in store.scan())
    report = rocketstore.recover(root)
    assert report.was_needed
    assert not report.recovery.clean
    assert not (root / "abort").exists()
    with rocketstore.open(root, "r") as store:
        assert sum(1 for _ in store.scan()) == count


def lines(result: Result) -> str:
    return " ".join(result.stdout.split())


def test_the_command_reports_what_it_does_and_salvage_names_it(tmp_path: Path) -> None:
    """ "Nothing had to be salvaged." was said of a store without queues, exit 0."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    run("recover", root, "--what-if", "-f", "table")
    index_hash(root)
    queue_folder_gone(root)
    reported = run("salvage", root, "--what-if", "-f", "table")
    assert f"rocketstore plan {root} -o plan.json" in lines(reported)
    planned = run("recover", root, "--what-if", "-f", "table", code=1)
    assert "Would repair" in lines(planned)
    done = run("recover", root, "-f", "table")
    assert "Queues and index match the log" in lines(done)
    assert "DamagedRange" not in planned.stdout + planned.stderr
    run("verify", root)


def test_salvage_prints_the_sum_first_and_each_place_once(tmp_path: Path) -> None:
    """It printed the same place three times, as Python objects, with an old file "None"."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (root / "commitlog" / f"{65536:020d}").unlink()
    for words in (["--what-if"], []):
        result = run("salvage", root, *words, "-f", "table", code=len(words))
        text = result.stdout
        assert text.startswith("Lost: 126 messages, 64.0 KiB of the log.\n")
        assert "TopicA: 28 messages, stored between 20" in lines(result)
        assert text.count(f"{65536:020d}: the segment is missing") <= 1
        assert text.count("rewritten") == 1
        assert "None" not in text + result.stderr
        assert "DamagedRange" not in text + result.stderr
