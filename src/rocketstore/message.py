"""Messages: what is put (``Message``, ``MessageBatch``) and what is read (``StoredMessage``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypedDict

from rocketstore import kernels

if TYPE_CHECKING:
    from typing_extensions import Buffer

Message = kernels.message.Message
StoredMessage = kernels.message.StoredMessage
PutMessageResult = kernels.commit_log.PutMessageResult
PutManyResult = kernels.commit_log.PutManyResult


class PutOptions(TypedDict, total=False):
    """What ``put`` takes by name, beside what it takes by place."""

    properties: Mapping[str, str] | None
    flag: int
    sys_flag: int
    born_timestamp: int | None
    born_host: str | None
    store_host: str | None
    reconsume_times: int
    prepared_transaction_offset: int
    delay_level: int
    wait_store_msg_ok: bool
    unique_key: str | bool | None


class PutCall(Protocol):
    """The type of ``DefaultMessageStore.put``."""

    def __call__(
        self,
        topic: str,
        body: Buffer,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        delay_level: int = 0,
        wait_store_msg_ok: bool = True,
        unique_key: str | bool | None = None,
    ) -> PutMessageResult:
        """Store one message."""


class MessageBatch:
    """Messages of one queue that are stored together or not at all.

    Parameters
    ----------
    messages : iterable of Message
        Only body, flag and properties of each are used; the rest comes from the batch.
    topic, queue_id, born_timestamp, born_host, store_host, sys_flag
        Common to all.
    properties : mapping of str to str, optional
        Properties of the batch as a whole; whether they are stored depends on the RocketMQ version.
    """

    __slots__ = (
        "born_host",
        "born_timestamp",
        "messages",
        "properties",
        "queue_id",
        "store_host",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        messages: Iterable[Message],
        *,
        topic: str,
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        sys_flag: int = 0,
    ) -> None:
        self.messages = list(messages)
        self.topic = topic
        self.queue_id = queue_id
        self.properties = dict(properties or {})
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.sys_flag = sys_flag

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return f"MessageBatch({len(self)} messages, topic={self.topic!r}, queue_id={self.queue_id})"


_MSG_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")


def decode_message_id(msg_id: str) -> tuple[bytes, int]:
    """Return (store host bytes, physical offset) of an offsetMsgId.

    Raises ``ValueError`` unless it has 32 (IPv4) or 56 (IPv6) hexadecimal digits.
    """
    if not isinstance(msg_id, str):
        raise TypeError(f"msg_id must be str, not {type(msg_id).__name__}")
    if not _MSG_ID.fullmatch(msg_id):
        raise ValueError(f"{msg_id!r} is not a message id: it must be 32 or 56 hexadecimal digits")
    data = bytes.fromhex(msg_id)
    return data[:-8], int.from_bytes(data[-8:], "big", signed=True)
