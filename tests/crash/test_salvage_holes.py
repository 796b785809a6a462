"""Logs that lack a file, in the middle or at their end: salvage fills what is lost, keeps what is
left, and gives no offset out twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import rocketstore
from crash.salvaging import tree
from golden import golden_stores


def middle_gone(files: list[Path]) -> None:
    """One file in the middle is gone."""
    files[len(files) // 2].unlink()


def last_renamed(files: list[Path]) -> None:
    """The last file has the name of the next one."""
    size = int(files[1].name) - int(files[0].name)
    files[-1].rename(files[-1].with_name(f"{int(files[-1].name) + size:020d}"))


def second_short(files: list[Path]) -> None:
    """A file in the middle was truncated."""
    os.truncate(files[1], 30_000)


def second_empty(files: list[Path]) -> None:
    """A file in the middle has no bytes."""
    os.truncate(files[1], 0)


def two_gone(files: list[Path]) -> None:
    """Two files that are no neighbours are gone."""
    files[1].unlink()
    files[3].unlink()


def last_gone(files: list[Path]) -> None:
    """The newest file is gone."""
    files[-1].unlink()


def last_empty(files: list[Path]) -> None:
    """The newest file has no bytes."""
    os.truncate(files[-1], 0)


def last_two_gone(files: list[Path]) -> None:
    """The two newest files are gone."""
    files[-1].unlink()
    files[-2].unlink()


def pulled(store: rocketstore.DefaultMessageStore, topic: str, queue_id: int) -> dict[int, int]:
    """Log and queue offsets of what one pull after another gives, from the queue's beginning."""
    found: dict[int, int] = {}
    offset = store.min_offset_in_queue(topic, queue_id)
    while True:
        result = store.get_message("g", topic, queue_id, offset, 32)
        found.update((m.physical_offset, m.queue_offset) for m in result.messages)
        if result.next_begin_offset <= offset:
            return found
        offset = result.next_begin_offset


def places(root: Path) -> tuple[dict[int, bytes], dict[tuple[str, int], dict[int, int]], int]:
    """What is in the log by offset, what is pulled of each queue, and the log's end."""
    with rocketstore.open(root) as store:
        log = {m.physical_offset: bytes(m.body) for m in store.scan()}
        queues = {(t, q): pulled(store, t, q) for t in store.topics() for q in store.queues(t)}
        return log, queues, store.max_physical_offset


def check(root: Path, damage: Callable[[list[Path]], None], *, unknown: Sequence[str] = ()) -> None:
    """``unknown``: topics whose last messages were in no queue yet."""
    log, queues, end = places(root)
    damage(sorted((root / "commitlog").iterdir()))
    before = tree(root)
    planned = rocketstore.salvage(root, what_if=True)
    assert planned.was_needed
    assert tree(root) == before
    report = rocketstore.salvage(root)
    assert (report.damaged, report.placeholders, report.gaps) == (
        planned.damaged,
        planned.placeholders,
        planned.gaps,
    )
    assert report.gaps == []
    lost = {o for o in log if any(one.start <= o < one.stop for one in report.damaged)}
    assert lost
    kept, now, _ = places(root)
    assert {offset: kept.get(offset) for offset in log.keys() - lost} == {
        offset: body for offset, body in log.items() if offset not in lost
    }
    for name, found in queues.items():
        left = {offset: number for offset, number in found.items() if offset not in lost}
        assert left.items() <= now.get(name, {}).items()
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.clean
        assert not store.recovery_report.damaged
        for (topic, queue_id), found in queues.items():
            if topic.startswith("%LMQ%") or not found:
                continue
            done = store.put(topic, b"new", queue_id)
            assert done.physical_offset >= end
            if topic not in unknown:
                assert done.queue_offset > max(found.values())
    assert not rocketstore.salvage(root, what_if=True).was_needed


@pytest.mark.parametrize("damage", [middle_gone, last_renamed, second_short, second_empty])
@pytest.mark.parametrize("name", ["crash-4.9.8", "crash-5.3.3", "lag-5.3.3"])
def test_a_hole_after_a_crash_is_filled(
    name: str, damage: Callable[[list[Path]], None], tmp_path: Path
) -> None:
    """Behind the hole lay nothing but zeros, so that it was no damage, and no torn end either:
    ``salvage`` had nothing to do, and every opening for writing was refused."""
    root = golden_stores.unpack(name, tmp_path)
    if damage is last_renamed:
        log, _, end = places(root)
        last_renamed(sorted((root / "commitlog").iterdir()))
        assert rocketstore.salvage(root, what_if=True).was_needed
        rocketstore.salvage(root)
        assert places(root)[0] == log  # it held no record yet
        with rocketstore.open(root, "r+") as store:
            assert store.put("T", b"new").physical_offset >= end
        return
    check(root, damage)


def test_several_holes_after_a_crash_are_filled(tmp_path: Path) -> None:
    check(golden_stores.unpack("lag-4.9.8", tmp_path), two_gone, unknown=["Burst"])


@pytest.mark.parametrize(
    ("name", "damage", "with_state"),
    [
        pytest.param(name, damage, with_state, id=f"{name}-{damage.__name__}-{with_state}")
        for row, name in enumerate(["plain-4.9.8", "plain-5.3.3", "crc-5.3.3", "plain-5.5.0"])
        for column, damage in enumerate([last_gone, last_empty, last_two_gone])
        for with_state in [(row + column) % 2 == 0]
    ],
)
def test_a_lost_end_is_rewritten_after_an_orderly_stop(
    name: str, damage: Callable[[list[Path]], None], with_state: bool, tmp_path: Path
) -> None:
    """Log offsets and queue offsets of synced messages were given out again."""
    root = golden_stores.unpack(name, tmp_path)
    if with_state:
        rocketstore.open(root, "r+").close()
    check(root, damage)


def test_a_lost_end_is_known_by_the_state_file_alone(tmp_path: Path) -> None:
    """Queues and index gone too: what was flushed is not given out again."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    with rocketstore.open(root, "r+") as store:
        end = store.max_physical_offset
    last_gone(sorted((root / "commitlog").iterdir()))
    for name in ("consumequeue", "index"):
        (root / name).rename(tmp_path / name)
    report = rocketstore.salvage(root)
    assert report.damaged[-1].stop == end
    with rocketstore.open(root) as opened:
        assert opened.max_physical_offset >= end


def test_after_a_crash_a_lost_end_is_truncated(tmp_path: Path) -> None:
    root = golden_stores.unpack("crash-5.3.3", tmp_path)
    files = sorted((root / "commitlog").iterdir())
    for path in files[2:]:
        path.unlink()
    assert not rocketstore.salvage(root, what_if=True).was_needed
