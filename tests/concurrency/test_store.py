"""Putters, readers and close at the same time: nothing torn, nothing lost, no crash, no hang."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import GetMessageStatus, PutMessageStatus, StoreClosedError
from rocketstore.testing import check_invariants
from support.syncs import LONG_S

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 50,
    "max_index_num": 500,
}
PUTTERS = 4
PUTS_EACH = 500


def run_all(threads: list[threading.Thread], failures: list[BaseException]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive(), f"{thread.name} hangs"
    assert not failures, failures[0]


def guarded(work: Any, failures: list[BaseException], *arguments: Any) -> threading.Thread:
    def run() -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    return threading.Thread(target=run, name=work.__name__)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_putters_and_readers_agree(flush_disk_type: str, tmp_path: Path) -> None:
    failures: list[BaseException] = []
    acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(PUTTERS)]
    done = threading.Event()
    with rocketstore.open(tmp_path / "s", "x", flush_disk_type=flush_disk_type, **OPTIONS) as store:

        def put(number: int) -> None:
            for index in range(PUTS_EACH):
                body = f"{number}-{index}".encode()
                result = store.put("T", body, index % 3, None, f"key-{number}-{index}")
                assert result.ok, result
                acknowledged[number].append((result.physical_offset, result.queue_offset))

        def read() -> None:
            seen = dict.fromkeys(range(3), 0)
            while not done.is_set() or any(
                seen[q] < store.max_offset_in_queue("T", q) for q in range(3)
            ):
                for queue_id, offset in seen.items():
                    result = store.get_message("g", "T", queue_id, offset)
                    for message in result.messages:
                        assert message.queue_offset == seen[queue_id]
                        number, index = message.body.decode().split("-")
                        assert int(index) % 3 == queue_id
                        assert message.keys == f"key-{number}-{index}"
                        seen[queue_id] += 1
                    if result.status != GetMessageStatus.FOUND:
                        time.sleep(0)
            assert sum(seen.values()) == PUTTERS * PUTS_EACH

        putters = [guarded(put, failures, number) for number in range(PUTTERS)]
        readers = [guarded(read, failures) for _ in range(2)]
        for reader in readers:
            reader.start()
        run_all(putters, failures)
        assert store.wait_dispatched(LONG_S)
        done.set()
        for reader in readers:
            reader.join(LONG_S)
            assert not reader.is_alive(), "a reader hangs"
        assert not failures, failures[0]
        check_invariants(store.path, clock_steps=True, reopen=False).require()
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    offsets = sorted(offset for rows in acknowledged for offset, _ in rows)
    assert len(set(offsets)) == PUTTERS * PUTS_EACH


def test_close_while_others_put_and_read(tmp_path: Path) -> None:
    for round_number in range(10):
        failures: list[BaseException] = []
        acknowledged: list[int] = []
        store = rocketstore.open(tmp_path / f"s{round_number}", "x", **OPTIONS)

        def put(
            store: rocketstore.DefaultMessageStore = store,
            acknowledged: list[int] = acknowledged,
        ) -> None:
            while True:
                try:
                    result = store.put("T", b"body")
                except StoreClosedError:
                    return
                if result.status == PutMessageStatus.SERVICE_NOT_AVAILABLE:
                    continue
                acknowledged.append(result.physical_offset)

        def read(store: rocketstore.DefaultMessageStore = store) -> None:
            while True:
                try:
                    for message in store.get_message("g", "T", 0, 0).messages:
                        assert message.body == b"body"
                except StoreClosedError:
                    return

        threads = [guarded(put, failures), guarded(put, failures), guarded(read, failures)]
        for thread in threads:
            thread.start()
        # Close comes among many puts, however late the threads get going.
        while len(acknowledged) < 200 and not failures:
            time.sleep(0.001)
        store.close()
        for thread in threads:
            thread.join(LONG_S)
            assert not thread.is_alive(), f"{thread.name} hangs"
        assert not failures, failures[0]
        with rocketstore.open(store.path, "r+") as again:
            assert again.recovery_report.clean
            stored = {message.physical_offset for message in again.scan()}
        assert set(acknowledged) <= stored


def test_views_outlive_the_store(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        store.put("T", b"kept", 0, "Tag", "key")
        assert store.wait_dispatched(LONG_S)
        message = store.get_message("g", "T", 0, 0).messages[0]
        view = message.body_view
    assert bytes(view) == b"kept"
    assert message.detach().body == b"kept"
    with pytest.raises(StoreClosedError):
        store.put("T", b"late")
    with pytest.raises(StoreClosedError):
        store.get_message("g", "T", 0, 0)
    store.close()
