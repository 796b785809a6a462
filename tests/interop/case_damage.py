"""One place of a store is damaged; both open it. Where RocketMQ is right we agree."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rocketstore
from interop import ours
from interop.case_java_writes import java_script, write_and_close
from interop.cases import Answers, Asked, Outcome, copy
from interop.harness import Driver, DriverError
from interop.workload import Job

#: Seconds for RocketMQ to answer about a damaged store; it may walk in circles.
DEADLINE_S = 90.0
#: Names that the scripts give to light queues.
LIGHT_TOPICS = ("%LMQ%", "TopicM")
Dump = dict[tuple[str, int, int], tuple[int, str]]


@dataclass(frozen=True)
class Damage:
    """What was done to a store."""

    what: str
    #: The bytes of the log that are not what they were; empty when another file was damaged.
    start: int = 0
    stop: int = 0

    def touches(self, offset: int, nbytes: int) -> bool:
        """Whether a record lies in the damaged bytes."""
        return offset < self.stop and self.start < offset + nbytes


def _files(root: Path, part: str) -> list[Path]:
    return sorted(path for path in (root / part).rglob("*") if path.is_file())


def _overwrite(path: Path, start: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(data)


def _flip(pick: random.Random, path: Path, position: int) -> None:
    content = path.read_bytes()
    _overwrite(path, position, bytes([content[position] ^ 1 << pick.randrange(8)]))


def flip_log(pick: random.Random, root: Path, records: Sequence[tuple[int, int]]) -> Damage:
    """One bit of one record."""
    offset, nbytes = pick.choice(records)
    at = offset + pick.randrange(nbytes)
    path, size = _segment(root, offset)
    _flip(pick, path, at % size)
    return Damage(f"flipped a bit at log offset {at}", at, at + 1)


def zero_log(pick: random.Random, root: Path, records: Sequence[tuple[int, int]]) -> Damage:
    """Zeros over part of a record, or over several."""
    offset, nbytes = pick.choice(records)
    path, size = _segment(root, offset)
    start = offset + pick.randrange(nbytes)
    length = min(pick.choice((4, 64, 600, 4096)), size - start % size)
    _overwrite(path, start % size, bytes(length))
    return Damage(f"zeroed {length} bytes at log offset {start}", start, start + length)


def tear_log(pick: random.Random, root: Path, records: Sequence[tuple[int, int]]) -> Damage:
    """The last records never reached the disk, and the one before them in part."""
    offset, nbytes = pick.choice(records[-8:])
    start = offset + pick.randrange(nbytes)
    path, size = _segment(root, offset)
    _overwrite(path, start % size, bytes(size - start % size))
    for later in _files(root, "commitlog"):
        if later > path:
            _overwrite(later, 0, bytes(size))
    return Damage(f"zeros from log offset {start} on", start, 2**62)


def flip_queue(pick: random.Random, root: Path, records: Sequence[tuple[int, int]]) -> Damage:
    """One bit of a queue file."""
    path = pick.choice(_files(root, "consumequeue"))
    position = pick.randrange(path.stat().st_size)
    _flip(pick, path, position)
    return Damage(f"flipped a bit of {path.relative_to(root)} at {position}")


def lose_queue(pick: random.Random, root: Path, records: Sequence[tuple[int, int]]) -> Damage:
    """A queue file is gone."""
    path = pick.choice(_files(root, "consumequeue"))
    path.unlink()
    return Damage(f"removed {path.relative_to(root)}")


def flip_index(pick: random.Random, root: Path, records: Sequence[tuple[int, int]]) -> Damage:
    """One bit of an index file."""
    path = pick.choice(_files(root, "index"))
    position = pick.randrange(path.stat().st_size)
    _flip(pick, path, position)
    return Damage(f"flipped a bit of {path.relative_to(root)} at {position}")


def lose_index(pick: random.Random, root: Path, records: Sequence[tuple[int, int]]) -> Damage:
    """An index file is gone."""
    path = pick.choice(_files(root, "index"))
    path.unlink()
    return Damage(f"removed {path.relative_to(root)}")


def lose_checkpoint(pick: random.Random, root: Path, records: Sequence[tuple[int, int]]) -> Damage:
    """The checkpoint is gone, or all zeros."""
    path = root / "checkpoint"
    if pick.random() < 0.5:
        path.unlink()
        return Damage("removed the checkpoint")
    path.write_bytes(bytes(path.stat().st_size))
    return Damage("zeroed the checkpoint")


KINDS: tuple[Callable[[random.Random, Path, Sequence[tuple[int, int]]], Damage], ...] = (
    flip_log,
    zero_log,
    tear_log,
    flip_queue,
    lose_queue,
    flip_index,
    lose_index,
    lose_checkpoint,
)


def _segment(root: Path, offset: int) -> tuple[Path, int]:
    files = _files(root, "commitlog")
    size = files[0].stat().st_size
    return root / "commitlog" / f"{offset // size * size:020d}", size


def place_of(topic: str, queue_id: int, item: Mapping[str, Any]) -> tuple[str, int, int]:
    """Topic, queue and queue offset; in a light queue, whose messages store their offset in another
    one, the log offset instead."""
    name = "offset" if topic.startswith(LIGHT_TOPICS) else "queueOffset"
    return topic, queue_id, item[name]


def dump(answer: Mapping[str, Any]) -> Dump:
    """What a ``dumpall`` shows: (log offset, digest) by topic, queue and queue offset."""
    found: Dump = {}
    for row in answer.get("queues", ()):
        for item in row["messages"]:
            key = place_of(row["topic"], row["queueId"], item)
            found.setdefault(key, (item["offset"], item["sha1"]))
    return found


def our_dump(store: rocketstore.DefaultMessageStore) -> Dump:
    """The same of ours, message by message: reading a damaged one raises."""
    respondent = ours.Respondent(store)
    found: Dump = {}
    for topic in store.topics():
        for queue_id in store.queues(topic):
            first = store.min_offset_in_queue(topic, queue_id)
            for offset in range(first, store.max_offset_in_queue(topic, queue_id)):
                ask = {"topic": topic, "queueId": queue_id, "offset": offset, "max": 1}
                try:
                    messages = respondent.get(ask)["messages"]
                except rocketstore.CorruptionError:
                    continue
                for item in messages:
                    found[place_of(topic, queue_id, item)] = item["offset"], item["sha1"]
    return found


def damaged(version: str, jobs: Sequence[Job], scratch: Path) -> list[Outcome]:
    """Written by RocketMQ, damaged in one place, opened by both."""
    written = write_and_close(version, jobs, scratch)
    rows = []
    for job, answers in zip(jobs, written, strict=True):
        root = scratch / job.name / "store"
        with ours.open_store(root, "r", job) as store:
            original = our_dump(store)
            records = [(m.physical_offset, m.store_size) for m in store.scan()]
        pick = random.Random(f"damage {job.seed}")
        damage = KINDS[job.seed % len(KINDS)](pick, root, records)
        if pick.random() < 0.5:
            (root / "abort").touch()
        keys = _keys(job, answers, pick)
        item = Asked(job, copy(root, "java"), [{"op": "wait"}, {"op": "dumpall"}, *keys])
        rows.append((Outcome(job), item, root, damage, original, dict(records)))
    theirs = _ask(version, [item for _, item, *_ in rows], scratch)
    for (outcome, item, root, damage, original, sizes), their in zip(rows, theirs, strict=True):
        reference = dump(their[1]) if their is not None else {}
        if their is None:
            outcome.found.know("unreadable")
        for mode in ("r", "r+"):
            view = View(outcome, damage, original, sizes, reference, mode)
            target = copy(root, f"copy {mode}")
            # Without an index file, "r" finds keys only with ``derive="full"``.
            more = {"derive": "full"} if mode == "r" and "index" in damage.what else {}
            try:
                with ours.open_store(target, mode, item.job, **more) as store:
                    view.check(our_dump(store))
                    if their is not None:
                        view.check_keys(item, their, ours.ask(store, item.questions))
            except rocketstore.RocketStoreError as error:
                view.refused(error)
    return [outcome for outcome, *_ in rows]


def _keys(job: Job, answers: Answers, pick: random.Random) -> list[dict[str, Any]]:
    unique = [
        {"op": "query", "topic": op["topic"], "key": op["props"]["UNIQ_KEY"], "max": 64}
        for op, answer in zip(java_script(job), answers, strict=True)
        if answer.get("append") == "PUT_OK" and "UNIQ_KEY" in op.get("props", {})
    ]
    return pick.sample(unique, min(25, len(unique)))


def _ask(version: str, asked: Sequence[Asked], scratch: Path) -> list[Answers | None]:
    """Answers of RocketMQ; ``None`` where it does not load the store or does not answer."""
    found: list[Answers | None] = []
    with Driver(version, scratch) as driver:
        opened = [
            driver.open(item.job.name, item.root, item.job.config, item.job.feature.topics)
            for item in asked
        ]
        for item, pending in zip(asked, opened, strict=True):
            try:
                if not pending.result(DEADLINE_S)["load"]:
                    found.append(None)
                    continue
                answers = driver.ask(item.job.name, item.questions).result(DEADLINE_S)["answers"]
            except DriverError:
                found.append(None)
                continue
            found.append(None if "raised" in answers[1] else answers)
    return found


@dataclass(frozen=True)
class View:
    """One opening of ours, to be judged by what was written and by RocketMQ's view."""

    outcome: Outcome
    damage: Damage
    original: Dump
    sizes: dict[int, int]
    reference: Dump
    mode: str

    def _fail(self, text: str) -> None:
        self.outcome.found.fail(f"{self.damage.what}, mode {self.mode!r}: {text}")

    def refused(self, error: Exception) -> None:
        """Opening for writing may be refused while durable bytes are damaged; reading may not."""
        self.outcome.found.compared += 1
        if self.mode == "r" or not isinstance(error, rocketstore.CorruptionError):
            self._fail(f"refused: {type(error).__name__}: {error}")
        else:
            self.outcome.found.know("refused")

    def check(self, mine: Dump) -> None:
        """We show nothing that was not written, and all that RocketMQ shows rightly."""
        for key, shown in mine.items():
            self.outcome.found.compared += 1
            if self.original.get(key) != shown and not self._is_undetectable(shown[0]):
                self._fail(f"{key} is {shown}, was {self.original.get(key)}")
        for key, shown in self.reference.items():
            self.outcome.found.compared += 1
            was = self.original.get(key)
            if was == shown and key not in mine:
                self._fail(f"{key} at log offset {shown[0]} is missing; RocketMQ shows it")
            elif was != shown and mine.get(key) == was:
                self.outcome.found.know("altered")
        for key, was in self.original.items():
            self.outcome.found.compared += 1
            if key not in mine and not self._is_undetectable(was[0]):
                self._fail(f"{key} at log offset {was[0]} is missing, though it is whole")
        if any(
            mine.get(key) == was and key not in self.reference for key, was in self.original.items()
        ):
            self.outcome.found.know("lost")

    def _is_undetectable(self, offset: int) -> bool:
        """Whether the damage lies in this record: topic and properties are under no CRC."""
        return self.damage.touches(offset, self.sizes.get(offset, 0))

    def check_keys(self, item: Asked, theirs: Answers, mine: Answers) -> None:
        """We find every undamaged message that RocketMQ finds."""
        whole = set(self.original.values())
        for question, their, our in zip(item.questions, theirs, mine, strict=True):
            if question["op"] != "query" or "messages" not in their:
                continue
            self.outcome.found.compared += 1
            found = {(row["offset"], row["sha1"]) for row in our.get("messages", ())}
            missing = {(row["offset"], row["sha1"]) for row in their["messages"]} & whole - found
            if missing:
                self._fail(f"{question}: {sorted(missing)} not found; ours {str(our)[:300]}")
