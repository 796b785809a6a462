"""Sums over the log's records, by group."""

from collections.abc import Iterable
from typing import TypeAlias, final

from typing_extensions import Buffer

_Group: TypeAlias = tuple[
    bytes | None,
    int | None,
    bytes | None,
    int | None,
    int | None,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
]

@final
class StatsPass:
    """Sum up records by group.

    Parameters
    ----------
    by : iterable of str
        Fields that define a group, any of ``topic``, ``queueId``, ``tags``, ``bucket`` (of the
        store time) and ``bodySize`` (the largest power of two not above it, 0 for an empty body).
    bucket_ms : int
        Width of a time bucket.
    max_groups : int
        ``consume`` returns FULL when a record needs one more group.

    Notes
    -----
    Ghosts do not count. Threading: one thread at a time; ``consume`` runs without the GIL.
    """

    def __init__(
        self, by: Iterable[str] = (), *, bucket_ms: int = 60000, max_groups: int = 65536
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
        """Process the records of ``window[position:stop]`` that begin before ``limit`` (a physical
        offset). Return (``RecordStatus``, position to continue from): END, FULL (call ``take`` and
        continue), or the status of the place there."""

    def take(self) -> list[_Group]:
        """Return the groups since the last call in order of appearance and clear them: (topic,
        queue id, tags, bucket, body size; ``None`` for fields that do not define the group and for
        absent tags), then count, bytes of records, bytes of bodies, least and greatest store time,
        least and greatest queue offset."""
