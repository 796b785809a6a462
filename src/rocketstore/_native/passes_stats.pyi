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
    """A pass that sums up records by group.

    Parameters
    ----------
    by : iterable of str
        What makes a group, any of ``topic``, ``queueId``, ``tags``, ``bucket`` (of the store time)
        and ``bodySize`` (the largest power of two that is not above it, 0 for an empty body).
    bucket_ms : int
        Width of a time bucket.
    max_groups : int
        ``consume`` answers FULL when a record needs one more group.

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
        """Take the records of ``window[position:stop]`` that begin in front of ``limit`` (a
        physical offset). Returns (``RecordStatus``, position of the next look): END, FULL (call
        ``take`` and go on from there), or what stands there."""

    def take(self) -> list[_Group]:
        """Return the groups met since the last call in order of appearance, and forget them:
        (topic, queue id, tags, bucket, body size; ``None`` where not asked for or without tags),
        then count, bytes of records, bytes of bodies, least and greatest store time, least and
        greatest queue offset."""
