"""Irregularities that dispatch found, for reports."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class DispatchNotes:
    """Irregularities that dispatch found and that a user may want to know.

    Attributes
    ----------
    gaps : list of (topic, queue id, first missing queue offset, next queue offset)
        Queue offsets that no record carries; filled with filler units.
    refused : list of (topic, queue id, queue offset, physical offset)
        Records with an impossible queue offset, or with a topic too long for a folder's name. They
        stay readable by physical offset.
    shifts : list of (topic, queue id, first missing queue offset, next queue offset)
        Light queues whose units have lower numbers than their records from there on.
    odd_names : list of str
        Notes about queues that records name but that do not get them; the first
        ``MAX_NAME_NOTES``.
    """

    gaps: list[tuple[str, int, int, int]] = field(default_factory=list)
    refused: list[tuple[str, int, int, int]] = field(default_factory=list)
    shifts: list[tuple[str, int, int, int]] = field(default_factory=list)
    odd_names: list[str] = field(default_factory=list)
