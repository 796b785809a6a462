"""``Message``, ``StoredMessage``, and the functions of ``record``."""

from collections.abc import Iterable, Mapping
from typing import final

from typing_extensions import Buffer, disjoint_base

from rocketstore._native.record import (
    check_record as check_record,
)
from rocketstore._native.record import (
    crc32 as crc32,
)
from rocketstore._native.record import (
    encode_properties as encode_properties,
)
from rocketstore._native.record import (
    encode_record as encode_record,
)
from rocketstore._native.record import (
    find_record as find_record,
)
from rocketstore._native.record import (
    format_host as format_host,
)
from rocketstore._native.record import (
    hash_map_order as hash_map_order,
)
from rocketstore._native.record import (
    message_id as message_id,
)
from rocketstore._native.record import (
    parse_host as parse_host,
)
from rocketstore._native.record import (
    parse_properties as parse_properties,
)
from rocketstore._native.record import (
    reordered_properties as reordered_properties,
)
from rocketstore._native.record import (
    rewritten_properties as rewritten_properties,
)
from rocketstore._native.record import (
    scan_records as scan_records,
)
from rocketstore._native.record import (
    string_hash_code as string_hash_code,
)

@disjoint_base
class Message:
    """A message to be put. The attributes are those of the constructor. ``properties`` is a dict
    (order kept); ``tags``, ``keys``, ``unique_key``, ``delay_level`` are read/write views of it. A
    missing string is None, a missing or non-numeric delay level 0; setting None removes the
    entry."""

    topic: str
    body: bytes
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int | None
    born_host: str | None
    store_host: str | None
    reconsume_times: int
    prepared_transaction_offset: int
    properties: dict[str, str]
    tags: str | None
    keys: str | None
    unique_key: str | None
    delay_level: int
    user_properties: dict[str, str]
    def __init__(
        self,
        topic: str,
        body: Buffer = b"",
        *,
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        properties: Mapping[str, str] | None = None,
        unique_key: str | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        delay_level: int | None = 0,
    ) -> None:
        """Append the named arguments to ``properties``, as in ``put``; a name given twice is a
        ``ValueError``."""
    def copy(self) -> Message:
        """Return a new message with the same content, to be put again.

        It has no properties from a former delay, delivery time or transaction
        (``user_properties``), no hosts, times and counts. A copy of a record that waits on a topic
        of the store's own goes to the topic and queue that it waits for."""
    def _repr_html_(self) -> str:
        """Return a table for notebooks; all data is escaped text."""

@final
class StoredMessage(Message):
    """A record that lies in a buffer (usually a ``Mapping``), decoded on access; read-only.

    It adds ``queue_offset, physical_offset, store_timestamp, body_crc, store_size, magic_code,
    msg_id`` to ``Message``'s attributes. ``body`` is a ``bytes`` copy; ``raw`` and ``body_view``
    are read-only memoryviews that pin the buffer. ``detach()`` returns an equal message over its
    own copy; pickling copies. Ordered by (physical_offset, raw bytes). Access raises ``OSError`` if
    the mapped file was shortened."""

    queue_offset: int
    physical_offset: int
    store_timestamp: int
    body_crc: int
    store_size: int
    magic_code: int
    msg_id: str
    raw: memoryview
    body_view: memoryview
    properties_bytes: bytes
    def __init__(self, buffer: Buffer, position: int, base_offset: int, segment_end: int) -> None:
        """Check the lengths (not the CRCs); raise ``ValueError`` if there can be no record."""
    def detach(self) -> StoredMessage: ...
