"""A queue or index file is truncated while the store is written: errors name it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore import DefaultMessageStore, ServiceFailedError, kernels
from support.command_line import make_store

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there"),
    pytest.mark.skipif(kernels.name != "native", reason="only native kernels are guarded"),
]

CALLS: dict[str, Callable[[DefaultMessageStore], object]] = {
    "flush": lambda store: store.flush(),
    "query_message": lambda store: store.query_message("TopicA", "k1"),
    "find": lambda store: list(store.find(topic="TopicA", key="k1")),
    "index_offsets": lambda store: store.index_offsets("TopicA", ["k1"]),
    "clean_expired": lambda store: store.clean_expired(),
    "verify": lambda store: store.verify(),
    "get_message": lambda store: store.get_message("g", "TopicA", 0, 0),
    "by time": lambda store: store.get_offset_in_queue_by_time("TopicA", 0, 1_700_000_001_000),
}


def shorten(root: Path, name: str) -> Path:
    folder, number = name.split(" ")
    path: Path = sorted((root / folder).iterdir())[int(number)]
    os.truncate(path, 0)
    return path


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("name", ["index -1", "consumequeue/TopicA/0 -1"])
def test_dispatch_into_a_file_that_was_truncated(tmp_path: Path, name: str, start: bool) -> None:
    """A healthy log file was blamed."""
    root = make_store(tmp_path / "s")
    store = rocketstore.open(root, "r+", start=start)
    assert store.put("TopicA", b"x", 0, keys="k").ok
    assert store.wait_dispatched(60)
    path = shorten(root, name)
    assert store.put("TopicA", b"x", 0, keys="k").ok
    for call in (lambda: store.wait_dispatched(60), store.flush, store.close):
        with pytest.raises((ServiceFailedError, OSError), match=path.name) as caught:
            call()
        assert "commitlog" not in str(caught.value)


@pytest.mark.parametrize("name", ["index -1", "index 0", "consumequeue/TopicA/0 0"])
def test_calls_that_meet_a_file_that_was_truncated(tmp_path: Path, name: str) -> None:
    """``the mapped file was shortened``, and no word which."""
    root = make_store(tmp_path / "s")
    store = rocketstore.open(root, "r+", start=False)
    path = shorten(root, name)
    met = 0
    for call in CALLS.values():
        try:
            call(store)
        except (OSError, rocketstore.RocketStoreError) as error:
            assert str(path) in str(error)  # noqa: PT017 - not all calls meet it
            met += 1
    assert met >= 3
    with contextlib.suppress(ServiceFailedError, OSError):  # a full queue file is not missed
        store.close()
