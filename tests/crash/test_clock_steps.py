"""G09: the clock goes back an hour, or forward ten years, between two opens."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.abandoning import abandon
from rocketstore.testing import Acknowledged, check_invariants

HOUR_MS = 3_600_000
TEN_YEARS_MS = 10 * 365 * 24 * HOUR_MS
NOW_MS = 1_763_000_000_000
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 8 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 100,
}
COUNT = 60


def live(root: Path, now: int, first: int, end: str) -> list[Acknowledged]:
    """Open at ``now``, put, and end by ``close``, ``kill`` or ``torn``: a kill, the last record
    torn."""
    ticks = itertools.count(now, 3)
    store = rocketstore.open(root, "a", clock=lambda: next(ticks), start=False, **OPTIONS)
    rows = []
    for number in range(first, first + COUNT):
        body, key = b"body %d" % number, f"k{number}"
        result = store.put("T", body, number % 3, "Tag", key)
        assert result.ok
        rows.append(
            Acknowledged(result.physical_offset, "T", number % 3, result.queue_offset, body, (key,))
        )
        if number == first + COUNT // 2:
            store.wait_dispatched()
            store.flush()
    if end == "close":
        store.close()
        return rows
    abandon(store)
    if end == "torn":
        last = rows.pop().physical_offset
        size = OPTIONS["mapped_file_size_commit_log"]
        with (root / "commitlog" / f"{last - last % size:020d}").open("r+b") as file:
            file.seek(last % size + 88)  # its body, which the CRC covers
            file.write(b"\xff" * 4)
    return rows


@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize("end", ["close", "kill", "torn"])
@pytest.mark.parametrize(
    "steps",
    [(-HOUR_MS,), (TEN_YEARS_MS,), (-HOUR_MS, TEN_YEARS_MS), (TEN_YEARS_MS, 0), (-HOUR_MS, 0)],
    ids=lambda steps: "-".join(str(step // HOUR_MS) for step in steps),
)
def test_g09_clock_steps_between_two_opens(
    steps: tuple[int, ...], end: str, with_state: bool, tmp_path: Path
) -> None:
    root, rows = tmp_path / "s", []
    for number, step in enumerate((0, *steps)):
        rows += live(root, NOW_MS + step + number * 1000, number * COUNT, end)
        if not with_state:
            (root / "rocketstore.state").unlink()
    with rocketstore.open(root, "a", start=False, **OPTIONS) as store:
        report = store.recovery_report
        assert not report.damaged
        assert not report.gaps
        assert len(report.cut) == (end == "torn")
        assert [m.body for m in store.scan()] == [row.body for row in rows]
        for row in rows:
            (key,) = row.keys or ()
            found = store.find(topic="T", key=key)
            assert [m.physical_offset for m in found] == [row.physical_offset]
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    check_invariants(root, acknowledged=rows, clock_steps=True).require()
