"""The report of ``verify``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

LEVELS = ("structure", "crc")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault in a store.

    Attributes
    ----------
    kind : str
        ``log-file``, ``record``, ``misnamed-segment``, ``foreign-segment``, ``another-log``
        (the whole log is another store's), ``queue-offset``,
        ``doubled-offset`` (claimed by two records), ``queue-file``, ``unit``, ``missing-unit``,
        ``index-file``, ``index-header``, ``index-chain``, ``index-entry``, ``missing-key``,
        ``missing-folder``, ``unreadable`` (no permission to read), ``odd-file`` (not a file or
        folder as expected, or the same file as another),
        ``foreign-file`` (does not belong in its folder), ``checkpoint``, ``config-table``,
        ``config-offset``, ``timer-file``, ``lost-queue`` (only the tables of offsets show it),
        ``queue-type`` (not that of its topic) or ``transaction-op`` (names no half message).
    path : str
        File.
    position : int
        From the start of the file, in bytes.
    offset : int or None
        The commit-log offset concerned.
    reason : str
        What was found and what was expected.
    code : str
        The code of ``doctor``, where ``kind`` has several; otherwise ``""``.
    queue : (str, int) or None
        Topic and queue id.
    first, count : int or None, int
        First queue offset concerned, and how many units or records are.
    """

    kind: str
    path: str
    position: int
    offset: int | None
    reason: str
    code: str = ""
    queue: tuple[str, int] | None = None
    first: int | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Remark:
    """An irregularity that is allowed, and has a code of ``doctor``.

    Attributes
    ----------
    code : str
    text : str
        The same as in the report's notes.
    path : str
        File or folder; ``""``: the whole part of the store.
    count : int
    """

    code: str
    text: str
    path: str = ""
    count: int = 0


@dataclass
class VerifyReport:
    """What ``verify`` checked and found.

    Attributes
    ----------
    level : str
        ``structure`` or ``crc``.
    log_start, log_end : int
        Physical offsets between which records were checked.
    records, nbytes : int
        Good records and their bytes.
    queues, units : int
        Queues, and units that agree with their record.
    index_files, keys : int
        Index files, and entries that agree with their record.
    findings : list of Finding
        The first ``max_findings`` of them.
    finding_counts : dict
        The number of findings, by kind.
    notes : list of str
        Irregularities that are allowed, in words.
    remarks : list of Remark
        Those of the notes that have a code.
    damaged : list of (start, stop)
        Log offsets of ranges without records.
    duration_s : float
    max_findings : int
        Limit on the length of ``findings``.
    """

    level: str = "crc"
    log_start: int = 0
    log_end: int = 0
    records: int = 0
    nbytes: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    keys: int = 0
    findings: list[Finding] = field(default_factory=list)
    finding_counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    duration_s: float = 0.0
    max_findings: int = 1000

    @property
    def ok(self) -> bool:
        """Return whether there are no findings."""
        return not self.finding_counts

    @property
    def finding_count(self) -> int:
        """Return the number of findings, including those beyond the limit."""
        return sum(self.finding_counts.values())

    def add(
        self,
        kind: str,
        path: str | os.PathLike[str],
        position: int,
        offset: int | None,
        reason: str,
        *,
        code: str = "",
        queue: tuple[str, int] | None = None,
        first: int | None = None,
        count: int = 1,
    ) -> None:
        """Add a finding; once the limit is reached, only count it."""
        self._count(kind, 1)
        if len(self.findings) < self.max_findings:
            self.findings.append(
                Finding(
                    kind, os.fspath(path), position, offset, reason, code, queue, first, count
                )
            )  # fmt: skip

    def remark(
        self, text: str, code: str, path: str | os.PathLike[str] = "", count: int = 0
    ) -> None:
        """Add a note; with a code, a remark, too."""
        self.notes.append(text)
        if code:
            self.remarks.append(Remark(code, text, os.fspath(path), count))

    def moved(self, place: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
        """Name the files below ``place`` as those below ``new``, where they go after the check."""
        old, there = os.fspath(place), os.fspath(new)
        self.findings = [
            replace(one, path=one.path.replace(old, there), reason=one.reason.replace(old, there))
            for one in self.findings
        ]
        self.notes = [one.replace(old, there) for one in self.notes]
        self.remarks = [
            replace(one, text=one.text.replace(old, there), path=one.path.replace(old, there))
            for one in self.remarks
        ]

    def keep(self, is_kept: Callable[[Finding], bool]) -> None:
        """Remove the listed findings for which ``is_kept`` returns False."""
        for one in [one for one in self.findings if not is_kept(one)]:
            self.findings.remove(one)
            self._count(one.kind, -1)

    def _count(self, kind: str, number: int) -> None:
        self.finding_counts[kind] = self.finding_counts.get(kind, 0) + number
        if not self.finding_counts[kind]:
            del self.finding_counts[kind]

    def shown(self, kind: str, numbers: Sequence[int]) -> Sequence[int]:
        """Return the leading ``numbers`` within the limit; count the rest at once.

        This keeps loops over many findings of a kind fast on a store with many faults.
        """
        room = max(1, self.max_findings - len(self.findings))
        if len(numbers) > room:
            self._count(kind, len(numbers) - room)
        return numbers[:room]
