"""Message sets: which messages every contestant puts, from a fixed seed.

A set is described by small rows (time, place of the body in a pool of random bytes, topic, queue,
kind) and by templates of properties, so that a file of some megabytes stands for a gigabyte of
messages. The file is read by this module, by ``java/MessageSet.java`` and by ``limits.h``; all
three make the same messages of it. Integers in the file are big-endian:

    magic "RACESET1"; int32 count, topics, kinds, pool_nbytes, samples
    topics:  text each (uint16 length, ASCII)
    kinds:   int32 sys_flag, int32 reconsume_times, int64 prepared_transaction_offset,
             uint16 properties, then name and value of each as texts
    pool:    pool_nbytes random bytes
    rows:    int64 born_timestamp, int32 body_at, int32 body_nbytes, uint16 topic, queue, kind, zero
    samples: int32 numbers of the messages that are asked for by key, id and time

A value in braces is replaced for each message; see ``VARYING``. The orders of the properties are
those of recorded stores and requests: a producer's as its client sends them, a retry's and a
transaction's as a broker of the 5.x line stores them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC = b"RACESET1"
SEED = 20
TOPICS, QUEUES = 16, 4
POOL_NBYTES = 8 << 20
#: Most messages that one question row asks for.
SAMPLES = 20_000
BORN_HOST = "10.1.2.3:40321"
STORE_HOST = "127.0.0.1:10911"
BORN_TIMESTAMP = 1_760_000_000_000
#: Bytes of a record beside body, topic and properties; IPv4 hosts, topics of at most 255 bytes.
RECORD_NBYTES = 91
ROW = np.dtype(
    [
        ("born_timestamp", ">i8"),
        ("body_at", ">i4"),
        ("body_nbytes", ">i4"),
        ("topic", ">u2"),
        ("queue", ">u2"),
        ("kind", ">u2"),
        ("zero", ">u2"),
    ]
)
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
#: Least and most bytes of a body, by the name of the size.
BODIES = {"100": (100, 100), "1k": (512, 1536), "4k": (4096, 4096)}
SHAPES = ("producer", "retry", "transaction")


#: Values that differ from message to message, by their templates.
VARYING: dict[str, Callable[[int], str]] = {
    "{key}": lambda number: f"order-{number:08d}",
    "{unique}": lambda number: f"C0A801171F2A5FFD2B27{number:012X}",
    "{origin}": lambda number: f"7F00000100002A9F{number:016X}",
    "{tag}": lambda number: f"Tag{'ABCDEFGH'[number % 8]}",
}


@dataclass(frozen=True)
class Kind:
    """What the messages of one kind share; ``properties`` in their stored order."""

    properties: tuple[tuple[str, str], ...]
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def varying(self) -> list[tuple[str, Callable[[int], str]]]:
        """Names of properties whose values differ, and what makes each value of a number."""
        return [(name, VARYING[text]) for name, text in self.properties if text in VARYING]


_PRODUCER = Kind((("KEYS", "{key}"), ("UNIQ_KEY", "{unique}"), ("WAIT", "true"), ("TAGS", "{tag}")))
# DELAY is 0, which stores look at too: with the level that the first copy had, a store would
# schedule the message again.
_RETRY = Kind(
    (
        ("ORIGIN_MESSAGE_ID", "{origin}"),
        ("RETRY_TOPIC", "race-topic-00"),
        ("MSG_REGION", "DefaultRegion"),
        ("UNIQ_KEY", "{unique}"),
        ("CLUSTER", "DefaultCluster"),
        ("DELAY", "0"),
        ("TAGS", "{tag}"),
        ("KEYS", "{key}"),
        ("WAIT", "false"),
        ("TRACE_ON", "true"),
        ("REAL_TOPIC", "%RETRY%race-group-00"),
        ("REAL_QID", "0"),
    ),
    reconsume_times=1,
)
_IN_TRANSACTION = (
    ("MSG_REGION", "DefaultRegion"),
    ("UNIQ_KEY", "{unique}"),
    ("CLUSTER", "DefaultCluster"),
    ("PGROUP", "race-producers"),
    ("__transactionId__", "{unique}"),
    ("TAGS", "{tag}"),
    ("TRAN_MSG", "true"),
    ("KEYS", "{key}"),
    ("WAIT", "true"),
    ("TRACE_ON", "true"),
    ("REAL_TOPIC", "race-topic-00"),
    ("REAL_QID", "0"),
)
_HALF = Kind(_IN_TRANSACTION)
#: MessageSysFlag.TRANSACTION_COMMIT_TYPE is 8.
_COMMITTED = Kind(_IN_TRANSACTION, sys_flag=8, prepared_transaction_offset=4096)


class Plain(NamedTuple):
    """One message as Python objects."""

    topic: str
    queue: int
    body: bytes
    properties: dict[str, str]
    born_timestamp: int
    kind: Kind

    @property
    def nbytes(self) -> int:
        """Bytes of its record, with a separator between properties and none at their end."""
        texts = [f"{name}:{value}" for name, value in self.properties.items()]
        return RECORD_NBYTES + len(self.body) + len(self.topic) + len(";".join(texts))


@dataclass(frozen=True)
class MessageSet:
    """The messages of one shape and size of body."""

    topics: tuple[str, ...]
    kinds: tuple[Kind, ...]
    pool: bytes
    rows: NDArray[Any]
    samples: NDArray[Any]

    @classmethod
    def make(cls, shape: str, body: str, log_nbytes: int, count: int | None = None) -> MessageSet:
        """Return as many messages as fill ``log_nbytes`` of a log, or ``count``."""
        generator = np.random.default_rng([SEED, SHAPES.index(shape), list(BODIES).index(body)])
        pool = generator.bytes(POOL_NBYTES)
        least, most = BODIES[body]
        topics, kinds = _parts(shape)
        empty = cls(topics, kinds, pool, np.zeros(2, ROW), np.zeros(0, ">i4"))
        if count is None:
            mean = sum(empty[number].nbytes for number in (0, 1)) / 2 + (least + most) / 2
            # The separator at the end of the properties, and room for what varies.
            count = max(int(log_nbytes / (mean + 1) * 0.998), 1000)
        rows = np.zeros(count, ROW)
        number = np.arange(count)
        rows["born_timestamp"] = BORN_TIMESTAMP + number // 100
        rows["body_nbytes"] = generator.integers(least, most + 1, count)
        rows["body_at"] = generator.integers(0, POOL_NBYTES - most, count)
        rows["topic"] = generator.integers(0, TOPICS, count)
        rows["queue"] = generator.integers(0, QUEUES, count)
        if shape == "transaction":
            halves = number % 2 == 0
            rows["topic"][halves] = TOPICS
            rows["queue"][halves] = 0
            rows["kind"] = number % 2
        samples = generator.integers(0, count, SAMPLES).astype(">i4")
        return cls(topics, kinds, pool, rows, samples)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Plain:
        return next(self.plain(number, 1))

    def plain(self, first: int, count: int) -> Iterator[Plain]:
        """Yield messages ``first`` to ``first + count - 1``."""
        chosen = self.rows[first : first + count]
        pool, topics = self.pool, self.topics
        kinds = [(kind, dict(kind.properties), kind.varying) for kind in self.kinds]
        for number, row in enumerate(chosen.tolist(), first):
            born, at, nbytes, topic, queue, kind_number, _ = row
            kind, templates, varying = kinds[kind_number]
            properties = templates.copy()
            for name, make in varying:
                properties[name] = make(number)
            yield Plain(topics[topic], queue, pool[at : at + nbytes], properties, born, kind)

    def counts(self, count: int) -> dict[tuple[str, int], int]:
        """Return how many of the first ``count`` messages each queue gets, by topic and queue."""
        places = self.rows["topic"][:count].astype(np.int64) * QUEUES + self.rows["queue"][:count]
        found = np.bincount(places, minlength=len(self.topics) * QUEUES)
        return {
            (self.topics[place // QUEUES], place % QUEUES): int(amount)
            for place, amount in enumerate(found)
            if amount
        }

    def write(self, path: Path) -> None:
        """Write the file that the other languages read."""
        numbers = (len(self), len(self.topics), len(self.kinds), len(self.pool), len(self.samples))
        with open(path, "wb") as file:
            file.write(MAGIC + struct.pack(">5i", *numbers))
            for topic in self.topics:
                file.write(_text(topic))
            for kind in self.kinds:
                file.write(
                    struct.pack(
                        ">iiqH", kind.sys_flag, kind.reconsume_times,
                        kind.prepared_transaction_offset, len(kind.properties),
                    )
                )  # fmt: skip
                for name, value in kind.properties:
                    file.write(_text(name) + _text(value))
            file.write(self.pool + self.rows.tobytes() + self.samples.tobytes())

    @classmethod
    def read(cls, path: Path) -> MessageSet:
        """Read what ``write`` wrote."""
        reader = _Reader(path.read_bytes())
        if reader.take(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path} is not a message set")
        count, topics, kinds, pool_nbytes, samples = reader.numbers(">5i")
        names = tuple(reader.text() for _ in range(topics))
        found = []
        for _ in range(kinds):
            sys_flag, reconsume, prepared, properties = reader.numbers(">iiqH")
            pairs = tuple((reader.text(), reader.text()) for _ in range(properties))
            found.append(Kind(pairs, sys_flag, reconsume, prepared))
        pool = reader.take(pool_nbytes)
        rows = np.frombuffer(reader.take(count * ROW.itemsize), ROW)
        chosen = np.frombuffer(reader.take(samples * 4), ">i4")
        return cls(names, tuple(found), pool, rows, chosen)


class _Reader:
    """A cursor over the bytes of a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, nbytes: int) -> bytes:
        found = self._data[self._at : self._at + nbytes]
        if len(found) != nbytes:
            raise ValueError("a message set ends too early")
        self._at += nbytes
        return found

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def text(self) -> str:
        (nbytes,) = self.numbers(">H")
        return self.take(nbytes).decode("ascii")


def _text(text: str) -> bytes:
    data = text.encode("ascii")
    return struct.pack(">H", len(data)) + data


def _parts(shape: str) -> tuple[tuple[str, ...], tuple[Kind, ...]]:
    """Topics and kinds of a shape."""
    topics = tuple(f"race-topic-{number:02d}" for number in range(TOPICS))
    if shape == "retry":
        return tuple(f"%RETRY%race-group-{number:02d}" for number in range(TOPICS)), (_RETRY,)
    if shape == "transaction":
        return (*topics, HALF_TOPIC), (_HALF, _COMMITTED)
    if shape != "producer":
        raise ValueError(f"shape {shape!r} must be one of {SHAPES}")
    return topics, (_PRODUCER,)
