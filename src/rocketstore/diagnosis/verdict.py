"""What ``doctor`` answers: ``Verdict``, its findings, and what brokers would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rocketstore.diagnosis.codes import CODES, SEVERITIES, Action

SCHEMA = "rocketstore.doctor/1"
LEVELS = ("quick", "full", "deep")
#: From well to worst; the gravest that applies is the store's.
STATES = ("well", "recovers", "degraded", "loses", "refuses", "unreadable")
#: Places of one finding that are listed; the others are counted in ``more``.
MOST_PLACES = 16
#: What files of a folder are, in sentences.
_KINDS = {
    "commitlog": "log file", "consumequeue": "queue file", "consumequeue_ext": "queue file",
    "index": "index file",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a finding is.

    Attributes
    ----------
    file : str
        Relative to the store's root, with ``/``.
    position, nbytes : int or None
        In the file, in bytes.
    offset : int or None
        Log offset.
    topic : str or None
    queue_id, queue_offset : int or None
    """

    file: str
    position: int | None = None
    nbytes: int | None = None
    offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the values by their JSON names."""
        return {
            "file": self.file,
            "position": self.position,
            "bytes": self.nbytes,
            "offset": self.offset,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
        }


@dataclass
class DataEffect:
    """What a finding, or all of them, mean for the messages.

    Attributes
    ----------
    effect : str
        One of ``lost doubled invisible late slow-start none``.
    messages, nbytes : int
        As far as known.
    topics : list of dict
        ``topic, queueId, queueOffsets`` (half-open ranges), ``messages``.
    unknown : int
        Messages whose topic is unknown.
    begin, end : int or None
        Store times, epoch ms.
    keys : int
    groups : list of str
        Consumer groups concerned.
    estimated : bool
        Whether the numbers are a guess.
    """

    effect: str = "none"
    messages: int = 0
    nbytes: int = 0
    topics: list[dict[str, Any]] = field(default_factory=list)
    unknown: int = 0
    begin: int | None = None
    end: int | None = None
    keys: int = 0
    groups: list[str] = field(default_factory=list)
    estimated: bool = False

    def document(self) -> dict[str, Any]:
        """Return the values by their JSON names."""
        found = {
            "effect": self.effect,
            "messages": self.messages,
            "bytes": self.nbytes,
            "topics": self.topics,
            "unknown": self.unknown,
            "from": self.begin,
            "to": self.end,
            "keys": self.keys,
            "groups": self.groups,
        }
        return {**found, "estimated": True} if self.estimated else found


@dataclass
class Finding:
    """One fault: a code, its places, what it means for data, what brokers do, what to do next.

    Attributes
    ----------
    code, severity, what : str
    where : list of Place
    more : int
        Places that are not listed.
    data : DataEffect
    broker : list of dict
        ``version, effect, sentence``.
    action : Action or None
    """

    code: str
    severity: str
    what: str
    where: list[Place] = field(default_factory=list)
    more: int = 0
    data: DataEffect = field(default_factory=DataEffect)
    broker: list[dict[str, str]] = field(default_factory=list)
    action: Action | None = None

    @property
    def count(self) -> int:
        """Return the number of places."""
        return max(1, len(self.where) + self.more)

    def document(self) -> dict[str, Any]:
        """Return the values by their JSON names."""
        return {
            "code": self.code,
            "severity": self.severity,
            "what": self.what,
            "more": self.more,
            "where": [one.document() for one in self.where],
            "data": self.data.document(),
            "broker": self.broker,
            "action": None if self.action is None else self.action.document(),
        }


@dataclass
class BrokerForecast:
    """What a broker of one version makes of the store.

    Attributes
    ----------
    version : str
    starts : bool or None
        False: loading fails. None: it hangs.
    why, by : str or None
        The reason, and the part: ``commitlog consumequeue index checkpoint config lock``.
    log : dict
        ``min, max`` after recovery; ``None`` if it does not start.
    truncates : dict
        ``bytes, messages, from``: what recovery takes off the log (``cuts`` in JSON).
    deletes : list of str
        Files, relative to the root.
    queues : dict
        ``changed``: queues that do not serve exactly the log's good records; ``unchanged``: count.
        Batch queues are not forecast.
        ``None`` if it was not computed.
    keys_not_found : int or None
    rescan : dict
        ``from, bytes`` of the log that recovery reads.
    hangs_at : str or None
        ``query``: lookups of some keys never return.
    confidence : str
        ``tested`` (this kind was seen with the real broker), ``source``, ``guess``.
    """

    version: str
    starts: bool | None = True
    why: str | None = None
    by: str | None = None
    log: dict[str, int] | None = None
    truncates: dict[str, int] | None = None
    deletes: list[str] = field(default_factory=list)
    queues: dict[str, Any] | None = None
    keys_not_found: int | None = None
    rescan: dict[str, int] | None = None
    hangs_at: str | None = None
    confidence: str = "source"

    def document(self) -> dict[str, Any]:
        """Return the values by their JSON names."""
        return {
            "version": self.version,
            "starts": self.starts,
            "why": self.why,
            "by": self.by,
            "log": self.log,
            "cuts": self.truncates,
            "deletes": self.deletes,
            "queues": self.queues,
            "keysNotFound": self.keys_not_found,
            "rescan": self.rescan,
            "hangsAt": self.hangs_at,
            "confidence": self.confidence,
        }

    def sentence(self) -> str:
        """Return one line for people."""
        if self.starts is False:
            return f"refuses to start: {self.why}"
        if self.starts is None:
            return f"hangs at start: {self.why}"
        parts = []
        if self.truncates and self.truncates["messages"]:
            parts.append(f"deletes {self.truncates['messages']:,} messages from offset "
                         f"{self.truncates['from']}")  # fmt: skip
        elif self.truncates and self.truncates["bytes"]:
            parts.append(
                f"truncates {self.truncates['bytes']:,} bytes from offset {self.truncates['from']}"
            )
        if self.deletes:
            parts.append(f"deletes {_kinds_of(self.deletes)}")
        if self.queues and self.queues["changed"]:
            parts.append(f"{len(self.queues['changed'])} of "
                         f"{len(self.queues['changed']) + self.queues['unchanged']} queues do not "
                         "serve what the log holds")  # fmt: skip
        if self.keys_not_found:
            parts.append(f"{self.keys_not_found:,} keys are not found")
        if self.hangs_at:
            parts.append("lookups of some keys never return")
        if not parts and (self.queues is None or self.keys_not_found is None):
            return "starts; queues and keys were not computed"
        return "starts; " + ("; ".join(parts) or "serves every message that the log holds")


def _kinds_of(files: list[str]) -> str:
    """Return how many files of which kind these are, ``"2 queue files and 1 index file"``."""
    counts = Counter(_KINDS.get(name.partition("/")[0], "other file") for name in files)
    return " and ".join(f"{count:,} {kind}" + "s" * (count > 1) for kind, count in counts.items())


@dataclass
class Verdict:
    """The answer of ``doctor``.

    Attributes
    ----------
    path, level, state, sentence : str
    taken_at : int
        Epoch ms.
    next : list of Action
        What to do, in order.
    store : dict
        What it is and what is in it.
    broker : list of BrokerForecast
    data : DataEffect
        Of all findings together.
    findings : list of Finding
        The gravest first.
    notes : list of str
    counts : dict
        Findings by code, those not listed too.
    truncated : bool
        Whether findings are missing because of ``limit``.
    duration_s : float
    gravest : str
        The gravest severity, of findings that are not listed too.
    """

    path: str
    level: str
    taken_at: int = 0
    state: str = "well"
    sentence: str = ""
    next: list[Action] = field(default_factory=list)
    store: dict[str, Any] = field(default_factory=dict)
    broker: list[BrokerForecast] = field(default_factory=list)
    data: DataEffect = field(default_factory=DataEffect)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    truncated: bool = False
    duration_s: float = 0.0
    gravest: str = ""

    def __repr__(self) -> str:
        counts = Counter(one.severity for one in self.findings)
        found = ", ".join(f"{counts[name]} {name}" for name in reversed(SEVERITIES) if counts[name])
        return (
            f"<Verdict of {self.path!r}: {self.state}, {self.sentence}; {found or 'no findings'}>"
        )

    @property
    def ok(self) -> bool:
        """Return whether nothing is graver than a note."""
        return self.worst in ("", "note")

    @property
    def worst(self) -> str:
        """Return the gravest severity, ``""`` without findings."""
        found = [SEVERITIES.index(one.severity) for one in self.findings]
        found += [SEVERITIES.index(self.gravest)] if self.gravest else []
        return SEVERITIES[max(found)] if found else ""

    def unread(self, file: str) -> str | None:
        """Return why a part could not be read at all, ``None`` if it could."""
        for one in self.findings:
            hides = one.code in ("store.owner", "store.odd-file", "store.link")
            if hides and any(place.file == file for place in one.where):
                return one.what
        return None

    def fails_on(self, severity: str) -> bool:
        """Return whether a finding is at least as grave as ``severity``."""
        worst = self.worst
        return bool(worst) and SEVERITIES.index(worst) >= SEVERITIES.index(severity)

    def to_json(self) -> dict[str, Any]:
        """Return the whole answer by its JSON names, with ``schema``."""
        return {
            "schema": SCHEMA,
            "path": self.path,
            "level": self.level,
            "takenAt": self.taken_at,
            "state": self.state,
            "ok": self.ok,
            "sentence": self.sentence,
            "next": [one.document() for one in self.next],
            "store": self.store,
            "broker": [one.document() for one in self.broker],
            "data": self.data.document(),
            "findings": [one.document() for one in self.findings],
            "notes": self.notes,
            "counts": self.counts,
            "truncated": self.truncated,
            "durationSeconds": round(self.duration_s, 3),
        }


class Findings:
    """Collects findings: each place once, and runs of a kind become one finding.

    Parameters
    ----------
    limit : int
        Findings that are listed; all are counted.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.counts: dict[str, int] = {}
        self.truncated = False
        self.gravest = ""
        #: Start and stop of log ranges of findings.
        self.ranges: list[tuple[int, int]] = []
        self._files: dict[str, set[str]] = {}
        self._by_run: dict[tuple[str, str, str], Finding] = {}
        self._seen: set[tuple[str, int, str | None]] = set()

    def add(
        self,
        code: str,
        what: str = "",
        where: Iterable[Place] = (),
        *,
        severity: str = "",
        data: DataEffect | None = None,
        run: str = "",
        most_seen: int = 100_000,
    ) -> Finding | None:
        """Add a finding; return it, or ``None`` if its place has a finding or the limit is reached.

        ``run``: findings of this code with the same ``run`` are merged into one.
        """
        kind = CODES[code]
        places = [one for one in where if not self._is_told(code, one, most_seen)]
        if where and not places:
            return None
        self.counts[code] = self.counts.get(code, 0) + 1
        severity = severity or kind.severity
        self._remember(code, severity, places)
        key = (code, severity, run)
        found = self._by_run.get(key) if run else None
        if found is not None:
            room = MOST_PLACES - len(found.where)
            found.where += places[: max(0, room)]
            found.more += max(0, len(places) - max(0, room))
            if data is not None:
                _join(found.data, data)
            return found
        if len(self._by_run) >= self.limit:
            self.truncated = True
            return None
        found = Finding(code, severity, what or kind.what, places[:MOST_PLACES])
        found.more = len(places) - len(found.where)
        found.data = data if data is not None else DataEffect(kind.data)
        self._by_run[key if run else (code, severity, f"\0{len(self._by_run)}")] = found
        return found

    def _remember(self, code: str, severity: str, places: list[Place]) -> None:
        if not self.gravest or SEVERITIES.index(severity) > SEVERITIES.index(self.gravest):
            self.gravest = severity
        for one in places:
            self._files.setdefault(code, set()).add(one.file)
            if code.startswith("log.") and one.offset is not None and one.nbytes:
                self.ranges.append((one.offset, one.offset + one.nbytes))

    def tells(self, file: str, *codes: str) -> bool:
        """Return whether a file has a finding with one of the codes."""
        return any(file in self._files.get(code, ()) for code in codes)

    def tells_any(self, file: str) -> bool:
        """Return whether a file has a finding."""
        return any(file in files for files in self._files.values())

    def tells_offset(self, offset: int) -> bool:
        """Return whether a log offset is in a damaged range of a finding."""
        return any(start <= offset < stop for start, stop in self.ranges)

    def _is_told(self, code: str, place: Place, most_seen: int) -> bool:
        at = place.position if place.position is not None else -1
        name = f"{code.partition('.')[0]}:{place.file}"
        if place.file == ".":
            name = code  # about the store as a whole
        key = name, at, place.topic if place.position is None else None
        if key in self._seen:
            return True
        if len(self._seen) < most_seen:
            self._seen.add(key)
        return False

    def has(self, *codes: str) -> bool:
        """Return whether one of the codes was found."""
        return any(code in self.counts for code in codes)

    def listed(self) -> list[Finding]:
        """Return the findings, the gravest first."""
        order = {severity: number for number, severity in enumerate(reversed(SEVERITIES))}
        return sorted(self._by_run.values(), key=lambda one: order[one.severity])


def _join(into: DataEffect, other: DataEffect) -> None:
    into.messages += other.messages
    into.nbytes += other.nbytes
    into.unknown += other.unknown
    into.keys += other.keys
    into.topics = (into.topics + other.topics)[:MOST_PLACES]
    into.estimated |= other.estimated
