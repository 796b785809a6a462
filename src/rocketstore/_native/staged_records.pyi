"""Records staged for a store: made of Arrow rows away from it, appended later by its one writer.

A stage is a stretch of records in the log's format. Each carries its position in the stage as
physical offset, queue offset 0, and as store time 1 when the store time is to be its born time too,
0 when its born time was given. ``Appender.put_staged`` gives each record its place."""

from collections.abc import Sequence
from typing import Any, final

from typing_extensions import Buffer

COLUMNS: tuple[str, ...]

@final
class StageEncoder:
    """Makes staged records of Arrow rows, the bytes that ``Appender.put`` stores for the same
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
        """``topic`` is every row's, whatever the column says. A row without a queueId gets its
        number in this encoder modulo ``queues``. The others are those of the store that will take
        the records, see ``Appender``; light queues are not served."""
    @property
    def rows(self) -> int:
        """Records made."""
    @property
    def position(self) -> int:
        """Bytes of the stage so far, those not yet taken included."""
    @property
    def waiting_nbytes(self) -> int:
        """Bytes not yet taken."""
    def take(self) -> bytes:
        """The records made since the last ``take``."""
    def encode(self, batch: Any, row: int = 0) -> int:
        """Make records of the rows from ``row`` on of a batch with ``__arrow_c_array__``.

        Stops when ``capacity`` bytes wait to be taken; returns the row to go on with. Columns are
        some of ``COLUMNS``: body (string or binary), topic, tags, keys (string), queueId, flag,
        delayLevel (int32), bornTimestamp (timestamp[us], or int64 of epoch ms), properties
        (map<string, string>); body is needed, null is as if the column were absent. What a put
        refuses or raises for is a ``ValueError`` or ``TypeError`` that begins with the row's
        number, counted from 0 over all batches; the rows before it are made."""

def tally(
    data: Buffer, position: int, stop: int, base_offset: int, room: int
) -> tuple[int, int, dict[tuple[str, int], int]]:
    """Count the records of ``data[position:stop]``, by (topic, queue id), that fit ``room`` bytes
    of a segment in front of its end marker; ``base_offset`` is the stage position of ``data[0]``.

    Returns where it stopped, the number of records, and the counts. ``DecodeError`` where no
    record lies."""

def matches(staged: Buffer, stored: Buffer) -> bool:
    """Tell whether ``stored``, a record of a log, is what ``put_staged`` makes of ``staged``: all
    is equal but offsets, store time, a born time that was not given, and a whole-record CRC."""
