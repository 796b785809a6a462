"""Calls as a user's typed program writes them, right and wrong: mypy and pyright check this file,
nothing runs it. What is wrong is marked, and a mark without an error is an error."""

from collections.abc import Iterator, Sequence
from typing import assert_type

import numpy
from numpy.typing import NDArray

import rocketstore
from rocketstore import (
    AppendMessageStatus,
    CleanedFile,
    CleanReason,
    CleanReport,
    CutRange,
    DamagedRange,
    DefaultMessageStore,
    DelayedMessage,
    DelayReport,
    Finding,
    GetMessageResult,
    GetMessageStatus,
    LostOfTopic,
    Message,
    MessageBatch,
    MessageStoreConfig,
    Placeholder,
    PointersPastEnd,
    PutManyResult,
    PutMessageResult,
    PutMessageStatus,
    QueryMessageResult,
    RecoverReport,
    RecoveryReport,
    SalvagedSegment,
    SalvageReport,
    StoredMessage,
    VerifyReport,
)


def opening() -> None:
    """Modes and options."""
    assert_type(rocketstore.open("store"), DefaultMessageStore)
    rocketstore.open("s", "a", flush_disk_type="SYNC_FLUSH", broker_version="5.3.3")
    rocketstore.open("s", config=MessageStoreConfig(file_reserved_time=24), derive="full")
    rocketstore.open("s", "q")  # type: ignore[arg-type]  # pyright: ignore
    rocketstore.open("s", "a", flush_disk_type="S")  # type: ignore[arg-type]  # pyright: ignore
    rocketstore.open("s", file_reserved_time="3")  # type: ignore[arg-type]  # pyright: ignore
    rocketstore.open("s", flush_disc_type="SYNC_FLUSH")  # type: ignore[call-arg]  # pyright: ignore
    rocketstore.open("s", derive="some")  # type: ignore[arg-type]  # pyright: ignore


def putting(store: DefaultMessageStore) -> None:
    """Every way to put."""
    result = store.put("T", b"body", 0, "A", ["k1", "k2"], properties={"a": "b"})
    assert_type(result, PutMessageResult)
    assert_type(result.status, PutMessageStatus)
    assert_type(result.append_status, AppendMessageStatus | None)
    assert_type(result.physical_offset, int | None)
    store.put("T", bytearray(3))
    store.put("T", memoryview(b"x"))
    message = Message("T", b"x", tags="A", keys="k")
    assert_type(store.put_message(message), PutMessageResult)
    batch = MessageBatch([message], topic="T")
    assert_type(store.put_messages(batch), PutMessageResult)
    many = store.put_many([message] * 3)
    assert_type(many, PutManyResult)
    assert_type(many[0], PutMessageResult)
    assert_type(store.put_columns("T", memoryview(b""), b"", tags="A"), PutManyResult)
    store.put("T", "text")  # type: ignore[arg-type]  # pyright: ignore
    store.put("T", b"x", "0")  # type: ignore[arg-type]  # pyright: ignore
    store.put("T", b"x", tag="A")  # type: ignore[call-arg]  # pyright: ignore
    store.put("T", b"x", properties={"a": 1})  # type: ignore[dict-item]  # pyright: ignore
    store.put_message(b"x")  # type: ignore[arg-type]  # pyright: ignore
    store.put_many([b"x"])  # type: ignore[list-item]  # pyright: ignore
    store.put_messages([message])  # type: ignore[arg-type]  # pyright: ignore


async def awaiting(store: DefaultMessageStore) -> None:
    """Puts on an event loop."""
    assert_type(await store.aput("T", b"x", flag=3), PutMessageResult)
    assert_type(await store.aput_many([Message("T")]), PutManyResult)
    await store.aput("T", "text")  # type: ignore[arg-type]  # pyright: ignore
    await store.aput("T", b"x", flags=3)  # type: ignore[call-arg]  # pyright: ignore


def reading(store: DefaultMessageStore) -> None:
    """Every question."""
    pulled = store.get_message("g", "T", 0, 0)
    assert_type(pulled, GetMessageResult)
    assert_type(pulled.status, GetMessageStatus)
    assert_type(pulled.messages, Sequence[StoredMessage])
    assert_type(pulled.messages[0].body, bytes)
    assert_type(pulled.messages[0].properties, dict[str, str])
    assert_type(store.query_message("T", "k"), QueryMessageResult)
    assert_type(store.find(topic="T", key="k"), Iterator[StoredMessage])
    assert_type(store.scan(topics=["T"], on_corruption="skip"), Iterator[StoredMessage])
    assert_type(store.tail(), Iterator[StoredMessage])
    assert_type(store.look_message_by_offset(0), StoredMessage | None)
    assert_type(store.get_offset_in_queue_by_time("T", 0, 1, boundary="lower"), int)
    assert_type(store.index_offsets("T", ["k"]), tuple[NDArray[numpy.int64], NDArray[numpy.int64]])
    assert_type(store.filter_units("T", 0, "A || B"), NDArray[numpy.int64])
    assert_type(store.topics(), list[str])
    assert_type(store.runtime_info(), dict[str, str])
    store.scan(on_corruption="ignore")  # type: ignore[arg-type]  # pyright: ignore
    store.scan(records="all")  # type: ignore[arg-type]  # pyright: ignore
    store.get_message("g", "T", "0", 0)  # type: ignore[arg-type]  # pyright: ignore


def maintaining(store: DefaultMessageStore) -> None:
    """Reports."""
    assert_type(store.clean_expired(what_if=True), CleanReport)
    assert_type(store.delays(), DelayReport)
    assert_type(store.delays().due(level=1), Iterator[DelayedMessage])
    assert_type(store.deliver_due(max_count=5), int)
    assert_type(store.recovery_report, RecoveryReport)
    assert_type(store.verify(), VerifyReport)
    assert_type(store.verify().ok, bool)
    assert_type(rocketstore.recover("s", what_if=True), RecoverReport)
    assert_type(rocketstore.salvage("store"), SalvageReport)
    rocketstore.recover("s", flush_disk_type="S")  # type: ignore[arg-type]  # pyright: ignore


def parts_of_reports(store: DefaultMessageStore) -> None:
    """What reports contain has a name for annotations."""
    assert_type(store.verify().findings, list[Finding])
    assert_type(store.recovery_report.damaged, list[DamagedRange])
    assert_type(store.recovery_report.cut, list[CutRange])
    assert_type(store.clean_expired(what_if=True).files, list[CleanedFile])
    assert_type(store.clean_expired(what_if=True).files[0].reason, CleanReason)
    salvaged = rocketstore.salvage("store", what_if=True)
    assert_type(salvaged.damaged, list[DamagedRange])
    assert_type(salvaged.segments, list[SalvagedSegment])
    assert_type(salvaged.placeholders, list[Placeholder])
    assert_type(salvaged.lost, list[LostOfTopic])
    assert_type(salvaged.behind, PointersPastEnd)
    assert_type(rocketstore.recover("store", what_if=True).findings, list[Finding])
    assert_type(rocketstore.file_system_of("store"), str)


def nothing_is_any(store: DefaultMessageStore) -> None:
    """Attributes that are not typed would pass for anything."""
    message = store.look_message_by_offset(0)
    assert message is not None
    assert_type(message.topic, str)
    assert_type(message.queue_offset, int)
    assert_type(message.tags, str | None)
    assert_type(store.broker_version, str)
