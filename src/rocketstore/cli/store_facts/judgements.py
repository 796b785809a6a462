"""What ``info`` reports about tables, checkpoint, missing folders and earlier salvages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.directory.parts import LEFT_ALONE, READ_ONLY_PART, StorePart, rocksdb_queues
from rocketstore.directory.paths import StorePaths
from rocketstore.survey.salvage_traces import SalvageTraces, find_traces, salvage_notes
from rocketstore.verify.before_log import find_before_log
from rocketstore.verify.beside.judgement import Judgement
from rocketstore.verify.beside.surroundings import DERIVED_FOLDERS, Surroundings, one_file

if TYPE_CHECKING:
    from rocketstore.store.default_message_store import DefaultMessageStore

#: A log up to this length is always searched for placeholders.
_QUICKLY_READ_NBYTES = 64 << 20
#: Only ``verify`` reads a longer log.
_READ_NBYTES = 4 << 30
_TIMER_FILES = {
    "timercheck": "how far the timer wheel has read its queue",
    "timermetrics": "counts of timed messages",
}


class StoreJudgements:
    """Collects findings (what is wrong) and notes (what is worth knowing).

    Attributes
    ----------
    findings, notes, unreadable : list of str
    """

    def __init__(self, paths: StorePaths) -> None:
        self.around = Surroundings(paths)
        self.findings: list[str] = []
        self.notes: list[str] = []
        access = self.around.access
        self.unreadable = [f"{path}: {why}" for path, why in sorted(access.unreadable.items())]
        self.unreadable += [f"{path}: {access.odd_in_words(path)}" for path in sorted(access.odd)]
        self.findings += [
            f"{path}: {one_file(other)}" for path, other in sorted(access.shared.items())
        ]
        self._take(self.around.tables.judge_files())

    def _take(self, judgements: Any) -> None:
        one: Judgement
        for one in judgements:
            text = f"{one.path}: {one.reason}"
            (self.findings if one.is_finding else self.notes).append(text)

    def look_at(self, store: DefaultMessageStore) -> None:
        """Compare tables and checkpoint with an open store, unless damage explains a difference."""
        report, end = store.recovery_report, store.max_physical_offset
        queues = store.reader.queues

        def bounds(topic: str, queue_id: int) -> tuple[int, int] | None:
            queue = queues.get(topic, queue_id)
            return None if queue is None else (queue.min_index, queue.max_index)

        self.around.tables.dialect = store.facts.dialect
        self._take(self.around.tables.judge_timer_files())
        note = self.around.hard_links_note(store.reader.log, end)
        self.notes += [note] if note is not None else []
        self._take(self.around.judge_no_tables())
        self._note_absent(store)
        start = max(store.min_physical_offset, 0)
        before = find_before_log(start, queues, store.reader.index)
        self.notes += before.notes(start)
        if not any(one.stop >= end for one in report.damaged):
            newest, start = report.newest_store_timestamp, max(store.min_physical_offset, 0)
            self._take(self.around.checkpoint.judge(newest, start, end, None))
            gone = self._take_lost_queues(store, start, end)
            self._take(self.around.tables.judge_offsets(bounds, gone))
            self._take(self.around.tables.judge_timer(bounds, end))
        self._note_salvages(store)

    def look_at_timer(self, store: DefaultMessageStore, document: dict[str, Any]) -> None:
        """Describe what the timer holds, if it holds or lacks anything."""
        from rocketstore.verify.beside.timer_report import has_timer, judge_report

        root = self.around.paths.root
        is_in_files = rocksdb_queues(root) is None
        if not is_in_files or not has_timer(root, store.facts.dialect, store.reader.queues):
            return
        report = store.timers()
        self._take(judge_report(report))
        if len(report):
            document["timer"] = {
                "pending": len(report),
                "overdue": report.overdue,
                "nextDue": report.next_due,
                "notEnqueued": report.not_enqueued,
                "findings": len(report.findings),
            }

    def _take_lost_queues(
        self, store: DefaultMessageStore, start: int, end: int
    ) -> set[tuple[str, int]]:
        """Judge the queues that only tables name; return them."""
        if rocksdb_queues(self.around.paths.root) is not None:
            return set()
        queues = store.reader.queues
        self.around.take_facts(store.facts)
        lost = self.around.lost_queues(queues, {}, start, end)
        self._take(self.around.judge_lost_queues(lost, queues, {}))
        return {(one.topic, one.queue_id) for one in lost}

    def _note_absent(self, store: DefaultMessageStore) -> None:
        root = self.around.paths.root
        if store.max_physical_offset <= max(store.min_physical_offset, 0):
            return
        names = [formats.INDEX_DIR]
        database = rocksdb_queues(root)
        if database is None:
            names.insert(0, formats.CONSUME_QUEUE_DIR)
        for name in names:
            if name in self.around.absent:
                self.notes.append(
                    f"the folder {name} is missing; its {DERIVED_FOLDERS[name][1]} are derived "
                    "from the log"
                )

    def _note_salvages(self, store: DefaultMessageStore) -> None:
        root = self.around.paths.root
        nbytes = store.max_physical_offset - max(store.min_physical_offset, 0)
        was_salvaged = os.path.lexists(root / formats.QUARANTINE_DIR)
        traces = SalvageTraces()
        if nbytes <= (_READ_NBYTES if was_salvaged else _QUICKLY_READ_NBYTES):
            traces = find_traces(store.reader.log)
        elif was_salvaged:
            self.notes.append("the log is too long to count its placeholders here; run verify")
        self.notes += [note.text for note in salvage_notes(root, traces)]

    def assumed(self, store: DefaultMessageStore) -> list[str]:
        """Return the names of the sizes that cannot be detected from any file."""
        if store.facts.valid_state is not None or store.facts.state is not None:
            return []
        names = []
        if not store.facts.listing.files:
            names.append("commitLogFileSize")
        if not any(queue.queue.files for queue in store.reader.queues):
            names.append("consumeQueueFileSize")
        if not store.facts.index.by_nbytes:
            names += ["hashSlots", "indexEntries"]
        return names


def timer_parts(root: Path) -> list[dict[str, str]]:
    """Return the timer's files below ``config`` as parts of the store."""
    return [
        StorePart(
            f"{formats.CONFIG_DIR}/{name}",
            "timerFile",
            what,
            READ_ONLY_PART if name == formats.TIMER_CHECK_FILE else LEFT_ALONE,
        )._asdict()
        for name, what in _TIMER_FILES.items()
        if os.path.lexists(root / formats.CONFIG_DIR / name)
    ]
