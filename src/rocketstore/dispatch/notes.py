"""What dispatch found odd, for the reports of those who asked for it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class DispatchNotes:
    """What dispatch came across that a user may want to know.

    Attributes
    ----------
    gaps : list of (topic, queue id, first missing queue offset, next queue offset)
        Queue offsets that no record carries; filled with filler units.
    refused : list of (topic, queue id, queue offset, physical offset)
        Records whose queue offset cannot be right, or whose topic is too long for a folder's name;
        they stay readable by physical offset.
    shifts : list of (topic, queue id, first missing queue offset, next queue offset)
        Light queues whose units stand in front of their records' numbers from there on.
    odd_names : list of str
        Queues that records name and that go without them, in words; the first ``MAX_TOLD``.
    """

    gaps: list[tuple[str, int, int, int]] = field(default_factory=list)
    refused: list[tuple[str, int, int, int]] = field(default_factory=list)
    shifts: list[tuple[str, int, int, int]] = field(default_factory=list)
    odd_names: list[str] = field(default_factory=list)
