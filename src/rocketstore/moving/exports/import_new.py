"""Putting messages again, with new offsets; goes on exactly where a killed call was."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rocketstore import formats
from rocketstore.arrow.layout import PARTITIONS
from rocketstore.display.columns import COLUMNS
from rocketstore.errors import DecodeError, ServiceFailedError, SourceChangedError
from rocketstore.files.durable import reporting_full_disk, sync_descriptor, sync_directory
from rocketstore.mending.journal import Journal
from rocketstore.message import Message, StoredMessage
from rocketstore.moving.exports.import_rows import Row
from rocketstore.status import PutMessageStatus
from rocketstore.store.default_message_store import DefaultMessageStore

#: Messages between two marks of the journal.
MARK_ROWS = 20_000
MAP_SUFFIX = ".rocketstore-unfinished"
_MOST_FINDINGS = 1000
#: Properties that the store sets, or that would delay the message again.
_DROPPED = (
    formats.PROPERTY_CRC32,
    formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    formats.PROPERTY_DELAY,
    formats.PROPERTY_TIMER_DELIVER_MS,
    formats.PROPERTY_TIMER_DELAY_SEC,
    formats.PROPERTY_TIMER_DELAY_MS,
    formats.PROPERTY_TIMER_OUT_MS,
)
_KEPT_FLAGS = (
    formats.SYS_FLAG_COMPRESSED
    | formats.SYS_FLAG_COMPRESSION_TYPE_MASK
    | formats.SYS_FLAG_MULTI_TAGS
)
#: Properties that a column of their own may give.
_IN_PROPERTIES = (
    (formats.PROPERTY_TAGS, "tags"),
    (formats.PROPERTY_KEYS, "keys"),
    (formats.PROPERTY_UNIQUE_KEY, "uniqKey"),
)
#: Kafka's ``key``, ``value`` and ``headers`` would be dropped.
_KNOWN = frozenset((*COLUMNS, *PARTITIONS)) - {"key", "value", "headers"}
_UNSEEN = (formats.SYS_FLAG_TRANSACTION_PREPARED, formats.SYS_FLAG_TRANSACTION_ROLLBACK)
#: Members of a mark that are counts.
_COUNTS = ("row", "stored", "skipped", "refused")
NO_COUNTS = dict.fromkeys(_COUNTS, 0)
#: Answers to a message that would be the same for ever; others are of the store.
_OF_THE_MESSAGE = (
    PutMessageStatus.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
    PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL,
    PutMessageStatus.WHEEL_TIMER_NOT_ENABLE,
)


def skipped_reason(row: Row) -> str | None:
    """Return why a message is not put again, ``None`` if it is: consumers never got it."""
    if (row.get("sysFlag") or 0) & formats.SYS_FLAG_TRANSACTION_MASK in _UNSEEN:
        return "half or rolled back"
    topic = row.get("topic")
    if not isinstance(topic, str):
        return None  # refused when it is put
    own = (formats.TOPIC_SCHEDULE, formats.TOPIC_DISCARDED)
    if topic in own or topic.lower().startswith(formats.TOPIC_SYSTEM_PREFIX):
        return "of a system topic"
    return None


def message_of(row: Row) -> Message:
    """Return the message to put. Raises ``DecodeError`` for one that cannot be put."""
    for name in ("topic", "body"):
        if row.get(name) is None:
            raise DecodeError(f"{name} is null")
    if (reason := unknown_names(row)) is not None:
        raise DecodeError(reason)
    properties = _properties(row)
    is_batch = properties is None or formats.PROPERTY_INNER_NUM in properties  # not one out of it
    if is_batch and (row.get("sysFlag") or 0) & formats.SYS_FLAG_INNER_BATCH:
        raise DecodeError(
            "it is a batch of messages; export them with --records queues, and with properties"
        )
    properties = dict(properties or {})
    for name, column in _IN_PROPERTIES:
        text = row.get(column)
        if text is not None and properties.setdefault(name, text) != text:
            raise DecodeError(f"{column} is {text!r}, but property {name} is {properties[name]!r}")
    given = {
        argument: row[column]
        for argument, column in (
            ("queue_id", "queueId"), ("flag", "flag"), ("born_timestamp", "bornTimestamp"),
            ("born_host", "bornHost"), ("reconsume_times", "reconsumeTimes"),
        )
        if row.get(column) is not None
    }  # fmt: skip
    try:
        return Message(
            row["topic"],
            row["body"],
            sys_flag=(row.get("sysFlag") or 0) & _KEPT_FLAGS,
            properties={name: text for name, text in properties.items() if name not in _DROPPED},
            **given,
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise DecodeError(str(error)) from error


def unknown_names(names: Iterable[str]) -> str | None:
    """Return why columns are not those of messages, ``None`` if they are."""
    unknown = [name for name in names if name not in _KNOWN]
    if not unknown:
        return None
    near = difflib.get_close_matches(unknown[0], _KNOWN, 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else "; a value of the user's belongs in properties"
    return f"{unknown[0]!r} is no column of a message{hint}"


def _properties(row: Row) -> Any:
    """Return the properties, also from their JSON, ``None`` without any."""
    properties = row.get("properties")
    if isinstance(properties, str):
        try:
            properties = json.loads(properties)
        except ValueError as error:
            raise DecodeError(f"properties are no JSON: {error}") from None
    if properties is not None and not isinstance(properties, dict):
        raise DecodeError(f"properties must be an object, not {type(properties).__name__}")
    return properties


class MapFile:
    """Old and new offsets, one line of JSON for each message; named when it is complete."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._lines: list[str] = []
        if path is not None:
            self._unfinished = path.with_name(path.name + MAP_SUFFIX)

    def begin(self, nbytes: int) -> None:
        """Open the unfinished file; drop what follows the first ``nbytes`` bytes."""
        if self._path is not None:
            fd = os.open(self._unfinished, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._file = os.fdopen(fd, "r+b")
            self._file.truncate(nbytes)
            self._file.seek(nbytes)

    def add(self, row: Row, offset: int, queue_offset: int) -> None:
        """Add a message."""
        if self._file is not None:
            line = {
                "topic": row["topic"],
                "queueId": row.get("queueId") or 0,
                "fromPhysicalOffset": row.get("physicalOffset"),
                "physicalOffset": offset,
                "fromQueueOffset": row.get("queueOffset"),
                "queueOffset": queue_offset,
            }
            self._lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")

    def sync(self) -> int:
        """Bring the lines to disk; return the file's bytes."""
        if self._file is None:
            return 0
        lines, self._lines = self._lines, []
        with reporting_full_disk(self._unfinished):
            self._file.write("".join(lines).encode())
            self._file.flush()
            sync_descriptor(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file; it stays unfinished."""
        if self._file is not None:
            self._file.close()

    def finish(self) -> None:
        """Give the closed file its name, unless an earlier call had done so."""
        if self._path is not None and self._unfinished.exists():
            os.replace(self._unfinished, self._path)
            sync_directory(self._path.parent)


class Putter:
    """Puts rows into an open store, and marks how far it is.

    Parameters
    ----------
    store : DefaultMessageStore
    journal : Journal
        Has the line ``begun`` with the log's end before the first message.
    mapped : MapFile
    place : callable, optional
        Returns further members of a mark: where the source of the rows is, up to the last one.

    Attributes
    ----------
    counts : dict
        Rows read, stored, skipped and refused.
    findings : list of dict
        Messages that the store refused, and what else was noted, at most 1000.
    finding_count : int
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        journal: Journal,
        mapped: MapFile,
        place: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.findings: list[dict[str, Any]] = []
        self._store = store
        self._journal = journal
        self._map = mapped
        self._place = place
        mark = journal.find("mark") or journal.find("begun")
        assert mark is not None
        self.counts: dict[str, int] = {name: mark[name] for name in _COUNTS}
        self._end: int = mark["end"]
        self._mapped: int = mark["mapped"]
        self._noted: int = mark.get("noted", 0)
        for line in journal.lines:
            self.findings += line.get("findings", [])
        self._new_findings: list[dict[str, Any]] = []

    @property
    def finding_count(self) -> int:
        """Messages that the store refused, and what else was noted."""
        return self.counts["refused"] + self._noted

    def run(self, rows: Iterator[Row]) -> Iterator[None]:
        """Put the rows, which follow those that are marked; yield after each.

        Raises
        ------
        SourceChangedError
            Since the last mark, another process put messages, or the source lost rows.
        """
        self._map.begin(self._mapped)
        waiting = self._store.scan(start=self._end) if self._end < self._log_end() else iter(())
        stored = next(waiting, None)
        refused: list[dict[str, Any]] = []
        for row in rows:
            self.counts["row"] += 1
            if skipped_reason(row) is not None:
                self.counts["skipped"] += 1
            elif stored is None:
                self._put(row)
            elif self._is(row, stored):
                for one in refused:  # the store has a later one
                    self._add_finding(one)
                refused = []
                self._note_stored(row, stored.physical_offset, stored.queue_offset)
                stored = next(waiting, None)
            else:
                refused.append(self._finding(row, "the store refused it"))
            yield
            if self.counts["row"] % MARK_ROWS == 0 and stored is None:
                self.mark()
        if stored is not None:
            raise SourceChangedError(
                f"the message at log offset {stored.physical_offset} of the store was put by "
                "another program since the interruption, or its source is gone"
            )
        self.mark()

    def _log_end(self) -> int:
        return self._store.max_physical_offset

    def _is(self, row: Row, stored: StoredMessage) -> bool:
        return (
            stored.topic == row.get("topic")
            and stored.queue_id == (row.get("queueId") or 0)
            and stored.body == row.get("body")
            and row.get("bornTimestamp") in (None, stored.born_timestamp)
        )

    def _put(self, row: Row) -> None:
        try:
            result = self._store.put_message(message_of(row))
        except (DecodeError, ValueError, TypeError) as error:
            self._add_finding(self._finding(row, str(error)))
            return
        if not result.appended and result.status not in _OF_THE_MESSAGE:
            raise ServiceFailedError(
                f"the store answered {result.status.name} to row {self.counts['row']}; "
                "the same call goes on there"
            )
        if not result.appended:
            self._add_finding(self._finding(row, f"the store answered {result.status.name}"))
            return
        assert result.physical_offset is not None
        assert result.queue_offset is not None
        self._note_stored(row, result.physical_offset, result.queue_offset)

    def _note_stored(self, row: Row, offset: int, queue_offset: int) -> None:
        self.counts["stored"] += 1
        self._map.add(row, offset, queue_offset)

    def _finding(self, row: Row, reason: str) -> dict[str, Any]:
        return {"kind": "refused", "row": self.counts["row"], "topic": row.get("topic"),
                "offset": row.get("physicalOffset"), "reason": reason}  # fmt: skip

    def _add_finding(self, finding: dict[str, Any]) -> None:
        self.counts["refused"] += 1
        self._keep(finding)

    def note(self, finding: dict[str, Any]) -> None:
        """Add a finding that is not a refused message; it belongs to the next mark."""
        self._noted += 1
        self._keep(finding)

    def _keep(self, finding: dict[str, Any]) -> None:
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(finding)
            self._new_findings.append(finding)

    def mark(self) -> None:
        """Bring everything to disk, and note how far it is."""
        self._store.flush()
        mapped = self._map.sync()
        self._journal.write(
            "mark", end=self._log_end(), mapped=mapped, findings=self._new_findings,
            noted=self._noted, **self.counts, **self._place(),
        )  # fmt: skip
        self._new_findings = []
