"""One judgement about a file of a store that is neither record, unit nor index entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Lowest and next queue offset of a queue, ``None`` for one that is not there.
Bounds = Callable[[str, int], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One thing about a store's files that is worth telling.

    Attributes
    ----------
    kind : str
        That of the finding it makes.
    path : str
    position : int
        From the start of the file, in bytes.
    reason : str
    is_finding : bool
        Something is wrong; otherwise it is only worth knowing.
    """

    kind: str
    path: str
    position: int
    reason: str
    is_finding: bool = True
