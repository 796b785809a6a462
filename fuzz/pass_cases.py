"""Cases for the passes that read windows of the log: changed records, any limits and flags."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kernel_seeds import load, mutate_fields, number

from rocketstore import formats
from rocketstore.status import RecordStatus
from support.kernel_bodies import NATIVE

if TYPE_CHECKING:
    from kernel_cases import Runner

    from support.kernel_bodies import Bodies

_ENTRY = formats.INDEX_ENTRY
_MOST_CALLS = 300
#: The most keys of one record; a pass that keeps keys needs at least this capacity.
_LEAST_CAPACITY = 16386


def consumed(
    random: Random, runner: Runner, name: str, make: Callable[[Bodies], Any], drain: Any
) -> None:
    """Feed changed records to a pass of both bodies; ``drain`` returns its content."""
    import kernel_cases

    base, content = kernel_cases.changed_log(random)
    position, stop = kernel_cases.some_range(random, len(content))
    end = base + len(content) + random.choice((0, 0, 0, 8, 4096)) - random.choice((0, 0, 1, 50))
    limit = 2**63 - 1
    if random.random() < 0.2:
        limit = random.choice((base + random.randrange(len(content) + 2), number(random)))
    flags = random.randrange(32)
    middle = random.randint(0, max(stop, 0)) if random.random() < 0.5 else stop

    def ask(body: Bodies) -> list[Any]:
        walk = make(body)
        window = runner.buffer(body, content)
        found: list[Any] = []
        at = position
        for upto in (middle, stop):
            for _ in range(_MOST_CALLS):
                status, at = walk.consume(window, at, upto, base, end, limit, flags)
                found.append((status, at, drain(walk)))
                if status != RecordStatus.FULL:
                    break
        return found

    runner.both(name, ask)


def index_keys(random: Random, runner: Runner) -> None:
    """Compute the keys of changed records, and match changed entries with keys."""
    counts_only = random.random() < 0.3
    options = {
        "index_tags": random.random() < 0.7,
        "mark_tags": random.random() < 0.7,
        "counts_only": counts_only,
        "capacity": random.choice((1, 3, 100, 0)) if counts_only else _LEAST_CAPACITY,
    }

    def drain(keys: Any) -> Any:
        counts = (keys.count, keys.records, keys.next_offset)
        if counts_only:
            return *counts, keys.take_count()
        return *counts, [column.tolist() for column in keys.take()]

    consumed(
        random,
        runner,
        "IndexKeysPass.consume",
        lambda body: body.passes_index_keys.IndexKeysPass(**options),
        drain,
    )
    _matched(random, runner)


def _matched(random: Random, runner: Runner) -> None:
    slots, _, file = random.choice(load().index_files)
    start = formats.index_file_nbytes(slots, 1)
    entries = file[start : start + _ENTRY.nbytes * random.randint(1, 12)]
    rows = list(_ENTRY.struct.iter_unpack(entries[: len(entries) // _ENTRY.nbytes * _ENTRY.nbytes]))
    rows = [row for row in rows if random.random() < 0.9]
    hashes = array("i", [row[0] - (2**31 if random.random() < 0.3 else 0) for row in rows])
    offsets = array("q", [row[1] for row in rows])
    begin = random.choice((1_700_000_000_000, 0, number(random)))
    times = array("q", [_wrapped(begin + 1000 * row[2]) for row in rows])
    changed = entries if random.random() < 0.4 else mutate_fields(random, entries, _ENTRY.nbytes)
    if random.random() < 0.05:
        offsets.append(1)
    places = [0, 0]
    if random.random() < 0.3:
        places = [random.choice((1, len(rows), len(rows) + 1, -1, number(random))) for _ in "ab"]
    runner.call(
        *("passes_index_keys", "match_entries", bytearray(changed), places[0]),
        *(hashes, offsets, times, places[1], begin),
    )


def queue_units(random: Random, runner: Runner) -> None:
    """Compute the queue units of changed records."""
    options: dict[str, Any] = {
        "delay_ms": tuple(random.randrange(10**6) for _ in range(random.randrange(4))),
        "multi_dispatch": random.randrange(16),
        "with_times": random.random() < 0.3,
        "max_nbytes": random.choice((1, 50, 1 << 20)),
        "max_runs": random.choice((1, 3, 1000)),
    }
    if random.random() < 0.3:
        names = (b"TopicA", b"TopicTest", b"%LMQ%a", b"x" * 300)
        options["queues"] = [(random.choice(names), random.randrange(3)) for _ in range(3)]
    consumed(
        random,
        runner,
        "QueueUnitsPass.consume",
        lambda body: body.passes_queue_units.QueueUnitsPass(**options),
        lambda units: (units.inner_batch_offset, units.take()),
    )


def fsck(random: Random, runner: Runner) -> None:
    """Compute the sums of changed records, and of changed units."""
    options: dict[str, Any] = {
        "delay_ms": tuple(random.randrange(10**6) for _ in range(random.randrange(4))),
        "report_property_crc": random.random() < 0.5,
        "max_queues": random.choice((1, 3, 1000)),
        "max_wrong": random.choice((1, 1000)),
        "index_keys": random.random() < 0.5,
        "key_capacity": _LEAST_CAPACITY + random.choice((0, 3)),
    }

    def drain(sums: Any) -> Any:
        keys = sums.take_keys() if options["index_keys"] else ()
        return sums.take(), [column.tolist() for column in keys]

    consumed(
        random,
        runner,
        "FsckPass.consume",
        lambda body: body.passes_fsck.FsckPass(**options),
        drain,
    )
    units = random.randbytes(random.randrange(100))
    units += formats.CONSUME_QUEUE_UNIT.struct.pack(0, formats.FILLER_UNIT_SIZE, 0)
    if random.random() < 0.7:
        units = mutate_fields(random, units, formats.CONSUME_QUEUE_UNIT.nbytes)
    runner.call(
        *("passes_fsck", "sum_units", bytearray(units)),
        *(random.choice((0, 7, number(random))), number(random)),
    )


def stats(random: Random, runner: Runner) -> None:
    """Compute the groups of changed records."""
    names = ("topic", "queueId", "tags", "bucket", "bodySize")
    by = [name for name in names if random.random() < 0.5]
    width = random.choice((1, 7, 60000, 2**63 - 1))
    most = random.choice((1, 3, 1000))
    consumed(
        random,
        runner,
        "StatsPass.consume",
        lambda body: body.passes_stats.StatsPass(by, bucket_ms=width, max_groups=most),
        lambda groups: groups.take(),
    )


def rows(random: Random, runner: Runner) -> None:
    """Judge the rows of changed records, some of them changed themselves."""
    import kernel_cases

    base, content = kernel_cases.changed_log(random)
    nbytes = formats.PARSED_RECORD.nbytes
    filled = bytearray(20 * nbytes)
    base = base if 0 <= base < 2**62 else 0
    scan = (content, 0, len(content), base, base + len(content), random.randrange(32), filled)
    count = NATIVE.message.scan_records(*scan)[0]
    judged = bytes(filled[: count * nbytes])
    if random.random() < 0.4:
        judged = mutate_fields(random, judged + bytes(nbytes), nbytes)
    before = random.choice((0, -(2**63), 2**63 - 1, number(random)))
    runner.call("passes_rows", "summarize", content, judged, before)

    def follow(body: Bodies) -> list[Any]:
        offsets = body.passes_rows.QueueOffsets()
        window = runner.buffer(body, content)
        return [(offsets.follow(window, judged), list(offsets.ends().items())) for _ in "ab"]

    runner.both("QueueOffsets.follow", follow)


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


CASES = {
    "index_keys": index_keys,
    "queue_units": queue_units,
    "fsck": fsck,
    "stats": stats,
    "rows": rows,
}
