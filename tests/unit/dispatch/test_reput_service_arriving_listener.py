"""Arriving listeners that call the store: neither waits for the other for ever."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.dispatch.reput_service import ReputMessageService
from support.syncs import LONG_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")

#: Puts wait while dispatch lags more than nine segments: of these, after some 130 messages.
OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 16 * 1024, "broker_version": "5.5.0"}
BODY = bytes(1000)


def run_beside(call: Any) -> None:
    """Run ``call`` on a thread of its own that does not keep a failed test from ending."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_listener_that_puts_more_than_dispatch_may_lag(
    tmp_path: Path, start: bool, flush_disk_type: str
) -> None:
    """Its put waited for dispatch, and dispatch for the listener: for ever."""
    echoes: list[Any] = []

    def echo(topic: str, *_: Any) -> None:
        if topic == "T":
            echoes.append(store.put("Echo", BODY))

    store = rocketstore.open(
        tmp_path / "s",
        "x",
        start=start,
        flush_disk_type=flush_disk_type,
        arriving_listener=echo,
        **OPTIONS,
    )

    def put_and_close() -> None:
        assert store.put_many([rocketstore.Message("T", b"x")] * 200).ok
        while len(echoes) < 200:
            assert store.wait_dispatched(LONG_S)
        store.close()

    run_beside(put_and_close)
    assert store.closed
    assert len(echoes) == 200
    assert all(result.ok for result in echoes)
    with rocketstore.open(tmp_path / "s") as reader:
        assert reader.max_offset_in_queue("Echo", 0) == 200
        assert reader.verify().ok


def test_a_listener_puts_while_others_wait_for_dispatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited for dispatch held the lock under which room is made. A listener that put, and
    needed room, waited for that lock, and with it dispatch and all puts, for ever."""
    waited = threading.Event()
    wait_until = ReputMessageService.wait_until

    def wait_and_tell(service: ReputMessageService, *arguments: Any) -> bool:
        waited.set()
        return wait_until(service, *arguments)

    monkeypatch.setattr(ReputMessageService, "wait_until", wait_and_tell)
    echoes: list[Any] = []

    def echo_once(topic: str, *_: Any) -> None:
        if not echoes:
            assert waited.wait(LONG_S)
            echoes.append(store.put("Echo", BODY))

    store = rocketstore.open(tmp_path / "s", "x", arriving_listener=echo_once, **OPTIONS)

    def put_and_close() -> None:
        for _ in range(300):
            assert store.put("T", BODY).ok
        store.close()

    run_beside(put_and_close)
    assert store.closed
    assert [result.ok for result in echoes] == [True]
    with rocketstore.open(tmp_path / "s") as reader:
        assert reader.max_offset_in_queue("T", 0) == 300
        assert reader.max_offset_in_queue("Echo", 0) == 1


def test_a_listener_that_exits_ends_the_writing(tmp_path: Path) -> None:
    """Only its thread ended, without a report: puts continued, and dispatch had stopped."""

    def leave(*_: Any) -> None:
        raise SystemExit(3)

    store = rocketstore.open(tmp_path / "s", "x", arriving_listener=leave, **OPTIONS)
    reput = store._writing().reput
    assert store.put("T", BODY).ok
    assert reput._thread is not None
    reput._thread.join(LONG_S)
    assert isinstance(reput.failure, SystemExit)
    with pytest.raises(rocketstore.ServiceFailedError):
        store.put("T", BODY)
    with pytest.raises(rocketstore.ServiceFailedError):
        store.close()
    with rocketstore.open(tmp_path / "s", "r+") as reopened:
        assert reopened.max_offset_in_queue("T", 0) == 1
