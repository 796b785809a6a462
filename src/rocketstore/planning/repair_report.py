"""``RepairReport``: what a repair did, or that it was taken back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketstore.diagnosis.verdict import Verdict


@dataclass
class RepairReport:
    """What ``repair`` did.

    Attributes
    ----------
    path, plan_id : str
    state : str
        ``done``; ``already`` if an earlier call had done all; ``resumed`` if it had been
        interrupted; ``undone``.
    steps : list of dict
        ``id, kind, state, files, seconds``.
    placeholders, lost : list of dict
        As in the plan; ``lost`` has both kinds of losses.
    kept_nbytes : int
        Bytes of the files that were replaced; all of them are kept.
    undo : str or None
        The folder that takes the repair back; ``None`` if nothing was replaced.
    verdict : Verdict or None
        Of ``doctor`` afterwards.
    duration_s : float
    """

    path: str
    plan_id: str = ""
    state: str = "done"
    steps: list[dict[str, Any]] = field(default_factory=list)
    placeholders: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)
    kept_nbytes: int = 0
    undo: str | None = None
    verdict: Verdict | None = None
    duration_s: float = 0.0
