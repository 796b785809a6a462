"""Cases for staged records: odd rows become records or errors, changed stages are read or refused.

Both bodies must agree.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kernel_seeds import load, mutate, number

if TYPE_CHECKING:
    from kernel_cases import Runner

    from support.kernel_bodies import Bodies

load()
_SIZE = 1 << 16
_TEXTS = ("", "T", "TopicTest", "a b", "标", "k1 k2", "\x01", "%RETRY%g", "x" * 130, "é" * 40)
_NAMES = (*_TEXTS, "TAGS", "KEYS", "WAIT", "DELAY", "UNIQ_KEY", "__CRC32#", "TIMER_DELAY_SEC")


def _text(random: Random) -> bytes | None:
    if random.random() < 0.2:
        return None
    text = random.choice(_TEXTS).encode()
    return mutate(random, text, 1) if random.random() < 0.05 else text


def _batch(random: Random) -> Any:
    """Return a batch of a few rows, sometimes a slice."""
    import pyarrow as pa

    count = random.randint(0, 6)

    def column(make: Any) -> list[Any]:
        return [make() for _ in range(count)]

    def texts() -> Any:
        values = pa.array(column(lambda: _text(random)), pa.binary())
        return values.view(pa.string())

    def pairs() -> list[tuple[str, str | None]] | None:
        if random.random() < 0.5:
            return None
        names = [random.choice(_NAMES) for _ in range(random.choice((0, 1, 2, 5, 40)))]
        return [(name, random.choice((*_TEXTS, "3"))) for name in names]

    def small() -> int | None:
        value = random.choice((0, 1, 7, 2**31 - 1, -1, -(2**31)))
        return None if random.random() < 0.5 else value

    arrays = {
        "body": pa.array(column(lambda: random.randbytes(random.choice((0, 5, 300)))), pa.binary()),
        "topic": texts(),
        "tags": texts(),
        "keys": texts(),
        "queueId": pa.array(column(small), pa.int32()),
        "properties": pa.array(column(pairs), pa.map_(pa.string(), pa.string())),
        "flag": pa.array(column(small), pa.int32()),
        "bornTimestamp": pa.array(
            column(lambda: None if random.random() < 0.4 else number(random)),
            random.choice((pa.int64(), pa.timestamp("us", "UTC"))),
        ),
        "delayLevel": pa.array(column(small), pa.int32()),
    }
    for name in list(arrays):
        if name != "body" and random.random() < 0.3:
            del arrays[name]
    batch = pa.record_batch(arrays)
    if count and random.random() < 0.3:
        batch = batch.slice(random.randrange(count))
    return batch


def stage(random: Random, runner: Runner) -> None:
    """Encode rows, change them, then tally, append and compare them."""
    batch = _batch(random)
    options = {
        "topic": random.choice((None, None, "Given", "a b")),
        "queues": random.choice((1, 3)),
        "broker_version": random.choice(("4.9.8", "5.3.3", "5.5.0")),
        "segment_nbytes": _SIZE,
        "delay_ms": random.choice(((), (1000, 5000))),
        "max_message_size": random.choice((200, 4096)),
    }

    def encode(body: Bodies) -> Any:
        made = body.staged_records.StageEncoder(capacity=random_capacity, **options)
        pieces, row = [], 0
        try:
            while row < batch.num_rows:
                row = made.encode(batch, row)
                pieces.append(made.take())
        except (TypeError, ValueError) as error:
            return made.rows, pieces, made.take(), type(error).__name__, str(error)
        return made.rows, pieces, b"", made.position

    random_capacity = random.choice((1, 300, 1 << 20))
    encoded = runner.both("StageEncoder.encode", encode)
    content = b"".join(encoded[1]) + encoded[2] if encoded is not None else b""
    base = 0
    if random.random() < 0.7:
        content = mutate(random, content)
    if random.random() < 0.1:
        base = abs(number(random))
    limit = len(content) + random.choice((0, 0, 0, 1))
    room = random.choice((1 << 30, len(content), abs(number(random))))
    runner.call("staged_records", "tally", bytearray(content), 0, limit, base, room)
    _append(random, runner, content, base, options)


def _append(
    random: Random, runner: Runner, content: bytes, base: int, options: dict[str, Any]
) -> None:
    others = {name: options[name] for name in options if name not in ("topic", "queues")}
    with_crc = options["broker_version"] == "5.3.3" and random.random() < 0.4

    def no_room(_: int) -> None:
        """Create no file: the put returns UNKNOWN_ERROR."""

    def append(body: Bodies) -> Any:
        segment = runner.buffer(body, bytes(_SIZE))
        appender = body.commit_log.Appender(
            roll=no_room,
            extend=no_room,
            clock=lambda: 1_700_000_000_000,
            append_property_crc=with_crc,
            **others,
        )
        appender.attach(segment, _SIZE, 0, _SIZE)
        try:
            result = appender.put_staged(runner.buffer(body, content), base)
            columns = [list(result.statuses), list(result.nbytes), list(result.queue_offsets)]
        finally:
            end = appender.write_position
            appender.close()
        return columns, bytes(segment[:end])

    answer = runner.both("Appender.put_staged", append)
    if answer is None or not answer[0][0]:
        return
    sizes = [nbytes for nbytes in answer[0][1] if nbytes]
    if not sizes:
        return
    stored = answer[1][: sizes[0]]
    first = content[: int.from_bytes(content[:4], "big")]
    if random.random() < 0.5:
        stored = mutate(random, stored, 1)
    runner.call("staged_records", "matches", first, stored)


CASES = {"stage": stage}
