"""The thread that delivers: woken by arrivals, by due time, and stopped with the store."""

from __future__ import annotations

import errno
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.config_managers import DelayOffsetManager
from rocketstore.errors import ServiceFailedError, StoreFullError
from support.delayed_stores import DelayedStore, bodies, deliveries

#: A deadline, not a goal: the machine may be busy.
PATIENCE_S = 30.0


def live(root: Path, **options: Any) -> rocketstore.DefaultMessageStore:
    values = {"schedule_message_enable": True, "message_delay_level": "1s 2s", **options}
    return rocketstore.open(root, "a", **values)


def await_deliveries(store: rocketstore.DefaultMessageStore, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(deliveries(store)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_d_52_messages_are_delivered_by_due_time_and_not_by_tick(tmp_path: Path) -> None:
    with live(tmp_path / "s") as store:
        for number in range(20):
            store.put("T", b"%d" % number, delay_level=1 + number % 2)
            time.sleep(0.003)
        await_deliveries(store, 20)
        due = {m.body: m.store_timestamp for m in store.scan() if m.topic != "T"}
        late = [m.store_timestamp - due[m.body] - 1000 * m.delay_level for m in deliveries(store)]
        assert min(late) >= 0
        # Half of a tick of a broker; the figures of a quiet machine are in the benchmarks.
        assert sorted(late)[len(late) // 2] <= 50


def test_an_idle_service_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path / "s") as store:
        service = store.delay_service
        assert service is not None
        steps: list[float] = []
        run_once = service.run_once

        def counting() -> bool:
            steps.append(time.monotonic())
            return run_once()

        time.sleep(0.1)
        monkeypatch.setattr(service, "run_once", counting)
        for _ in range(50):
            store.put("Other", b"x")
        store.wait_dispatched()
        time.sleep(0.2)
        assert steps == []


def test_without_the_option_nothing_is_delivered(tmp_path: Path) -> None:
    with live(tmp_path / "s", schedule_message_enable=False) as store:
        store.put("T", b"x", delay_level=1)
        time.sleep(1.1)
        assert bodies(store) == []
        assert store.delay_service is None
        assert store.delays().overdue == 1
    assert not (tmp_path / "s" / "config").exists()


def test_what_became_due_while_the_store_was_closed_is_delivered_at_opening(
    tmp_path: Path,
) -> None:
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
    delayed.clock.now += 1000
    with delayed.open(start=True, schedule_message_enable=True) as store:
        await_deliveries(store, 1)


def test_closing_stops_the_thread_and_persists(tmp_path: Path) -> None:
    store = live(tmp_path / "s")
    for number in range(3):
        store.put("T", b"%d" % number, delay_level=1)
    await_deliveries(store, 3)
    store.close()
    assert not any(thread.name == "rocketstore-delay" for thread in threading.enumerate())
    manager = DelayOffsetManager(tmp_path / "s")
    assert manager.load()
    assert manager.offset_table == {1: 3}


def test_offsets_are_persisted_at_intervals(tmp_path: Path) -> None:
    with live(tmp_path / "s", flush_delay_offset_interval=1) as store:
        store.put("T", b"x", delay_level=1)
        await_deliveries(store, 1)
        deadline = time.monotonic() + PATIENCE_S
        manager = DelayOffsetManager(tmp_path / "s")
        while not manager.load() or manager.offset_table != {1: 1}:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_offsets_are_not_written_before_their_deliveries_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
        delayed.clock.now += 1000
        store.deliver_due()
        service = store.delay_service
        assert service is not None
        order: list[str] = []
        sync, save = service._sync_log, service._table.save
        monkeypatch.setattr(service, "_sync_log", lambda: (order.append("sync"), sync()))
        monkeypatch.setattr(
            service._table, "save", lambda *values: (order.append("save"), save(*values))
        )
        service.persist()
        assert order == ["sync", "save"]
        assert store.flushed_offset == store.max_physical_offset
        service.persist()
        assert order == ["sync", "save"], "nothing changed"


def test_a_full_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with live(tmp_path / "s") as store:
        service = store.delay_service
        assert service is not None
        put, full = service._deliverer._put_staged, [True]

        def refusing(*values: Any) -> int:
            if full:
                raise StoreFullError("no space")
            return put(*values)

        monkeypatch.setattr(service._deliverer, "_put_staged", refusing)
        with caplog.at_level(logging.WARNING, "rocketstore"):
            store.put("T", b"x", delay_level=1)
            deadline = time.monotonic() + PATIENCE_S
            while "the disk is full" not in caplog.text:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert bodies(store) == []
        full.clear()
        await_deliveries(store, 1)


@pytest.mark.parametrize("error", [StoreFullError("no space"), OSError(errno.EMFILE, "files")])
def test_a_table_that_cannot_be_written_now_is_written_later(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open(flush_delay_offset_interval=10) as store:
        store.put("T", b"x", delay_level=1)
        store.deliver_due()
        service = store.delay_service
        assert service is not None
        save, errors = service._table.save, [error]

        def failing(*values: Any) -> None:
            if errors:
                raise errors.pop()
            save(*values)

        monkeypatch.setattr(service._table, "save", failing)
        delayed.clock.now += 1000
        service.run_once()
        assert bodies(store) == [b"x"]
        assert not (delayed.root / "config" / "delayOffset.json").exists()
        delayed.clock.now += 1000
        service.run_once()
        assert not errors
        assert '"1":1' in (delayed.root / "config" / "delayOffset.json").read_text()


def test_another_error_fails_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = live(tmp_path / "s")
    service = store.delay_service
    assert service is not None

    def failing(*_: Any) -> int:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(service._deliverer, "_put_staged", failing)
    store.put("T", b"x", delay_level=1)
    deadline = time.monotonic() + PATIENCE_S
    while service.failure is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(ServiceFailedError):
        store.close()


def test_by_hand_and_by_thread_at_once(tmp_path: Path) -> None:
    with live(tmp_path / "s") as store:
        for number in range(2000):
            store.put("T", b"%d" % number, delay_level=1)
        deadline = time.monotonic() + PATIENCE_S
        while len(deliveries(store)) < 2000:
            store.deliver_due(max_count=7)
            assert time.monotonic() < deadline
        assert bodies(store) == [b"%d" % number for number in range(2000)]
