"""Stores for counting: created, filled and deleted without threads of their own."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rocketstore
from check import messages
from rocketstore import DefaultMessageStore

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 128 << 20,
    "max_hash_slot_num": 50_000,
    "max_index_num": 200_000,
}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Return an empty folder whose path always has the same length; delete it at the end."""
    # The steps of opening a store depend on the length and depth of its path.
    path = Path(tempfile.mkdtemp(prefix="bench-check-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def allocate(store: DefaultMessageStore) -> None:
    """Do what the thread for disk blocks and pages does before puts, so that they find both."""
    assert store._writer is not None
    while store._writer.allocate.run_once():
        pass


@contextlib.contextmanager
def empty(**options: Any) -> Iterator[DefaultMessageStore]:
    """Return an empty store without running services, ready for puts."""
    with (
        folder() as path,
        rocketstore.open(path / "store", "x", start=False, **{**OPTIONS, **options}) as store,
    ):
        allocate(store)
        yield store


@contextlib.contextmanager
def filled(count: int, nbytes: int, **options: Any) -> Iterator[DefaultMessageStore]:
    """Return a store with ``count`` dispatched messages."""
    with empty(**options) as store:
        assert len(store.put_many(messages.many(count, nbytes))) == count
        assert store.wait_dispatched()
        yield store
