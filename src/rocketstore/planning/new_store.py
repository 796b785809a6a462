"""Builds what a repaired store needs, aside, and names the steps that put it in place."""

from __future__ import annotations

import bisect
import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.diagnosis.codes import BLOCKING_CODES, CODES, LEFT_CODES, action_for
from rocketstore.diagnosis.verdict import Finding, Verdict
from rocketstore.dialect import Dialect
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import MappedFileError, RepairRefusedError
from rocketstore.files.durable import write_file
from rocketstore.files.mapped_file_queue import list_directory
from rocketstore.log.continuity import good_batches, queue_order
from rocketstore.log.hidden_segments import hidden_segments
from rocketstore.mending.differences import index_changes, queue_changes, remove_others
from rocketstore.mending.expired_units import ExpiredUnits
from rocketstore.mending.rebuilding import Rebuild
from rocketstore.mending.steps import FileChange, content_of
from rocketstore.planning.new_log import LogBuild, LogChange, NewLog, ViewedParts, losses_of
from rocketstore.planning.new_tables import TableBuild
from rocketstore.planning.repair_plan import PlanStep, with_needs
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.store.arguments import now_ms
from rocketstore.store.read_only import ReadOnlyParts
from rocketstore.survey.lost_queues import read_stated_ends

_QUIET = frozenset(("store.room", "store.inodes"))
_OFFSET_TABLES = ("consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json")
_CLAMPED = {
    "config.consumer-beyond": _OFFSET_TABLES[:2],
    "config.consumer-below": _OFFSET_TABLES[:2],
    "config.delay-beyond": _OFFSET_TABLES[2:],
}
_IF_NOT = {
    "log": "a broker refuses to start, deletes the messages after the place, or skips them",
    "queue": "pulls do not find the messages, or get other ones",
    "index": "keys do not find their messages, or a lookup never returns",
    "config": "a broker refuses to start, or starts without the table's entries",
    "foreign": "a broker refuses to start",
    "checkpoint": "after an unclean stop a broker begins to recover at a wrong place",
    "abort": "a broker recovers as after a crash, and deletes index files",
}
#: Damage that only a change of the named file mends.
_IN_FILES = (
    *("queue.file.short", "queue.file.empty", "queue.unit.zeros", "queue.unit.wrong"),
    "queue.unit.beyond",
)
#: Disorder of queue offsets, as ``QueueOrder`` has it.
_ORDER_CODES = ("queue.unit.gap", "queue.unit.repeat")
#: What a wrong bit in a record's place leads to, the plainest first.
_OF_WRONG_BITS = (
    *("queue.unit.gap", "queue.unit.wrong", "queue.unit.repeat", "index.entry.wrong"),
    *("index.entry.missing", "queue.missing", "queue.file.missing"),
)
_QUEUE_CODES = tuple(code for code in CODES if code.startswith("queue."))


class StoreBuild:
    """One build of one store in one state; the same input gives the same bytes.

    Parameters
    ----------
    paths : StorePaths
    config : MessageStoreConfig
    verdict : Verdict
        Of ``doctor`` at the level ``deep``.
    target : Path
        An empty folder; files stand below it as they do below the root.
    made_at : int
        Epoch ms, for the names of index files.
    placeholders : bool
    is_locked : bool
        The caller holds the lock.
    progress : callable or None

    Attributes
    ----------
    steps : tuple of PlanStep
    losses, by_repair, placeholders, left : list of dict
    facts : dict
        ``rocketmq, geometry, log``.
    """

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        verdict: Verdict,
        target: Path,
        *,
        made_at: int,
        placeholders: bool,
        is_locked: bool,
        progress: Progress | None,
    ) -> None:
        self._paths = paths
        self._is_locked = is_locked
        self._root = paths.root
        self._config = config
        self._verdict = verdict
        self._target = target
        self._made_at = made_at
        self._keeps_places = placeholders
        self._progress = progress
        self._steps: list[PlanStep] = []
        self._newest = 0
        self._end = 0
        self._times: list[tuple[int, int]] = []
        self._queues: dict[tuple[str, int], str] = {}
        self._compared: set[str] = set()
        self._bounds: dict[tuple[str, int], tuple[int, int]] = {}
        #: Folders of queues whose units fit the log as it will be.
        self._righted: set[Path] = set()
        self.steps: tuple[PlanStep, ...] = ()
        self.losses: list[dict[str, Any]] = []
        self.by_repair: list[dict[str, Any]] = []
        self.placeholders: list[dict[str, Any]] = []
        self.left: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}

    def run(self) -> None:
        """Build. Raises ``RepairRefusedError`` if a person must act first."""
        self._refuse_blocked()
        codes = self._codes()
        if not codes and not any(self._findings(*_ORDER_CODES)):
            return
        self._build_store(codes)
        self._set_foreign_aside()
        if any(one.kind.partition(".")[0] in ("log", "queue", "index") for one in self._steps) or (
            codes & {"store.unclean"} or any(code.startswith("checkpoint.") for code in codes)
        ):
            self._write_checkpoint(codes)
        self.steps = with_needs(self._steps)
        remove_others(
            self._target,
            {one.path for step in self.steps for one in step.files if one.becomes is not None},
        )
        for step in self.steps:
            self._take_over(step)
        self._refuse_uncovered(codes)

    def _findings(self, *codes: str) -> Iterator[Finding]:
        return (one for one in self._verdict.findings if one.code in codes)

    def _codes(self) -> set[str]:
        """Return the codes of all findings that a step can mend."""
        found = set()
        for one in self._verdict.findings:
            is_note = one.severity == "note" and one.code not in ("config.bak-used",
                                                                  "index.entry.double")  # fmt: skip
            if not is_note and one.code not in LEFT_CODES | _QUIET:
                found.add(one.code)
        return found

    def _refuse_blocked(self) -> None:
        if self._verdict.truncated:
            raise RepairRefusedError("the store has too many findings to plan a repair of each")
        for one in self._verdict.findings:
            if one.code == "store.in-use":
                if self._is_locked:
                    continue
            elif one.severity == "note":
                continue
            if one.code in BLOCKING_CODES:
                action = action_for(one.code, str(self._root))
                why = action.why if action is not None else CODES[one.code].means
                raise RepairRefusedError(f"{one.what} ({one.code}); first, {why}")
            if one.code in LEFT_CODES:
                why = "; no record of the log fits there" if one.code == "queue.unit.gap" else ""
                self.left.append({"code": one.code, "sentence": one.what + why})

    # --- log, queues, index -------------------------------------------------------------------

    def _build_store(self, codes: set[str]) -> None:
        parts = {code.partition(".")[0] for code in codes}
        has_disorder = any(self._findings(*_ORDER_CODES))
        if (
            not parts & {"log", "queue", "index", "checkpoint"}
            and not has_disorder
            and not (
                codes & {"store.unclean", "config.broken", "config.empty", "config.topic-missing"}
                or codes & _CLAMPED.keys()
                or "config.bak-used" in codes
            )
        ):
            return
        log = LogBuild(
            self._paths, self._config, self._target, placeholders=self._keeps_places,
            misnamed="log.segment.name" in codes, progress=self._progress,
        ).run()  # fmt: skip
        if not codes and not log.wrong_bits:
            return
        self._read_old()
        view = ViewedParts(self._paths, self._config, log.files, is_new=True)
        rebuild = Rebuild(
            self._paths, self._config, self._target, index=self._config.message_index_enable,
            clock=lambda: self._made_at, parts=view,
        )  # fmt: skip
        try:
            rebuild.run(self._progress)
            self._newest, self._end = view.report.newest_store_timestamp, view.log.max_offset
            facts = view.facts
            self.facts = {
                "rocketmq": facts.dialect.name,
                "geometry": {
                    "commitLog": facts.commit_log_file_size,
                    "consumeQueue": facts.consume_queue_file_size,
                    "hashSlots": facts.index.pair[0],
                    "indexEntries": facts.index.pair[1],
                },
                "log": [max(view.log.min_offset, 0), self._end],
            }
            for queue in rebuild.queues:
                self._bounds[queue.topic, queue.queue_id] = queue.min_index, queue.max_index
                is_batch = isinstance(queue, BatchConsumeQueue)
                self._queues[queue.topic, queue.queue_id] = "BatchCQ" if is_batch else ""
            if log.wrong_bits:
                self._judge_order_again(view)
            self._add_log_steps(log)
            self._add_queue_steps(rebuild, codes, is_log_new=bool(log.changes))
            self._add_index_steps(rebuild, codes, is_log_new=bool(log.changes))
        finally:
            rebuild.close()
        self._add_table_steps(codes)

    def _judge_order_again(self, view: ViewedParts) -> None:
        """Forget gaps and repeats in the queues' order that the new log does not have."""
        log = view.log
        order = queue_order(good_batches(log, max(log.min_offset, 0), log.max_offset))
        gone = [
            code
            for code, places in zip(_ORDER_CODES, order, strict=True)
            if not places
        ]  # fmt: skip
        self.left = [one for one in self.left if one["code"] not in gone]

    def _read_old(self) -> None:
        """Remember the bounds of the store's queues: those of expired messages are in no log."""
        parts = ReadOnlyParts(
            self._paths, self._config, derive="none", as_files=True, clock=now_ms, progress=None
        )
        try:
            for queue in parts.queues:
                if queue.recovered_end <= max(parts.log.min_offset, 0):  # no record is left
                    key = queue.topic, queue.queue_id
                    self._bounds[key] = queue.max_index, queue.max_index
                    self._queues[key] = ""
        finally:
            parts.close()

    def _code_of(self, start: int, stop: int) -> str:
        """Return the code of the finding about a range of the log, or of the log's first."""
        found = self._code_at(start, stop)
        if found is not None:
            return found
        codes = [one.code for one in self._verdict.findings if one.code.startswith("log.")]
        fitting = [code for code in codes if code not in ("log.ghost", "log.clock")]
        return fitting[0] if fitting else "log.torn"

    def _code_at(self, start: int, stop: int) -> str | None:
        for one in self._verdict.findings:
            for place in one.where:
                if not one.code.startswith("log.") or place.offset is None:
                    continue
                end = place.offset + max(place.nbytes or 1, 1)
                if place.offset < stop and start < end and one.severity != "note":
                    return one.code
        return None

    def _add_log_steps(self, log: NewLog) -> None:
        times = sorted(
            (one.start, one.store_timestamp, one.next_timestamp) for one in log.stretches
        )
        starts = [one[0] for one in times]

        def begin_end(offset: int) -> Sequence[int]:
            number = bisect.bisect_left(starts, offset) - 1
            return times[number][1:] if number >= 0 else (0, 0)

        self.losses = losses_of(log, self._code_of, begin_end)
        self.by_repair = [
            {"topic": None, "queueId": None, "queueOffsets": None, "log": [start, stop],
             "messages": 1, "from": None, "to": None, "keys": None, "why": "log.marker"}
            for start, stop in log.given_up
        ]  # fmt: skip
        self.placeholders = log.placeholders
        folder = self._paths.consume_queue.relative_to(self._root)
        self._righted = {folder / one.topic / f"{one.queue_id}" for one in log.wrong_bits}
        moved = [one for one in log.changes if one.kind == "log.segment"]
        for one in log.changes:
            if one.kind != "log.segment":
                self._add(one.kind, self._code_of_change(one), one.sentence, [one.change],
                          {one.change.path: one.ranges})  # fmt: skip
        if moved:
            self._add(
                "log.segment", self._segment_code(), "; ".join(one.sentence for one in moved[:20]),
                [one.change for one in moved],
                {one.change.path: one.ranges for one in moved if one.ranges},
            )  # fmt: skip

    def _code_of_change(self, change: LogChange) -> str:
        for start in change.records:
            if (code := self._code_at(start, start + 1)) is not None:
                return code
        if change.records:
            found = {one.code for one in self._verdict.findings}
            return next((code for code in _OF_WRONG_BITS if code in found), "log.record.shape")
        first, last = change.ranges[0] if change.ranges else (0, 1)
        return self._code_of(change.offset + first, change.offset + last)

    def _segment_code(self) -> str:
        for one in self._verdict.findings:
            if one.code.startswith("log.segment."):
                return one.code
        return self._code_of(0, 2**62)

    def _add_queue_steps(self, rebuild: Rebuild, codes: set[str], *, is_log_new: bool) -> None:
        if not is_log_new and not any(
            code.startswith("queue.") or code == "store.unclean" for code in codes
        ):
            return
        reason = next((code for code in sorted(codes) if code.startswith("queue.")), "")
        reason = reason or self._code_of(0, 2**62)
        self._compared.add("queue")
        found = queue_changes(rebuild, self._target, self._root, lambda _: True)
        guess = self._guess("consumeQueue", "mappedFileSizeConsumeQueue")
        for topic, changes in sorted(found.items()):
            number = "1 queue file" if len(changes) == 1 else f"{len(changes):,} queue files"
            built = "is built" if len(changes) == 1 else "are built"
            sentence = f"{number} of {topic} {built} from the log{guess}"
            self._add("queue.build", reason, sentence, changes)
            guess = ""  # once is enough
        self._add_expired_units(rebuild, reason)

    def _add_expired_units(self, rebuild: Rebuild, reason: str) -> None:
        """Add the steps for queue files of messages that are no longer in the log."""
        stated = read_stated_ends(self._root)
        top = self._paths.consume_queue.relative_to(self._root).as_posix()
        missing = {place.file for one in self._findings("queue.missing") for place in one.where}
        lost = {key for key in stated if f"{top}/{key[0]}/{key[1]}" in missing}
        expired = ExpiredUnits(rebuild, self._target, self._root, stated, lost)
        for topic, changes in sorted(expired.changes(lambda _: True).items()):
            names = {one.path for one in changes}
            codes = {
                one.code for one in self._findings(*_QUEUE_CODES)
                for place in one.where if place.file in names
            }  # fmt: skip
            why = sorted(codes)[0] if codes else reason
            sentence = (
                f"{len(changes)} queue files of {topic} hold units of expired messages: what a "
                "broker cannot read there goes, and the queue's end stays"
            )
            kind = "queue.cut" if codes == {"queue.unit.beyond"} else "queue.build"
            self._add(kind, why, sentence, changes)
        for key, end in expired.ends.items():
            self._bounds[key] = end, end
            self._queues[key] = ""

    def _add_index_steps(self, rebuild: Rebuild, codes: set[str], *, is_log_new: bool) -> None:
        mine = sorted(code for code in codes if code.startswith("index."))
        if rebuild.index is None or not (mine or is_log_new or "store.unclean" in codes):
            return
        self._compared.add("index")
        if changes := index_changes(rebuild, self._target, self._root):
            is_double = mine == ["index.entry.double"] and not is_log_new
            kind = "index.dedupe" if is_double else "index.build"
            reason = mine[0] if mine else self._code_of(0, 2**62)
            keys = sum(file.entry_count for file in rebuild.index.files)
            guess = self._guess("index", "maxHashSlotNum and maxIndexNum")
            sentence = f"the index is built from the log: {keys} entries{guess}"
            self._add(kind, reason, sentence, changes)

    def _guess(self, part: str, options: str) -> str:
        """Return what to say of files that get a default size because none is left to show it."""
        if part not in self._verdict.store["assumed"]:
            return ""
        return (
            f"; no file shows their size; the default is assumed, and a broker may refuse if its "
            f"{options} differ (make the plan with --config and the broker's file)"
        )

    # --- tables -------------------------------------------------------------------------------

    def _add_table_steps(self, codes: set[str]) -> None:
        version = self._verdict.store["rocketmq"]
        dialect = Dialect.for_version(version, allow_newer=True)
        tables = TableBuild(self._root, self._target, dialect)
        done = set()
        for one in self._findings("config.broken", "config.bak-used", "config.empty"):
            for place in one.where:
                name = Path(place.file).name.removesuffix(".bak")
                if name in done:
                    continue
                done.add(name)
                change = tables.restore(name, one.code, self._queues)
                self._add(change.kind, change.reason, change.sentence, change.files)
        missing = [p.topic or "" for one in self._findings("config.topic-missing")
                   for p in one.where]  # fmt: skip
        hidden = any(one.more for one in self._findings("config.topic-missing"))
        if hidden:
            raise RepairRefusedError("topics.json lacks too many topics to name each")
        if missing and "topics.json" not in done:
            change = tables.add_topics(missing, self._queues)
            self._add(change.kind, change.reason, change.sentence, change.files)
        self._clamp(tables, codes)

    def _clamp(self, tables: TableBuild, codes: set[str]) -> None:
        is_new = any(one.kind.startswith("log.") for one in self._steps)
        for name in _OFFSET_TABLES:
            reasons = [code for code, names in _CLAMPED.items() if name in names and code in codes]
            exists = (self._root / formats.CONFIG_DIR / name).is_file()
            if not exists or not (reasons or is_new):
                continue
            reason = reasons[0] if reasons else "config.consumer-beyond"
            change = tables.clamp(name, reason, lambda *key: self._bounds.get(key))
            if change is None:
                continue
            path = change.files[0].path
            for number, step in enumerate(self._steps):  # one file changes in one step
                if any(file.path == path for file in step.files):
                    files = tuple(change.files[0] if file.path == path else file
                                  for file in step.files)  # fmt: skip
                    sentence = f"{step.sentence}; {change.sentence}"
                    self._steps[number] = PlanStep(
                        "", step.kind, step.reason, sentence, step.if_not_done, files
                    )
                    break
            else:
                self._add(change.kind, change.reason, change.sentence, change.files)

    # --- foreign entries, checkpoint, abort -----------------------------------------------------

    def _refuse_hidden_segments(self) -> None:
        """Raise if a foreign file holds a missing segment."""
        size = self._verdict.store["sizes"]["commitLog"]
        if size:
            listing = list_directory(
                self._paths.commit_log, self._paths.log_root,
                tolerate_unreadable=True, tolerate_odd=True,
            )  # fmt: skip
            for note in hidden_segments(listing, size, self._paths.log_root):
                raise RepairRefusedError(note)

    def _set_foreign_aside(self) -> None:
        if any(self._findings("store.foreign")):
            self._refuse_hidden_segments()
        changes = []
        for one in self._findings("store.foreign"):
            if one.more:
                raise RepairRefusedError("there are too many foreign entries to name each")
            for place in one.where:
                path = self._root / place.file
                if not path.is_file() or path.is_symlink():
                    raise RepairRefusedError(
                        f"{path} is a folder or link that does not belong there; move it away first"
                    )
                changes.append(FileChange(place.file, content_of(path, self._root), None))
        if changes:
            sentence = "entries that belong to no store are set aside: " + ", ".join(
                one.path for one in changes[:20]
            )
            self._add("foreign.aside", "store.foreign", sentence, changes)

    def _write_checkpoint(self, codes: set[str]) -> None:
        paths = self._paths
        old = StoreCheckpoint()
        with contextlib.suppress(OSError, MappedFileError):
            old = StoreCheckpoint.read(paths.checkpoint, self._root)
        is_log_new = any(one.kind.startswith("log.") for one in self._steps)
        keeps = 0 < old.logics_physical_offset <= self._end and not (
            is_log_new or "checkpoint.offset" in codes
        )
        new = StoreCheckpoint(
            self._newest, self._newest, self._newest,
            _inside(old.master_flushed_offset, self._end),
            _inside(old.confirm_physical_offset, self._end),
            old.logics_physical_offset if keeps else 0,
        )  # fmt: skip
        changes = []
        made = self._target / formats.CHECKPOINT_FILE
        write_file(made, new.to_bytes())
        change = FileChange(
            formats.CHECKPOINT_FILE, content_of(paths.checkpoint, self._root),
            content_of(made, self._target),
        )  # fmt: skip
        if change.expects != change.becomes:
            changes.append(change)
        if os.path.lexists(paths.state):
            changes.append(
                FileChange(formats.STATE_FILE, content_of(paths.state, self._root), None)
            )
        if changes:
            mine = sorted(code for code in codes if code.startswith("checkpoint."))
            others = sorted(codes) or [self._steps[0].reason]
            reason = (mine or others)[0]
            sentence = f"the checkpoint says that all is on disk up to {self._newest}"
            self._add("checkpoint.write", reason, sentence, changes)
        if "store.unclean" in codes:
            change = FileChange(formats.ABORT_FILE, content_of(paths.abort, self._root), None)
            sentence = "abort is set aside: log, queues and index are whole"
            self._add("abort.remove", "store.unclean", sentence, [change])

    # --- steps --------------------------------------------------------------------------------

    def _add(
        self,
        kind: str,
        reason: str,
        sentence: str,
        files: Sequence[FileChange],
        ranges: dict[str, list[tuple[int, int]]] | None = None,
    ) -> None:
        times = {}
        for one in files:
            if one.expects is not None:
                times[one.path] = os.stat(self._root / one.path).st_mtime_ns
        room = sum(one.becomes.size for one in files if one.becomes is not None)
        self._steps.append(
            PlanStep(
                "", kind, reason, sentence, _IF_NOT[kind.partition(".")[0]], tuple(files), (),
                ranges or {}, times, room, 1 + room // (200 << 20),
            )
        )  # fmt: skip

    def _take_over(self, step: PlanStep) -> None:
        """Give new files the mode and owner of the old ones; segments keep their times, too."""
        for one in step.files:
            if one.becomes is None:
                continue
            place, made = self._root / one.path, self._target / one.path
            about = os.stat(place if one.expects is not None else self._root)
            if one.expects is not None:
                os.chmod(made, about.st_mode & 0o7777)
            with contextlib.suppress(PermissionError):
                os.chown(made, about.st_uid, about.st_gid)
            if step.kind.startswith("log.") and one.expects is not None:
                os.utime(made, ns=(about.st_atime_ns, about.st_mtime_ns))

    def _refuse_uncovered(self, codes: set[str]) -> None:
        """Raise if a kind of damage has no step, and is in no file that was built and compared."""
        kinds = {step.kind.partition(".")[0] for step in self.steps} | self._compared
        for code in sorted(codes):
            part = {"store.foreign": "foreign", "store.unclean": "abort"}.get(
                code, code.partition(".")[0]
            )
            if part not in kinds:
                self._refuse_code(code)
        changed = {one.path for step in self.steps for one in step.files}
        # A finding about a batch queue is at the record's place in the log.
        batches = {
            Path(one).parent.parts[-2:] for one in changed
            if one.startswith(f"{formats.BATCH_QUEUE_DIR}/")
        }  # fmt: skip
        for one in self._findings(*_IN_FILES):
            for place in one.where:
                folder = Path(place.file).parent
                is_built = (place.topic, str(place.queue_id)) in batches
                if place.file not in changed and folder not in self._righted and not is_built:
                    raise RepairRefusedError(
                        f"{place.file}: {one.what} ({one.code}), and no step changes this file; "
                        f"see rocketstore verify {self._root}"
                    )

    def _refuse_code(self, code: str) -> None:
        what = next(one.what for one in self._findings(code))
        raise RepairRefusedError(
            f"no step mends this: {what} ({code}); bring back what is missing from a copy, or let "
            f"rocketstore recover {shlex.quote(str(self._root))} --what-if say what would be lost"
        )


def _inside(offset: int, end: int) -> int:
    return offset if 0 <= offset <= end else 0
