"""Stores to be salvaged, damage of every kind, and what must hold afterwards."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rocketstore
from rocketstore import formats
from rocketstore.testing import check_invariants
from rocketstore.verify.report import Finding

SEGMENT_NBYTES = 8192
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT_NBYTES,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
}
COUNT = 300
LOST = "ROCKETSTORE_LOST"


class Written(NamedTuple):
    """One message as it was stored."""

    offset: int
    nbytes: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    key: str


def write(root: Path, seed: int, **options: Any) -> list[Written]:
    """Write a store of mixed messages, and close it in good order."""
    chance = random.Random(seed)
    retry = "%RETRY%" + "group" * (5 if options.get("broker_version") == "4.9.8" else 30)
    rows = []
    with rocketstore.open(root, "x", **{**OPTIONS, **options}) as store:
        for number in range(COUNT):
            topic = chance.choice(("Orders", "P", retry, "SCHEDULE_TOPIC_XXXX"))
            queue_id, body = chance.randrange(2), b"b" * chance.choice((0, 1, 60, 700))
            host = chance.choice(("10.1.2.3:4567", "[2001:db8::1]:4567"))
            key = f"k{number}"
            delay = {"DELAY": "1", "REAL_TOPIC": "Orders"} if topic.startswith("SCH") else {}
            done = store.put(topic, body, queue_id, "tag", key, born_host=host, properties=delay)
            assert done.ok, done
            rows.append(
                Written(
                    done.physical_offset,
                    done.nbytes,
                    topic,
                    queue_id,
                    done.queue_offset,
                    body,
                    key,
                )
            )
        assert store.wait_dispatched()
    return rows


def segments(root: Path) -> list[Path]:
    """The log's files in order."""
    return sorted((root / "commitlog").iterdir())


def overwrite(path: Path, position: int, content: bytes) -> None:
    """Write over a part of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def _place(root: Path, offset: int) -> tuple[Path, int]:
    name = formats.offset_to_file_name(offset - offset % SEGMENT_NBYTES)
    return root / "commitlog" / name, offset % SEGMENT_NBYTES


def one_record(root: Path, rows: list[Written], chance: random.Random) -> None:
    """The magic of one record in the middle."""
    row = chance.choice(rows[COUNT // 4 : -COUNT // 4])
    path, position = _place(root, row.offset)
    overwrite(path, position + 4, b"!!")


def many_records(root: Path, rows: list[Written], chance: random.Random) -> None:
    """Single records here and there."""
    for row in chance.sample(rows[:-5], 20):
        path, position = _place(root, row.offset)
        overwrite(path, position + 4, b"?")


def garbage(root: Path, rows: list[Written], chance: random.Random) -> None:
    """A stretch of random bytes somewhere in a segment that is not the last one."""
    path = chance.choice(segments(root)[:-2])
    start = chance.randrange(SEGMENT_NBYTES - 600)
    overwrite(path, start, chance.randbytes(chance.randrange(500, SEGMENT_NBYTES - start)))


def first_record(root: Path, rows: list[Written], chance: random.Random) -> None:
    """The very first record."""
    overwrite(segments(root)[0], 0, b"\xff\xff")


def segment_end(root: Path, rows: list[Written], chance: random.Random) -> None:
    """The end-of-segment marker."""
    row = next(b for _, b in itertools.pairwise(rows) if b.offset % SEGMENT_NBYTES == 0)
    before = rows[rows.index(row) - 1]
    path, position = _place(root, before.offset)
    overwrite(path, position + before.nbytes, b"\x00\x00\x00\x01")


def missing(root: Path, rows: list[Written], chance: random.Random) -> None:
    """Two segments in a row are gone."""
    for path in segments(root)[2:4]:
        path.unlink()


def shortened(root: Path, rows: list[Written], chance: random.Random) -> None:
    """A segment in the middle was truncated."""
    os.truncate(segments(root)[2], chance.randrange(1, SEGMENT_NBYTES))


def emptied(root: Path, rows: list[Written], chance: random.Random) -> None:
    """A segment in the middle has no bytes."""
    os.truncate(segments(root)[2], 0)


def first_emptied(root: Path, rows: list[Written], chance: random.Random) -> None:
    """The first segment has no bytes."""
    os.truncate(segments(root)[0], 0)


def last_damaged(root: Path, rows: list[Written], chance: random.Random) -> None:
    """The newest messages are garbage."""
    path, position = _place(root, rows[-3].offset)
    overwrite(path, position, chance.randbytes(SEGMENT_NBYTES - position))


def last_shortened(root: Path, rows: list[Written], chance: random.Random) -> None:
    """The last segment was truncated in the middle of a message."""
    path, position = _place(root, rows[-2].offset)
    os.truncate(path, position + rows[-2].nbytes // 2)


KINDS: tuple[Callable[[Path, list[Written], random.Random], None], ...] = (
    one_record,
    many_records,
    garbage,
    first_record,
    segment_end,
    missing,
    shortened,
    emptied,
    first_emptied,
    last_damaged,
    last_shortened,
)


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Every file with its size and digest."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def survivors(root: Path, rows: list[Written]) -> list[Written]:
    """What a reader still shows of the damaged store."""
    with rocketstore.open(root) as store:
        shown = {m.physical_offset: m for m in store.scan(on_corruption="skip")}
    good = [row for row in rows if row.offset in shown and shown[row.offset].body == row.body]
    assert len(good) < len(rows) or len(shown) >= len(rows)
    return good


def check(
    root: Path, rows: list[Written], kept: list[Written], gaps: list[tuple[str, int, int, int]]
) -> None:
    """All survivors are where they were; every key finds them; nothing is wrong but ``gaps``."""
    odd_queues = {f"{topic}/{queue_id}" for topic, queue_id, *_ in gaps}
    with rocketstore.open(root, "r+", **OPTIONS) as store:
        assert not store.recovery_report.damaged
        for row in kept:
            message = store.look_message_by_offset(row.offset)
            assert message is not None
            assert (message.topic, message.queue_id) == (row.topic, row.queue_id)
            assert (message.queue_offset, message.body) == (row.queue_offset, row.body)
            found = store.get_message("g", row.topic, row.queue_id, row.queue_offset, 1).messages
            assert [m.physical_offset for m in found] == [row.offset]
            by_key = [m.physical_offset for m in store.find(topic=row.topic, key=row.key)]
            assert by_key == [row.offset]
        verified = store.verify()
        wrong = [one for one in verified.findings if not (gaps and _tells_of_a_gap(one))]
        assert not wrong, wrong[:5]
        _check_puts(store, rows)
    report = check_invariants(root, clock_steps=True)
    violations = [one for one in report.violations if one.path not in odd_queues]
    assert not violations, violations[:5]


def _tells_of_a_gap(finding: Finding) -> bool:
    """Queue offsets of lost messages without a placeholder are missing for ever."""
    return finding.kind == "queue-offset" and finding.reason.endswith("records are missing")


def _check_puts(store: rocketstore.DefaultMessageStore, rows: list[Written]) -> None:
    """New messages get queue offsets that no lost one had, as far as that is known."""
    for topic, queue_id in {(row.topic, row.queue_id) for row in rows if row.topic == "Orders"}:
        end = store.max_offset_in_queue(topic, queue_id)
        assert store.put(topic, b"new", queue_id).queue_offset == end


def lost_places(rows: list[Written], kept: list[Written]) -> Iterator[tuple[str, int, int]]:
    """Topic, queue and queue offset of what is lost."""
    good = set(kept)
    for row in rows:
        if row not in good:
            yield row.topic, row.queue_id, row.queue_offset
