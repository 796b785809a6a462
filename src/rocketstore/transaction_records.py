"""The records of transactions: half messages, their copies, committed and op messages.

Both bodies of the kernel use this; the native one only for what its own way does not cover.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from rocketstore import formats
from rocketstore.dialect import Dialect
from rocketstore.errors import RocketStoreError, TransactionError
from rocketstore.message_copy import real_queue_id
from rocketstore.status import PutMessageStatus, RecordFlags, RecordStatus

#: Columns of the table of undecided transactions, see ``Ledger.columns``.
COLUMNS = (
    *("key", "queue_offset", "offset", "nbytes", "store_timestamp", "born_timestamp"),
    *("checks", "immunity_ms", "group", "is_asked"),
)
NO_IMMUNITY = -1
#: Topics whose records mean something to the store: no transaction may put its message there.
OWN_TOPICS = (
    *(formats.TOPIC_HALF, formats.TOPIC_OP, formats.TOPIC_DISCARDED, formats.TOPIC_ROCKSDB_HALF),
    *(formats.TOPIC_SCHEDULE, formats.TOPIC_TIMER),
)
_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
_MOST_IMMUNITY_S = 2**31 - 1
_LONG = re.compile(r"[+-]?[0-9]{1,19}")
_LEVEL = re.compile(r"[+-]?[0-9]+")
_OP_PROPERTIES = {formats.PROPERTY_WAIT: "true", formats.PROPERTY_TAGS: formats.OP_TAG}
_PAIR = bytes([formats.PROPERTY_SEPARATOR])
_NAME_VALUE = bytes([formats.NAME_VALUE_SEPARATOR])


def no_wait(end_offset: int) -> int:
    """Stand for a wait for the disk: the caller waits later."""
    return PutMessageStatus.PUT_OK


def immunity_ms(text: str | None) -> int:
    """Return the milliseconds of CHECK_IMMUNITY_TIME_IN_SECONDS; -1 without it, or if it is no
    number or negative, where the store's time-out counts."""
    if text is None or not _LONG.fullmatch(text):
        return NO_IMMUNITY
    seconds = int(text)
    return seconds * 1000 if 0 <= seconds <= _MOST_IMMUNITY_S else NO_IMMUNITY


def properties_of(stored: bytes, decode: Callable[[bytes], str]) -> dict[str, str]:
    """Return stored properties, those with empty values too (D-51), without a record's CRC."""
    pairs = {}
    for item in stored.split(_PAIR):
        name, separator, value = item.partition(_NAME_VALUE)
        if name and separator:
            pairs[decode(name)] = decode(value)
    pairs.pop(formats.PROPERTY_CRC32, None)
    return pairs


def is_delayed(pairs: dict[str, str], delay_level: int) -> bool:
    """Return whether a delay level is given, as an argument or as a property."""
    text = pairs.get(formats.PROPERTY_DELAY, "")
    return delay_level > 0 or (_LEVEL.fullmatch(text) is not None and 0 < int(text) < 2**31)


class RecordMaker:
    """Puts the records of transactions through an appender's own rules.

    Parameters
    ----------
    appender : Appender
    dialect : Dialect
    message : module
        The kernel module ``message``.
    """

    def __init__(self, appender: Any, dialect: Dialect, message: Any) -> None:
        self._appender = appender
        self._dialect = dialect
        self._message = message

    def _decode(self, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError:  # as Java decodes it
            name = b"n" + _NAME_VALUE + text
            return str(self._message.parse_properties(name).get("n", ""))

    def _in_order(self, pairs: dict[str, str]) -> dict[str, str]:
        order = self._message.hash_map_order(pairs, self._dialect.property_buckets)
        return {name: pairs[name] for name in order}

    def check_topic(self, topic: str) -> None:
        """Raise if a committed message could not be stored on the topic, or must not be."""
        if topic in OWN_TOPICS:
            raise TransactionError(
                f"the half message was refused: the store's own topic {topic} takes no transactions"
            )
        longest = formats.MAX_TOPIC_LENGTH
        if self._dialect.long_retry_topics and topic.startswith(formats.TOPIC_RETRY_PREFIX):
            longest = formats.MAX_RETRY_TOPIC_NBYTES
        if len(topic) > longest:
            raise TransactionError(
                f"the half message was refused: {PutMessageStatus.MESSAGE_ILLEGAL} (its topic has "
                f"{len(topic)} characters)"
            )

    def put_half(
        self,
        topic: str,
        queue_id: int,
        body: Any,
        group: str,
        pairs: dict[str, str],
        delay_level: int,
        options: dict[str, Any],
    ) -> Any:
        """Put a half message with these properties, in their order; ``options`` are a put's."""
        if is_delayed(pairs, delay_level):
            raise ValueError("a transaction cannot be delayed: RocketMQ loses such messages")
        self.check_topic(topic)
        pairs.pop(formats.PROPERTY_TRANSACTION_CHECK_TIMES, None)
        pairs.pop(formats.PROPERTY_TRANSACTION_FIRST_OFFSET, None)
        pairs[formats.PROPERTY_TRANSACTION] = "true"
        pairs[formats.PROPERTY_PRODUCER_GROUP] = group
        wait = pairs.get(formats.PROPERTY_WAIT)
        if wait is not None and self._dialect.stores_wait_last:
            del pairs[formats.PROPERTY_WAIT]
            pairs[formats.PROPERTY_WAIT] = wait
        key = pairs.get(formats.PROPERTY_UNIQUE_KEY)
        if self._dialect.transaction_id and key is not None:
            pairs[formats.PROPERTY_TRANSACTION_ID] = key
        pairs[formats.PROPERTY_REAL_TOPIC] = topic
        pairs[formats.PROPERTY_REAL_QUEUE_ID] = str(queue_id)
        return self._appender.put(
            formats.TOPIC_HALF, body, properties=self._in_order(pairs), **options
        )

    def half(self, raw: Any, offset: int) -> Any:
        """Return the half message in a record's bytes.

        Raises ``TransactionError`` if they are damaged.
        """
        content = bytes(raw)
        n = len(content)
        status, nbytes = self._message.check_record(
            content, 0, n, offset, offset + n, RecordFlags.CHECK_BODY_CRC
        )
        if status not in _GOOD or nbytes != n:
            raise TransactionError(
                f"the half message at log offset {offset} is damaged: {RecordStatus(status).name}"
            )
        return self._message.StoredMessage(content, 0, offset, offset + len(content))

    def put_final(self, half: Any) -> Any:
        """Put the message of a transaction to its own topic, without a wait for the disk.

        Raises ``TransactionError`` if the half message names no topic and queue for it.
        """
        pairs = properties_of(half.properties_bytes, self._decode)
        topic = pairs.get(formats.PROPERTY_REAL_TOPIC)
        queue_id = real_queue_id(pairs)
        if not topic or queue_id is None:
            raise TransactionError(
                f"the half message at log offset {half.physical_offset} names no topic and queue"
            )
        if topic in OWN_TOPICS:
            raise TransactionError(
                f"the half message at log offset {half.physical_offset} names the store's own "
                f"topic {topic}"
            )
        if not self._dialect.commit_keeps_real_topic:
            del pairs[formats.PROPERTY_REAL_TOPIC], pairs[formats.PROPERTY_REAL_QUEUE_ID]
        flags = half.sys_flag & ~formats.SYS_FLAG_TRANSACTION_MASK
        flags |= formats.SYS_FLAG_TRANSACTION_COMMIT
        offset = half.physical_offset
        return self._put_like(half, topic, queue_id, pairs, flags, offset, no_wait)

    def put_copy(
        self, half: Any, checks: int, first: int, wait: Callable[[int], int] | None
    ) -> Any:
        """Put a copy of a half message that counts its checks.

        Without a unique key only ``first``, the queue offset of the first half message, says of
        which message it is a copy. A message with an immunity of its own must not name it: within
        that time, a broker takes a copy for decided whose first half message is named in an op
        message, as one is of which there is a newer copy.
        """
        pairs = properties_of(half.properties_bytes, self._decode)
        pairs[formats.PROPERTY_TRANSACTION_CHECK_TIMES] = str(checks)
        if formats.PROPERTY_CHECK_IMMUNITY_SEC in pairs:
            pairs.pop(formats.PROPERTY_TRANSACTION_FIRST_OFFSET, None)
        elif formats.PROPERTY_UNIQUE_KEY not in pairs:
            pairs[formats.PROPERTY_TRANSACTION_FIRST_OFFSET] = str(first)
        return self._put_like(half, formats.TOPIC_HALF, 0, pairs, half.sys_flag, 0, wait)

    def put_discarded(self, half: Any, wait: Callable[[int], int] | None) -> Any:
        """Put a half message to the topic of discarded ones."""
        pairs = properties_of(half.properties_bytes, self._decode)
        return self._put_like(half, formats.TOPIC_DISCARDED, 0, pairs, half.sys_flag, 0, wait)

    def _put_like(
        self,
        half: Any,
        topic: str,
        queue_id: int,
        pairs: dict[str, str],
        sys_flag: int,
        prepared_offset: int,
        wait: Callable[[int], int] | None,
    ) -> Any:
        """Put a message that is like the half message but for what is given."""
        try:
            return self._appender.put(
                topic,
                half.body,
                queue_id,
                properties=self._in_order(pairs),
                flag=half.flag,
                sys_flag=sys_flag,
                born_timestamp=half.born_timestamp,
                born_host=half.born_host,
                store_host=half.store_host,
                reconsume_times=half.reconsume_times,
                prepared_transaction_offset=prepared_offset,
                _wait=wait,
            )
        except RocketStoreError:
            raise
        except (ValueError, TypeError, OverflowError) as error:  # what no put would take
            raise TransactionError(
                f"the half message at log offset {half.physical_offset} cannot be stored on "
                f"{topic}: {error}"
            ) from error

    # --- op messages --------------------------------------------------------------------------

    def split(self, offsets: list[int], limit_nbytes: int) -> tuple[list[int], list[int]]:
        """Return what one op message names of these half messages, and the rest."""
        if not self._dialect.op_lists:
            return offsets[:1], offsets[1:]
        nbytes, count = 0, 0
        for offset in offsets:
            nbytes += len(str(offset)) + len(formats.OP_SEPARATOR)
            if count and nbytes > limit_nbytes:
                break
            count += 1
        return offsets[:count], offsets[count:]

    def op_properties(self) -> bytes:
        """Return the properties of an op message as stored."""
        order = self._message.hash_map_order(_OP_PROPERTIES, formats.OP_PROPERTY_BUCKETS)
        ordered = {name: _OP_PROPERTIES[name] for name in order}
        return bytes(self._message.encode_properties(ordered, self._dialect.trailing_separator))

    def own_topics(self) -> bytes:
        """Return the topics that take no transactions, a NUL after each."""
        return b"".join(topic.encode() + b"\0" for topic in OWN_TOPICS)

    def put_op(self, offsets: Iterable[int], wait: Callable[[int], int] | None) -> Any:
        """Put the op message that names these half messages."""
        comma = formats.OP_SEPARATOR if self._dialect.op_lists else ""
        body = "".join(f"{offset}{comma}" for offset in offsets).encode()
        order = self._message.hash_map_order(_OP_PROPERTIES, formats.OP_PROPERTY_BUCKETS)
        properties = {name: _OP_PROPERTIES[name] for name in order}
        return self._appender.put(formats.TOPIC_OP, body, properties=properties, _wait=wait)
