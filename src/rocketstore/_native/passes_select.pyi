"""The records of a log that a filter takes: their positions, found in one pass over windows."""

from collections.abc import Iterable, Mapping
from typing import final

from typing_extensions import Buffer

from rocketstore.record_filters import CompiledFilter

@final
class SelectPass:
    """Gather the positions of the records that pass all filters; make no object for the others.

    Parameters
    ----------
    topics, tags, keys, queue_ids, begin, end, start_offsets, filter
        As ``arrow.BatchDecoder`` takes them. The SQL92 filter is asked last; its errors are
        counted with ``filter.count_errors`` at the end of each ``consume``.
    capacity : int
        Most positions until ``take``, 1 to 2**20.

    Raises
    ------
    ValueError, TypeError
        For filters of the wrong kind.

    Notes
    -----
    Threading: one thread at a time (``RuntimeError``); consuming runs without the GIL.
    """

    def __init__(
        self,
        *,
        topics: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        keys: Iterable[str] | None = None,
        queue_ids: Mapping[str, Iterable[int]] | None = None,
        begin: int | None = None,
        end: int | None = None,
        start_offsets: Mapping[tuple[str, int], tuple[int | None, int | None]] | None = None,
        filter: CompiledFilter | None = None,
        capacity: int = 1024,
    ) -> None: ...
    def consume(
        self,
        window: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Judge the records from ``position`` on; return (status, position to continue from).

        Statuses as of ``arrow.BatchDecoder``. FULL: take the positions and call again, before the
        record there was judged. Ghosts are skipped. The window is not kept.
        """

    @property
    def rows(self) -> int:
        """Positions not yet taken."""

    @property
    def last(self) -> int:
        """Position of the last record that the last ``consume`` judged, taken or not; -1 for
        none."""

    def take(self) -> list[int]:
        """Return the positions not yet taken, and forget them. They count from the window's first
        byte; take them before another window is consumed."""
