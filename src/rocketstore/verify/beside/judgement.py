"""A judgement about a file of a store other than log, queues and index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Return the lowest and next queue offset of a queue, ``None`` for a missing one.
Bounds = Callable[[str, int], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A fault or remark about a store's files.

    Attributes
    ----------
    kind : str
        Kind of the finding.
    path : str
    position : int
        From the start of the file, in bytes.
    reason : str
    is_finding : bool
        It is a fault; otherwise a remark.
    code : str
        The code of ``doctor``; ``""``: that of the kind, or none.
    count : int
    """

    kind: str
    path: str
    position: int
    reason: str
    is_finding: bool = True
    code: str = ""
    count: int = 0
