"""Gather what ``info`` reports, part by part, so that a broken part does not hide the others."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.cli.common.quantities import now_ms
from rocketstore.cli.store_facts.counts import LostMessages, count_lost
from rocketstore.cli.store_facts.judgements import StoreJudgements, timer_parts
from rocketstore.config import MessageStoreConfig
from rocketstore.config_managers.files import TOPICS_FILE, config_path
from rocketstore.directory.lock import is_held
from rocketstore.directory.parts import (
    IN_A_QUEUE_S_PLACE,
    LEFT_ALONE,
    MOVED_ASIDE,
    REFUSED,
    StorePart,
    is_store,
    rocksdb_queues,
    store_parts,
)
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import MappedFileError, RocketStoreError, UnsafePathError
from rocketstore.files.durable import READ_ONLY, open_regular_file
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.directories import is_queue_id, is_topic_name, queue_directories
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store
from rocketstore.survey.facts import StoreFacts
from rocketstore.transaction.judgement import has_transactions, summarize

#: Name of the part that stands for opening the store as a whole.
_STORE = "store"


@dataclass
class Facts:
    """The answer of ``info``.

    ``document`` has the values by their JSON names. ``refusals`` lists what could not be read, and
    ``findings`` what is wrong. ``has_no_log``: the store cannot be opened because its log is
    missing. ``refused_with``: the error that opening it raised.
    """

    document: dict[str, Any] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    has_no_log: bool = False
    refused_with: Exception | None = None

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Gather one part; its failure becomes a refusal."""
        try:
            yield
        except (RocketStoreError, OSError) as error:
            self.refusals.append(f"{name}: {error}")
            if name == _STORE:
                self.refused_with = error


def gather(path: Path, progress: Progress | None, config: MessageStoreConfig) -> Facts:
    """Examine the directory ``path`` without changing it; ``config`` says where its log is.

    Raises ``FileNotFoundError`` or ``NotADirectoryError`` when it is not a directory.
    """
    parts = store_parts(path)
    facts = Facts()
    document = facts.document
    document["path"] = str(path)
    document["isStore"] = is_store(parts) or bool(config.store_path_commit_log)
    document["inUse"] = None
    with facts.part("lock"):
        document["inUse"] = is_held(path / formats.LOCK_FILE)
    if document["isStore"]:
        _gather_store(path, facts, progress, config)
        document["parts"] = [
            *(part._asdict() for part in parts),
            *timer_parts(path),
            *document.pop("skipped", []),
        ]
    document["refusals"] = facts.refusals
    document["findings"] = facts.findings
    return facts


def _gather_store(
    path: Path, facts: Facts, progress: Progress | None, config: MessageStoreConfig
) -> None:
    config = config.replace(message_index_enable=False)
    judgements = StoreJudgements(StorePaths.of(path, config))
    facts.findings = judgements.findings
    with facts.part(_STORE):
        with open_store(path, "r", config=config, progress=progress) as store:
            _add_geometry(store.facts, facts.document)
            assumed = judgements.assumed(store)
            if assumed:
                facts.document["geometry"]["assumed"] = assumed
            _add_stop(path, store.facts, facts.document)
            lost = count_lost(store)
            with facts.part("log"):
                _add_log(store, facts.document, lost)
            with facts.part("queues"):
                _add_topics(store, facts.document, lost)
            with facts.part("delayed messages"):
                _add_delays(store, facts.document)
            with facts.part("index"):
                _add_index(store, facts.document)
            with facts.part("transactions"):
                _add_transactions(store, facts.document)
            report = store.recovery_report
            facts.refusals += [
                f"{one.path} at position {one.position}: {one.reason}" for one in report.damaged
            ]
            with facts.part("tables and checkpoint"):
                judgements.look_at(store)
            with facts.part("timer"):
                judgements.look_at_timer(store, facts.document)
            _add_judgements(path, judgements, facts, report.notes)
            database = rocksdb_queues(path)
            facts.document["skipped"] = [
                _skipped_part(name, path)._asdict()
                for name in report.skipped
                if database is None or Path(name).parent != database.directory
            ]
        return
    _add_judgements(path, judgements, facts, [])
    _add_by_parts(path, facts, StorePaths.of(path, config).log_folders)
    in_dledger = any(part.treatment == REFUSED for part in store_parts(path))
    facts.has_no_log = not facts.document.get("log", {}).get("files") and not in_dledger


def _skipped_part(name: str, root: Path) -> StorePart:
    """Return what an entry below the root is that no file of log, queues or index is."""
    below = os.path.relpath(name, root)
    folder, file = os.path.split(below)
    if folder == formats.INDEX_DIR and formats.is_index_name(file) and os.path.isfile(name):
        return StorePart(below, "indexFile", "an index file of a wrong length", MOVED_ASIDE)
    in_place = _is_in_a_queue_s_place(name, root)
    treatment = IN_A_QUEUE_S_PLACE if in_place else LEFT_ALONE
    return StorePart(below, "foreign", "not part of a store", treatment)


def _is_in_a_queue_s_place(name: str, root: Path) -> bool:
    """Return whether a file stands where a topic's or a queue's folder belongs."""
    parts = Path(os.path.relpath(name, root)).parts
    if parts[0] not in (formats.CONSUME_QUEUE_DIR, formats.BATCH_QUEUE_DIR) or len(parts) > 3:
        return False
    fits = is_topic_name(parts[-1]) if len(parts) == 2 else is_queue_id(parts[-1])
    return fits and not os.path.isdir(name) and not os.path.islink(name)


def _add_judgements(
    path: Path, judgements: StoreJudgements, facts: Facts, notes: Sequence[str]
) -> None:
    """Add the judgements; skip notes and refusals that opening the store already reported."""
    topics = str(config_path(path, TOPICS_FILE))
    kept = [note for note in notes if not note.startswith(topics)]
    facts.document["notes"] = list(dict.fromkeys([*kept, *judgements.notes]))
    reported = "\n".join(facts.refusals)
    facts.refusals += [
        one for one in judgements.unreadable if one.partition(": ")[0] not in reported
    ]


def _add_by_parts(path: Path, facts: Facts, log_folders: Sequence[Path]) -> None:
    """Report what names and sizes show of a store that does not open."""
    facts.document["lastExit"] = _last_exit(path, None)
    with facts.part(formats.COMMIT_LOG_DIR), contextlib.suppress(FileNotFoundError):
        sizes = [nbytes for folder in log_folders for nbytes in _segment_sizes(folder)]
        facts.document["log"] = {
            "files": len(sizes),
            "bytes": sum(sizes),
            "fileSizes": sorted(set(sizes)),
        }
    with facts.part(formats.CONSUME_QUEUE_DIR):
        queues = Counter(
            topic.name
            for topic, _ in queue_directories(
                path / formats.CONSUME_QUEUE_DIR, path, [], tolerant=True
            )
        )
        facts.document["topicNames"] = sorted(queues)


def _segment_sizes(directory: Path) -> list[int]:
    """Return the sizes of the regular files with a segment's name."""
    with os.scandir(directory) as entries:
        return [
            entry.stat().st_size
            for entry in entries
            if formats.file_name_to_offset(entry.name) is not None
            and entry.is_file(follow_symlinks=False)
        ]


def _add_geometry(found: StoreFacts, document: dict[str, Any]) -> None:
    slots, entries = found.index.pair
    document["rocketmq"] = {"version": found.dialect.name, "because": found.dialect_reason}
    document["geometry"] = {
        "commitLogFileSize": found.commit_log_file_size,
        "consumeQueueFileSize": found.consume_queue_file_size,
        "hashSlots": slots,
        "indexEntries": entries,
    }


def _add_stop(path: Path, found: StoreFacts, document: dict[str, Any]) -> None:
    checkpoint = found.checkpoint
    document["lastExit"] = _last_exit(path, found)
    document["checkpoint"] = {
        "physicTimestamp": checkpoint.physic_timestamp,
        "logicsTimestamp": checkpoint.logics_timestamp,
        "indexTimestamp": checkpoint.index_timestamp,
        "confirmPhysicalOffset": checkpoint.confirm_physical_offset,
        "logicsPhysicalOffset": checkpoint.logics_physical_offset,
    }


def _last_exit(path: Path, found: StoreFacts | None) -> str:
    abort = path / formats.ABORT_FILE
    if not os.path.lexists(abort):
        return "orderly" if found is None or found.listing.files else "never used"
    pid = ""
    with contextlib.suppress(OSError, MappedFileError, UnsafePathError):
        fd = open_regular_file(abort, READ_ONLY, path)
        try:
            text = os.read(fd, 20)
        finally:
            os.close(fd)
        pid = f", process {text.decode()}" if text.isdigit() else ""
    return f"not orderly, or still running (there is an abort file{pid})"


def _add_log(store: DefaultMessageStore, document: dict[str, Any], lost: LostMessages) -> None:
    log = store.reader.log
    start, end = max(store.min_physical_offset, 0), store.max_physical_offset
    report = store.recovery_report
    document["log"] = {
        "files": len(log.queue.files),
        "minOffset": start,
        "maxOffset": end,
        "bytes": max(0, lost.end - start - lost.nbytes),
        "lostBytes": lost.nbytes,
        "firstTimestamp": _first_timestamp(store, start, end),
        "lastTimestamp": _last_timestamp(store),
        "ghosts": len(report.ghosts),
        "damaged": len(report.damaged),
        "clean": report.clean,
    }


def _first_timestamp(store: DefaultMessageStore, start: int, end: int) -> int | None:
    for message in store.scan(start=start, stop=end, on_corruption="skip"):
        return int(message.store_timestamp)
    return None


def _last_timestamp(store: DefaultMessageStore) -> int | None:
    """Return the newest time in any queue; PREPARED and ROLLBACK records are in no queue."""
    newest: int | None = None
    for queue in store.reader.queues:
        for index in range(queue.max_index - 1, max(queue.min_index, queue.max_index - 4) - 1, -1):
            timestamp = store.reader.store_timestamp_of(queue, index)
            if timestamp >= 0:
                newest = timestamp if newest is None else max(newest, timestamp)
                break
    return newest


def _add_topics(store: DefaultMessageStore, document: dict[str, Any], lost: LostMessages) -> None:
    topics = []
    for topic in store.topics():
        queues = [
            {
                "queueId": queue_id,
                "minOffset": store.min_offset_in_queue(topic, queue_id),
                "maxOffset": store.max_offset_in_queue(topic, queue_id),
            }
            for queue_id in store.queues(topic)
        ]
        named = sum(max(0, queue["maxOffset"] - queue["minOffset"]) for queue in queues)
        places = [(topic, queue["queueId"]) for queue in queues]
        gone = sum(lost.queues.get(place, 0) for place in places)
        if lost.readable is not None:
            named = sum(lost.readable.get(place, 0) for place in places)
        topics.append(
            {
                "topic": topic,
                "type": queue_type(store, topic),
                "messages": named,
                "lostMessages": gone,
                "queues": queues,
            }
        )
    document["messages"] = sum(topic["messages"] for topic in topics)
    document["lostMessages"] = sum(topic["lostMessages"] for topic in topics)
    document["topics"] = topics


def queue_type(store: DefaultMessageStore, topic: str) -> str:
    """Return RocketMQ's ``BatchCQ`` or ``SimpleCQ``, or ``LightCQ`` for a light queue."""
    if topic.startswith(formats.TOPIC_LMQ_PREFIX):
        return "LightCQ"
    kinds = {type(store.reader.queues.get(topic, number)) for number in store.queues(topic)}
    return "BatchCQ" if BatchConsumeQueue in kinds else "SimpleCQ"


def _add_transactions(store: DefaultMessageStore, document: dict[str, Any]) -> None:
    """Add the undecided transactions, if the store has half messages."""
    if not has_transactions(store.reader):
        return
    found = summarize(store.reader, store.path, now_ms())
    document["transactions"] = {
        "undecided": found.undecided,
        "oldestBornTimestamp": found.oldest_born_timestamp,
        "byAge": found.by_age,
    }


def _add_delays(store: DefaultMessageStore, document: dict[str, Any]) -> None:
    """Add what waits in the schedule topic, if the store has one."""
    if not store.queues(formats.TOPIC_SCHEDULE):
        return
    report = store.delays()
    document["delays"] = {
        "pending": report.pending,
        "overdue": report.overdue,
        "parked": sum(len(level.parked) for level in report.levels),
        "nextDue": min((one.next_due for one in report.levels if one.next_due), default=None),
    }


def _add_index(store: DefaultMessageStore, document: dict[str, Any]) -> None:
    headers = [file.header for file in store.reader.index.files]
    document["index"] = {
        "files": len(headers),
        "keys": sum(header.index_count - 1 for header in headers),
        "endTimestamp": headers[-1].end_timestamp if headers else None,
    }
