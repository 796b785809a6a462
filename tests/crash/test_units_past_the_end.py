"""Units of records that were lost with the log's end, in a queue whose other messages expired.

When the log has grown past their offsets they would be taken for messages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.abandoning import abandon
from rocketstore import formats
from rocketstore.testing import check_invariants

OPTIONS = {"mapped_file_size_commit_log": 4096, "file_reserved_time": 0}


def test_units_of_lost_records_do_not_stay(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = rocketstore.open(root, "x", start=False, **OPTIONS)
    store.put("Seldom", b"expired")
    while store.max_physical_offset < 3 * 4096:
        store.put("Often", bytes(300))
    assert store.wait_dispatched()
    store.flush()
    store.clean_expired()
    assert store.min_physical_offset > 0
    assert store.min_offset_in_queue("Seldom", 0) == 1
    end = store.max_physical_offset
    for _ in range(3):
        store.put("Seldom", b"lost")
    assert store.wait_dispatched()
    abandon(store)
    for file in (root / "commitlog").iterdir():
        with file.open("r+b") as segment:
            position = max(end - int(file.name), 0)
            if position < 4096:
                segment.seek(position)
                segment.write(bytes(4096 - position))
    units = root / "consumequeue/Seldom/0/00000000000000000000"
    assert units.read_bytes()[20:80].strip(b"\0")
    with rocketstore.open(root, "r+", start=False, **OPTIONS) as store:
        assert store.max_physical_offset == end
        assert not units.read_bytes()[20:].strip(b"\0")
        store.put_many([rocketstore.Message("Often", bytes(300))] * 10)
    with rocketstore.open(root, "r+", start=False, **OPTIONS) as store:
        assert store.max_offset_in_queue("Seldom", 0) == 1
        assert store.verify().ok
    check_invariants(root).require()


@pytest.mark.parametrize("kind", ["plain", "batch"])
def test_files_filled_since_the_last_marks_are_no_missing_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Recovery searches a queue's end in its last three files. If a killed writer had filled as
    many since its last marks, recovery found no unit and emptied the queue. It then rebuilt all
    queues from the log's beginning, which fails if an old part of the log is damaged."""
    monkeypatch.setattr("rocketstore.store.dispatch_recovery.COMPARED_NBYTES", 0)
    root = tmp_path / "store"
    options: dict[str, Any] = {
        "mapped_file_size_consume_queue": 400,
        "mapper_file_size_batch_consume_queue": 460,
    }
    others: dict[str, Any] = {}
    if kind == "batch":
        options["topic_attributes"] = {"T": {"queue.type": "BatchCQ"}}
        inner = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP
        others = {"sys_flag": inner, "properties": {"INNER_NUM": "2"}}
    store = rocketstore.open(root, "x", start=False, **options)
    for _ in range(30):
        assert store.put("T", b"durable", keys="k", **others).ok
        assert store.put("Other", b"durable", keys="k").ok
    assert store.wait_dispatched()
    store.flush()
    for _ in range(100):
        assert store.put("T", b"since", keys="k", **others).ok
    assert store.wait_dispatched()
    end = store.max_offset_in_queue("T", 0)
    abandon(store)
    with rocketstore.open(root, "r+", start=False, **options) as store:
        assert store.recovery_report.notes == []
        assert store.recovery_report.rebuilt_units == 100
        assert store.max_offset_in_queue("T", 0) == end
        assert store.max_offset_in_queue("Other", 0) == 30
        assert store.verify().findings == []
