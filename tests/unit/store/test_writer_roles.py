"""Roles: masters take puts, a slave refuses them, and there is no replication to wait for."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, MessageBatch, PutMessageStatus

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")

OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20}
FLUSHES = ("SYNC_FLUSH", "ASYNC_FLUSH")


def statuses(store: rocketstore.DefaultMessageStore, **values: Any) -> set[PutMessageStatus]:
    """What each way to put is answered."""

    async def await_both() -> list[PutMessageStatus]:
        one = await store.aput("T", b"x", **values)
        many = await store.aput_many([message])
        return [one.status, *(result.status for result in many)]

    properties = {} if values.get("wait_store_msg_ok", True) else {"WAIT": "false"}
    message = Message("T", b"x", properties=properties)
    batch = MessageBatch([Message("T", b"x")], topic="T", queue_id=0, properties=properties)
    return {
        store.put("T", b"x", **values).status,
        store.put_message(message).status,
        store.put_messages(batch).status,
        *(result.status for result in store.put_many([message])),
        *asyncio.run(await_both()),
    }


@pytest.mark.parametrize("flush_disk_type", FLUSHES)
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.0"])
def test_a_slave_refuses_puts_and_counts_them(
    tmp_path: Path, flush_disk_type: str, version: str
) -> None:
    options = {**OPTIONS, "flush_disk_type": flush_disk_type, "broker_version": version}
    with rocketstore.open(tmp_path / "s", "x", **options) as store:
        assert store.put("T", b"x", 0, None, "key").ok
    with rocketstore.open(tmp_path / "s", "r+", broker_role="SLAVE", **options) as store:
        assert statuses(store) == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
        info = store.runtime_info()
        assert (info["putMessageTimesTotal"], info["putMessageSizeTotal"]) == ("0", "0")
        assert info["putMessageFailedTimes"] == "6"
        assert [message.body for message in store.scan()] == [b"x"]
        assert len(store.get_message("g", "T", 0, 0).messages) == 1
        assert len(store.query_message("T", "key").messages) == 1
    with rocketstore.open(tmp_path / "s", "r+", **options) as store:
        assert store.recovery_report.clean
        assert store.put("T", b"y").queue_offset == 1


@pytest.mark.parametrize("flush_disk_type", FLUSHES)
@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("4.9.8", PutMessageStatus.SLAVE_NOT_AVAILABLE),
        ("5.0.0", PutMessageStatus.PUT_OK),
        ("5.5.0", PutMessageStatus.PUT_OK),
    ],
)
def test_a_sync_master_has_no_slave(
    tmp_path: Path, flush_disk_type: str, version: str, status: PutMessageStatus
) -> None:
    with rocketstore.open(
        tmp_path / "s",
        "x",
        broker_role="SYNC_MASTER",
        flush_disk_type=flush_disk_type,
        broker_version=version,
        **OPTIONS,
    ) as store:
        assert statuses(store) == {status}
        # What does not wait does not wait for a slave.
        assert statuses(store, wait_store_msg_ok=False) == {PutMessageStatus.PUT_OK}
        result = store.put("T", b"x")
        assert result.appended
        assert result.ok is (status == PutMessageStatus.PUT_OK)
        assert sum(1 for _ in store.scan()) == 13
        assert store.runtime_info()["putMessageFailedTimes"] == "0"
        if flush_disk_type == "SYNC_FLUSH":
            assert store.flushed_offset == store.max_physical_offset


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_an_async_master_does_not_wait(tmp_path: Path, version: str) -> None:
    with rocketstore.open(
        tmp_path / "s", "x", broker_role="ASYNC_MASTER", broker_version=version, **OPTIONS
    ) as store:
        assert statuses(store) == {PutMessageStatus.PUT_OK}
