"""Staged records: encoded from Arrow rows outside the store, appended later by its only writer.

A stage is a sequence of records in the log's format. Each carries its position in the stage as
physical offset, and queue offset 0. Its store time is 1 if the born time is to be the store time, 0
if a born time was given. ``Appender.put_staged`` gives each record its place."""

from collections.abc import Sequence
from typing import Any, final

from typing_extensions import Buffer

COLUMNS: tuple[str, ...]

@final
class StageEncoder:
    """Encodes Arrow rows as staged records: the bytes that ``Appender.put`` stores for the same
    message. Keeps the GIL; one thread at a time."""

    def __init__(
        self,
        *,
        topic: str | None = None,
        queues: int = 4,
        store_host: str = "127.0.0.1:10911",
        broker_version: str = "5.3.3",
        max_message_size: int = 4194304,
        segment_nbytes: int = 1073741824,
        delay_ms: Sequence[int] = (),
        append_property_crc: bool = False,
        capacity: int = 4194304,
    ) -> None:
        """``topic`` overrides the column in every row. A row without a queueId gets its number in
        this encoder modulo ``queues``. The others are those of the store that will take the
        records, see ``Appender``; light queues are not supported."""
    @property
    def rows(self) -> int:
        """Records encoded."""
    @property
    def position(self) -> int:
        """Bytes of the stage so far, including those not yet taken."""
    @property
    def waiting_nbytes(self) -> int:
        """Bytes not yet taken."""
    def take(self) -> bytes:
        """Return the records encoded since the last ``take``."""
    def encode(self, batch: Any, row: int = 0) -> int:
        """Encode the rows from ``row`` on of a batch with ``__arrow_c_array__``.

        Stops when ``capacity`` bytes wait to be taken; returns the row to continue from. Columns
        are some of ``COLUMNS``: body (string or binary), topic, tags, keys (string), queueId, flag,
        delayLevel (int32), bornTimestamp (timestamp[us], or int64 of epoch ms), properties
        (map<string, string>). body is required; null means absent. A row that a put refuses or
        raises for is a ``ValueError`` or ``TypeError`` that begins with the row's number, counted
        from 0 over all batches; the rows before it are encoded."""

def tally(
    data: Buffer, position: int, stop: int, base_offset: int, room: int
) -> tuple[int, int, dict[tuple[str, int], int]]:
    """Count the records of ``data[position:stop]``, by (topic, queue id), that fit ``room`` bytes
    of a segment before its end marker; ``base_offset`` is the stage position of ``data[0]``.

    Return where it stopped, the number of records, and the counts. ``DecodeError`` if there is no
    record."""

def matches(staged: Buffer, stored: Buffer) -> bool:
    """Return whether ``stored``, a record of a log, is what ``put_staged`` makes of ``staged``.
    Offsets, store time, a default born time and a whole-record CRC may differ."""
