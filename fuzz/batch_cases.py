"""Cases for the decoder of record batches: changed records, any columns, filters and limits."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from kernel_seeds import load, number

from rocketstore.display.columns import COLUMNS, arrow_schema
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    from kernel_cases import Runner

    from support.kernel_bodies import Bodies

_MOST_CALLS = 300


def _texts(random: Random, some: list[str]) -> list[str]:
    made = ["", "\ufffd", "ä", "a\x00b", "\ud800"]
    return random.choices([*some, *made], k=random.randint(0, 5))


def record_limits(random: Random) -> dict[str, Any]:
    """Draw filters of records; each is present in one case of twelve."""
    topics = _texts(random, ["TopicA", "TopicB", "Mix0", "Mix1", "light"])
    queues = [random.randrange(4) for _ in range(random.randint(0, 3))]
    ranges = {(topic, queue): (random.randrange(9), None) for topic in topics for queue in queues}
    limits = {
        "topics": topics,
        "tags": _texts(random, ["TagA", "TagB", "tag0", "tag1"]),
        "keys": _texts(random, ["k1", "key1", "key87"]),
        "queue_ids": dict.fromkeys(topics, queues),
        "start_offsets": ranges,
        "begin": number(random),
        "end": number(random),
    }
    return _some(random, limits)


def _some(random: Random, limits: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in limits.items() if random.random() < 0.08}


def _limits(random: Random) -> dict[str, Any]:
    """Draw filters and sizes of batches."""
    sizes = {
        "batch_rows": random.choice((1, 2, 64, 2**20, 0)),
        "batch_bytes": random.choice((1, 300, 5000, 2**29, -1)),
    }
    return {"batch_rows": 100, **record_limits(random), **_some(random, sizes)}


def batches(random: Random, runner: Runner) -> None:
    """Decode changed records in one or more windows."""
    import kernel_cases

    base, content = kernel_cases.changed_log(random)
    data = bytearray(content)
    names = random.sample(list(COLUMNS), random.randint(1, len(COLUMNS)))
    limits = _limits(random)
    position, stop = kernel_cases.some_range(random, len(data))
    end = base + len(data) + random.choice((0, 0, 0, 8, 4096)) - random.choice((0, 0, 0, 1, 50))
    limit = 2**63 - 1
    if random.random() < 0.2:
        limit = random.choice((base + random.randrange(len(data) + 2), number(random)))
    flags = random.randrange(32)

    def ask(body: Bodies) -> tuple[list[tuple[int, int]], list[list[Any]]]:
        decoder = body.arrow.BatchDecoder(names, **limits)
        answers, rows, at = [], [], position
        window = runner.buffer(body, data)
        for _ in range(_MOST_CALLS):
            status, at = decoder.consume(window, at, stop, base, end, limit, flags)
            answers.append((status, at))
            rows.append(_shown(pa.record_batch(decoder.take()), names))
            if status != RecordStatus.FULL:
                return answers, rows
        raise kernel_cases.FindingError("the decoder does not end")

    runner.both("BatchDecoder", ask)


def _shown(batch: pa.RecordBatch, names: list[str]) -> list[Any]:
    batch.validate(full=True)
    if batch.schema != arrow_schema(names):
        raise AssertionError(f"the schema of {names} is {batch.schema}")
    times = {name for name in names if pa.types.is_timestamp(batch.schema.field(name).type)}
    return [
        (array.cast(pa.int64()) if name in times else array).to_pylist()
        for name, array in zip(names, batch.columns, strict=True)
    ]


def truncate(random: Random, body: Bodies, mapping: Any, nbytes: int) -> None:
    """Decode a mapping whose file was truncated; rows decoded before that must be valid."""
    base = random.choice(load().logs)[0]
    decoder = body.arrow.BatchDecoder(list(COLUMNS), batch_rows=random.choice((1, 5, 8192)))
    position = 0
    while True:
        status, position = decoder.consume(mapping, position, nbytes, base, 2**31, 2**62, 1)
        pa.record_batch(decoder.take()).validate(full=True)
        if status != RecordStatus.FULL:
            return


CASES = {"batches": batches}
