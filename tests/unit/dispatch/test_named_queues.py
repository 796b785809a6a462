"""Queues that records name, across an upgrade from a line that dispatched into more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from rocketstore import formats

NAMES = {formats.PROPERTY_INNER_MULTI_DISPATCH: "%LMQ%a,Copies"}


def bodies(store: rocketstore.DefaultMessageStore, topic: str) -> list[bytes]:
    return [message.body for message in store.get_message("g", topic, 0, 0).messages]


@pytest.mark.parametrize("has_state", [True, False], ids=["with marks", "as a broker leaves it"])
def test_an_upgrade_keeps_what_4_9_dispatched(tmp_path: Path, has_state: bool) -> None:
    # 4.9 dispatches into any queue named, and records of retry topics too; 5.1.1 does neither. A
    # store that 4.9 had written was compared by the newer rules when it was opened as 5.1.4, and
    # messages vanished from their light queues.
    root = tmp_path / "store"
    options = {"enable_lmq": True, "enable_multi_dispatch": True}
    with rocketstore.open(root, "x", broker_version="4.9.8", **options) as store:
        for number, topic in enumerate(["T", "%RETRY%g", "T"]):
            assert store.put(topic, b"old %d" % number, properties=NAMES).ok
    if not has_state:
        (root / formats.STATE_FILE).unlink()
    old = [b"old 0", b"old 1", b"old 2"]
    for mode in ("r", "r+", "r"):
        with rocketstore.open(root, mode, broker_version="5.1.4", **options) as store:
            assert bodies(store, "%LMQ%a") == old
            assert bodies(store, "Copies") == old
    with rocketstore.open(root, "r+", broker_version="5.1.4", **options) as store:
        light = {formats.PROPERTY_INNER_MULTI_DISPATCH: "%LMQ%a"}
        assert store.put("T", b"new", properties=light).ok
        assert store.wait_dispatched()
        assert bodies(store, "%LMQ%a") == [*old, b"new"]
        assert bodies(store, "Copies") == old
    with rocketstore.open(root, "r", broker_version="5.1.4", **options) as store:
        assert bodies(store, "%LMQ%a") == [*old, b"new"]
        assert bodies(store, "Copies") == old
