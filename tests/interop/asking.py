"""The questions put to both sides about a store."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interop.workload import KEYS, TAGS, Op

Question = dict[str, Any]
Written = tuple[Op, Mapping[str, Any]]
HIGHEST = 2**63 - 1


@dataclass(frozen=True)
class Place:
    """Where a message went."""

    topic: str
    queue_id: int
    queue_offset: int
    offset: int
    store_timestamp: int
    keys: tuple[str, ...]


def places(written: Iterable[Written]) -> list[Place]:
    """Where the acknowledged writes went: of a batch, its first message."""
    found = []
    for op, answer in written:
        if answer.get("append") != "PUT_OK":
            continue
        properties = [op["props"], *(item["props"] for item in op.get("messages", ()))]
        keys = [item["UNIQ_KEY"] for item in properties if "UNIQ_KEY" in item]
        for item in properties:
            keys += [key for key in item.get("KEYS", "").split(" ") if key]
        found.append(
            Place(
                op["topic"],
                op["queueId"],
                answer["queueOffset"],
                answer["offset"],
                answer["storeTs"],
                tuple(keys),
            )
        )
    return found


def make_questions(
    written: Sequence[Written],
    seed: int,
    *,
    timed_keys: bool,
    count: int = 12,
    queues: Sequence[tuple[str, int]] | None = None,
) -> list[Question]:
    """Return the questions about a store that ``written`` went to.

    Parameters
    ----------
    written : sequence of (operation, answer)
        As RocketMQ was given the operations.
    seed : int
    timed_keys : bool
        Ask for keys within times, too: what index files hold after a crash differs.
    count : int
        How many of each kind.
    queues : sequence of (topic, queue id), optional
        All queues that there can be, where RocketMQ does not list them by itself.
    """
    pick = random.Random(f"questions {seed}")
    rows = places(written)
    everything = {"op": "dumpall"} if queues is None else {"op": "dumpall", "queues": queues}
    questions: list[Question] = [{"op": "wait"}, everything]
    if not rows:
        return [*questions, {"op": "look", "offset": 0}]
    for row in pick.sample(rows, min(count, len(rows))):
        questions += _about_queue(pick, row)
        questions += _about_time(pick, row, rows)
        questions.append({"op": "look", "offset": row.offset})
    keyed = [row for row in rows if row.keys]
    for row in pick.sample(keyed, min(3 * count, len(keyed))):
        key = pick.choice(row.keys)
        questions += _about_key(pick, row, key, timed=timed_keys)
    questions += [
        {"op": "query", "topic": row.topic, "key": pick.choice(KEYS), "max": 64}
        for row in pick.sample(rows, min(count, len(rows)))
    ]
    end = max(row.offset for row in rows)
    questions += [
        {"op": "look", "offset": end + 10_000_000},
        {"op": "get", "topic": "none", "queueId": 0, "offset": 0, "max": 8},
        {"op": "query", "topic": "none", "key": "all", "max": 8},
        {"op": "bytime", "topic": "none", "queueId": 7, "ts": rows[0].store_timestamp},
        {"op": "info"},
    ]
    return questions


def _about_queue(pick: random.Random, row: Place) -> list[Question]:
    queue = {"op": "get", "topic": row.topic, "queueId": row.queue_id}
    offset = row.queue_offset + pick.choice((-1, 0, 0, 0, 1, 2))
    return [
        {**queue, "offset": offset, "max": pick.choice((1, 5, 32, 100))},
        {**queue, "offset": pick.choice((0, 1, 10**6)), "max": 7},
        {
            **queue,
            "offset": max(0, offset - 3),
            "max": pick.choice((1, 32)),
            "tags": pick.choice((*TAGS[:5], "TagA || BB", "*", "none")),
        },
    ]


def _about_time(pick: random.Random, row: Place, rows: Sequence[Place]) -> list[Question]:
    times = (
        *(0, row.store_timestamp, row.store_timestamp + pick.choice((-1, 1, -500, 500))),
        *(pick.choice(rows).store_timestamp, rows[-1].store_timestamp + 100_000),
    )
    queue = {"op": "bytime", "topic": row.topic, "queueId": row.queue_id}
    return [{**queue, "ts": time} for time in pick.sample(times, 3)]


def _about_key(pick: random.Random, row: Place, key: str, *, timed: bool) -> list[Question]:
    query = {"op": "query", "topic": row.topic, "key": key}
    questions: list[Question] = [{**query, "max": 64}]
    if timed:
        begin = row.store_timestamp + pick.choice((-3000, -1000, -1, 0, 1))
        end = pick.choice((begin, row.store_timestamp, row.store_timestamp + 999, HIGHEST))
        questions += [{**query, "max": pick.choice((1, 32)), "begin": begin, "end": end}]
    return questions
