"""The pytest fixtures of ``rocketstore.testing``."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore.arguments import Mode
from rocketstore.config import MessageStoreConfig
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store
from rocketstore.testing.invariants import check_invariants

__all__ = ["SMALL_FILES", "golden_store", "rocket_store"]

#: Small files, so that a test's store rolls often and needs little disk space.
SMALL_FILES: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


@pytest.fixture
def rocket_store(tmp_path: Path) -> Iterator[Callable[..., DefaultMessageStore]]:
    """Open stores; close and check them when the test ends.

    ``rocket_store(name="store", mode="a", **options)`` opens ``tmp_path / name`` with small files;
    ``options`` are those of ``rocketstore.open``. After the test all stores are closed, and each
    store that was open for writing is checked with ``check_invariants``.
    """
    opened: list[tuple[DefaultMessageStore, dict[str, Any]]] = []

    def open_named(name: str = "store", mode: Mode = "a", **options: Any) -> DefaultMessageStore:
        root = tmp_path / name
        sizes = {} if root.exists() or "config" in options else SMALL_FILES
        store = open_store(root, mode, **{**sizes, **options})
        opened.append((store, options))
        return store

    yield open_named
    for store, _ in opened:
        store.close()
    written = {store.path: options for store, options in opened if store.mode != "r"}
    for root, options in written.items():
        check_invariants(root, config=_config_of(options), clock_steps=True).require()


def _config_of(options: dict[str, Any]) -> MessageStoreConfig:
    """Return the configuration among the options of ``rocketstore.open``."""
    names = {field.name for field in dataclasses.fields(MessageStoreConfig)}
    fields = {name: value for name, value in options.items() if name in names}
    config = options.get("config")
    return MessageStoreConfig(**fields) if config is None else config.replace(**fields)


@pytest.fixture
def golden_store(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[str | os.PathLike[str]], Path]:
    """Copy a stored golden store, so that the test can read or write the copy.

    ``golden_store(source)`` takes a store's directory, or a tar archive with a ``commitlog`` folder
    at any depth, and returns the root of the copy below ``tmp_path``. A relative ``source`` is
    relative to the test file's folder. Modification times are kept, because RocketMQ up to 5.1.0
    answers by them. The source is not changed.
    """

    def copy_of(source: str | os.PathLike[str]) -> Path:
        path = Path(request.path).parent / source
        if not path.exists():
            raise FileNotFoundError(f"there is no golden store {path}")
        target = tmp_path / f"golden-{sum(1 for _ in tmp_path.glob('golden-*'))}"
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            _unpack(path, target)
        logs = [found for found in target.rglob("commitlog") if found.is_dir()]
        if len(logs) != 1:
            raise ValueError(f"{path} must have one folder named commitlog, not {len(logs)}")
        return logs[0].parent

    return copy_of


def _unpack(path: Path, target: Path) -> None:
    with tarfile.open(path) as archive:
        # Python before 3.11.4 has no filters.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(target, **safe)
