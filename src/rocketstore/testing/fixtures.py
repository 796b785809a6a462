"""The pytest fixtures of ``rocketstore.testing``."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore.arguments import Mode
from rocketstore.config import MessageStoreConfig
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store
from rocketstore.testing.invariants import check_invariants

__all__ = ["SMALL_FILES", "golden_store", "rocket_consumer", "rocket_store"]

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


@pytest.fixture
def rocket_consumer(
    rocket_store: Callable[..., DefaultMessageStore],
) -> Iterator[Callable[..., Any]]:
    """Open consumers; close them when the test ends, before its stores are closed and checked.

    ``rocket_consumer(store, group, topics, drained=False, **options)`` returns
    ``store.consumer(group, topics, **options)``, whose loops end when no message is left:
    ``idle_timeout_s`` is 0 unless it is given. With ``drained=True`` the test fails if messages of
    the consumer's queues are left that it has not settled.
    """
    opened: list[tuple[Any, bool]] = []

    def consume(
        store: DefaultMessageStore,
        group: str,
        topics: str | Iterable[str],
        *,
        drained: bool = False,
        **options: Any,
    ) -> Any:
        consumer = store.consumer(group, topics, **{"idle_timeout_s": 0, **options})
        opened.append((consumer, drained))
        return consumer

    yield consume
    left = [words for consumer, drained in opened if drained and (words := _left(consumer))]
    for consumer, _ in opened:
        consumer.close()
    assert not left, "\n".join(left)


def _left(consumer: Any) -> str:
    """Return which messages a consumer has not settled, "" if there are none."""
    if consumer.closed:
        return (
            f"the consumer of the group {consumer.group} was closed in the test: leave that to "
            "rocket_consumer, which looks first what is not settled"
        )
    queues = [
        f"{topic} {queue_id}: {count} from offset {consumer.positions[topic, queue_id]} on"
        for (topic, queue_id), count in sorted(consumer.lag.items())
        if count
    ]
    return f"the group {consumer.group} has not settled {'; '.join(queues)}" if queues else ""


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
