"""A process that puts timer messages, killed at random moments: what it acknowledged waits, once,
for a broker, and the report of the timer says so."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import rocketstore
from crash import killing
from crash.abandoning import abandon
from crash.timing_writer import OPTIONS
from rocketstore import formats
from support.timer_files import NOW

WRITER = Path(__file__).with_name("timing_writer.py")
KILLS = int(os.environ.get("ROCKETSTORE_TIMED_PUT_KILLS", "2"))


def check_waiting(root: Path) -> int:
    """Check that exactly the log's timer messages wait, each with its place; return how many."""
    with rocketstore.open(root) as reader:
        report = reader.timers()
        waiting = list(report.pending)
        stored = [m.detach() for m in reader.scan() if m.topic == formats.TOPIC_TIMER]
        assert report.findings == []
        assert len(report) == report.not_enqueued == len(stored)
    assert sorted(one.message.physical_offset for one in waiting) == [
        message.physical_offset for message in stored
    ]
    for one in waiting:
        assert one.topic in ("Orders", "Payments")
        assert one.queue_id in (0, 1)
        assert 0 < one.due - one.message.born_timestamp <= 259_200_000
    assert [m.queue_offset for m in stored] == list(range(len(stored)))
    return len(waiting)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_killed_writer_loses_no_timer_message(
    flush_disk_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killing, "WRITER", WRITER)
    name = f"{flush_disk_type}-{random.SystemRandom().randrange(1 << 31)}"
    print(f"seed {name!r}")
    chance = random.Random(name)
    root, acknowledged = tmp_path / "store", killing.Acknowledged()
    for kill in range(KILLS):
        moment = killing.KillMoment.choose(chance)
        least = 30 if kill == 0 else 0
        output = killing.run_and_kill(root, flush_disk_type, kill, moment, least_rows=least)
        acknowledged.take(output)
        if (root / "commitlog").exists():
            check_waiting(root)
    killing.check_store(root, acknowledged)
    timed = [row for row in acknowledged.rows if row[1] == formats.TOPIC_TIMER]
    assert check_waiting(root) >= len(timed) > 0


@pytest.mark.parametrize("kept", [0, 1, 4, 20, -1])
def test_a_torn_timer_message_is_truncated_and_its_place_given_again(
    kept: int, tmp_path: Path
) -> None:
    """Of the last record, the first ``kept`` bytes are on disk, or all but the last one."""
    root = tmp_path / "store"
    options = {**OPTIONS, "clock": lambda: NOW, "start": False}
    store = rocketstore.open(root, "a", **options)
    wish = {formats.PROPERTY_TIMER_DELAY_SEC: "3600"}
    for number in range(3):
        last = store.put("Orders", b"%d" % number, properties=wish)
    store.wait_dispatched()
    start, end = last.physical_offset, store.max_physical_offset
    assert start is not None
    abandon(store)
    with open(root / "commitlog" / f"{0:020}", "r+b") as file:
        file.seek(start + kept if kept >= 0 else end + kept)
        file.write(bytes(end - file.tell()))
    with rocketstore.open(root, "r+", **options) as store:
        # A record whose last byte, a separator, is lost is still whole for its checks.
        left = 2 if store.max_physical_offset == start else 3
        assert len(store.timers()) == left
        assert store.put("Orders", b"again", properties=wish).queue_offset == left
        store.wait_dispatched()
        report = store.timers()
        assert [bytes(one.message.body) for one in report.pending][-1] == b"again"
        assert report.findings == []
        assert store.verify().findings == []
    assert left == 2 or kept == -1
