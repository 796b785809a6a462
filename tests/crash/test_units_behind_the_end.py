"""Units of records that were lost with the log's end, in a queue whose other messages expired.

When the log has grown past their offsets they would be taken for messages.
"""

from __future__ import annotations

from pathlib import Path

import rocketstore
from crash.abandoning import abandon
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
