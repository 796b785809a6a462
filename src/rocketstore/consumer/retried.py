"""Messages that a group reads again, as it sees them: with the topic that they came from."""

from __future__ import annotations

from typing import Any

from rocketstore import formats
from rocketstore.message import Message, StoredMessage


class RetriedMessage(Message):
    """A message from a group's retry topic.

    It has the attributes of a ``StoredMessage``. ``topic`` is the message's first topic; queue id,
    offsets and times are those of the stored record, on ``retry_topic``.

    Attributes
    ----------
    retry_topic : str
        The topic that it was read from, ``%RETRY%group``.
    reconsume_times : int
        How often it was retried before.
    origin_msg_id : str or None
        Message id of the first record.
    stored : StoredMessage
        The record as it is.
    """

    def __init__(self, stored: StoredMessage) -> None:
        properties = stored.properties
        super().__init__(
            properties.get(formats.PROPERTY_RETRY_TOPIC, stored.topic),
            stored.body,
            queue_id=stored.queue_id,
            flag=stored.flag,
            sys_flag=stored.sys_flag,
            born_timestamp=stored.born_timestamp,
            born_host=stored.born_host,
            store_host=stored.store_host,
            reconsume_times=stored.reconsume_times,
            prepared_transaction_offset=stored.prepared_transaction_offset,
            properties=properties,
        )
        self.stored = stored
        self.retry_topic = stored.topic
        self.origin_msg_id = properties.get(formats.PROPERTY_ORIGIN_MESSAGE_ID)

    def __getattr__(self, name: str) -> Any:
        """Return what only stored messages have, such as ``queue_offset``."""
        if name == "stored" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.stored, name)

    def __reduce__(self) -> tuple[type[RetriedMessage], tuple[StoredMessage]]:
        return type(self), (self.stored,)

    def detach(self) -> RetriedMessage:
        """Return an equal message over its own copy of the record."""
        return RetriedMessage(self.stored.detach())

    def __repr__(self) -> str:
        return (
            f"<RetriedMessage {self.topic!r} from {self.retry_topic!r}, retried "
            f"{self.reconsume_times} times, body of {len(self.body)} bytes>"
        )


def stored_record(message: Any) -> StoredMessage:
    """Return the record of a message that a consumer handed out.

    Raises ``TypeError`` for anything else.
    """
    if isinstance(message, RetriedMessage):
        return message.stored
    if isinstance(message, StoredMessage):
        return message
    raise TypeError(f"message must be one of this consumer, not {type(message).__name__}")
