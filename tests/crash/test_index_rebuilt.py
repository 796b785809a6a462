"""A rebuilt index is not on disk yet, and no other file may claim that it is.

Recovery found an index file missing and rebuilt the index from the log, but kept the old state
file, which said that the keys were on disk in one file. After a power failure before the next
flush there was one torn file, recovery trusted it, and no query found older keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.abandoning import abandon
from rocketstore.directory.state import StoreState
from rocketstore.files import mapped_file
from rocketstore.files.mapped_file import MappedFile
from rocketstore.testing import check_invariants

COUNT = 60

pytestmark = pytest.mark.usefixtures("index_check")


@pytest.mark.parametrize("damage", ["missing", "empty", "older"])
def test_no_file_claims_that_a_rebuilt_index_is_on_disk(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    nums = 40 if damage == "older" else 200
    store = rocketstore.open(root, "x", start=False, max_hash_slot_num=7, max_index_num=nums)
    for number in range(COUNT):
        store.put("T", b"old", 0, "Tag", f"k{number}")
    store.wait_dispatched()
    store.flush()
    abandon(store)
    first = min((root / "index").iterdir())
    if damage == "missing":
        first.unlink()
    else:
        first.write_bytes(bytes(first.stat().st_size))
    events: list[tuple[str, bool]] = []
    state = root / "rocketstore.state"
    create, flush, write = mapped_file.create_sized_file, MappedFile.flush, StoreState.write

    def watched_create(path: Path, *arguments: Any) -> None:
        events.append((f"create {path.parent.name}", state.exists()))
        create(path, *arguments)

    def watched_flush(file: MappedFile, position: int) -> None:
        events.append((f"sync {file.path.parent.name}", state.exists()))
        flush(file, position)

    def watched_write(written: StoreState, path: Path) -> None:
        events.append(("write state", state.exists()))
        write(written, path)

    monkeypatch.setattr(mapped_file, "create_sized_file", watched_create)
    monkeypatch.setattr(MappedFile, "flush", watched_flush)
    monkeypatch.setattr(StoreState, "write", watched_write)
    store = rocketstore.open(root, "r+", start=False)
    abandon(store)
    names = [name for name, _ in events]
    assert ("create index", False) in events
    assert ("create index", True) not in events
    assert names.index("sync index") < names.index("write state")
    monkeypatch.undo()
    with rocketstore.open(root, "r+", start=False) as store:
        for number in range(COUNT):
            assert len(list(store.find(topic="T", key=f"k{number}"))) == 1
    check_invariants(root).require()
