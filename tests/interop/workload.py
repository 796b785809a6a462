"""Seeded scripts of writes, in the words of the recorded stores, for RocketMQ and for us."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

Op = dict[str, Any]

KEYS = ("order-1", "order-2", "Aa", "BB", "k😀", "polygenelubricants", "all")
TAGS = ("TagA", "TagB", "Aa", "BB", "標籤", "x y")
TYPE_PREPARED, TYPE_COMMIT, TYPE_ROLLBACK = 4, 8, 12
#: The flags of a batch that is one record: an inner batch, to be unwrapped.
INNER_BATCH_FLAGS = 0xC0
#: Nothing delayed falls due while a test runs: RocketMQ 4.9 would deliver it by itself.
DELAY_LEVELS = "2h 3h 4h 5h"
BATCH_TOPIC = "BCQ"


@dataclass(frozen=True)
class Feature:
    """What a store is made to use beside the usual: options and kinds of puts."""

    name: str
    #: What it is, for the published table.
    about: str
    config: dict[str, str] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    #: First version that has it.
    since: tuple[int, ...] = (4,)
    #: First version without it, among those that these tests use.
    until: tuple[int, ...] = (99,)
    #: Whether rocketstore writes such stores; others it only reads.
    writable: bool = True

    def exists_in(self, version: str) -> bool:
        """Whether RocketMQ ``version`` has this feature."""
        return self.since <= tuple(map(int, version.split("."))) < self.until


FEATURES = {
    feature.name: feature
    for feature in (
        Feature(
            "plain",
            "single messages, client batches, transaction types, half and delayed messages, IPv6 "
            "hosts, long topics, refused puts",
        ),
        Feature("sync", "each put is synced", {"flushDiskType": "SYNC_FLUSH"}),
        Feature(
            "ext",
            "ConsumeQueueExt",
            {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "2048"},
        ),
        Feature(
            "lmq",
            "light queues (multi dispatch)",
            {"enableLmq": "true", "enableMultiDispatch": "true"},
        ),
        Feature(
            "crc",
            "whole-record CRC property, demanded when records are checked",
            {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"},
            since=(5, 2),
        ),
        Feature(
            "inner",
            "inner batches in a BatchConsumeQueue topic",
            topics={BATCH_TOPIC: {"queue.type": "BatchCQ"}},
            since=(5,),
        ),
        Feature(
            "expired",
            "the oldest log files expire again and again; files of queues and index follow, or "
            "are still there",
            {"mappedFileSizeCommitLog": "16384", "deleteConsumeQueueFilesInterval": "1"},
        ),
        Feature(
            "rocksdb",
            "consume queues in RocksDB; rocketstore makes them from the log, and reads only",
            {"storeType": "defaultRocksDB"},
            since=(5, 3, 3),
            writable=False,
        ),
    )
}


@dataclass(frozen=True)
class Job:
    """One store: how it is configured and what is written to it."""

    seed: int
    version: str
    feature: Feature
    config: dict[str, str]
    script: tuple[Op, ...]

    @property
    def name(self) -> str:
        """Unique among the jobs of a run."""
        return f"{self.feature.name}-{self.seed}"

    def with_script(self, script: tuple[Op, ...]) -> Job:
        """The same job with another script."""
        return replace(self, script=script)


def base_config(pick: random.Random) -> dict[str, str]:
    """Options of a small store, in RocketMQ's names; sizes vary with the seed."""
    return {
        "mappedFileSizeCommitLog": str(pick.choice((32, 64, 96)) * 1024),
        "mappedFileSizeConsumeQueue": str(pick.choice((200, 320, 2000))),
        "maxHashSlotNum": str(pick.choice((10, 50, 500))),
        "maxIndexNum": str(pick.choice((100, 200, 1000))),
        "messageIndexEnable": "true",
        "flushDiskType": "ASYNC_FLUSH",
        "maxMessageSize": "12000",
        "osPageCacheBusyTimeOutMills": "600000",
        "messageDelayLevel": DELAY_LEVELS,
        "timerWheelEnable": "false",
        "mapperFileSizeBatchConsumeQueue": str(pick.choice((460, 920))),
        "diskMaxUsedSpaceRatio": "99",
    }


def make_job(
    seed: int,
    version: str,
    *,
    length: int = 130,
    feature: str | None = None,
    only_writable: bool = False,
) -> Job:
    """Return the job of ``seed``; the feature goes by the seed unless it is given."""
    pick = random.Random(f"{seed} {version.split('.')[0]}")
    there = [item for item in FEATURES.values() if item.exists_in(version)]
    if only_writable:
        there = [item for item in there if item.writable]
    chosen = FEATURES[feature] if feature is not None else there[seed % len(there)]
    config = {**base_config(pick), **chosen.config}
    writer = ScriptWriter(pick, version, chosen, int(config["maxMessageSize"]))
    return Job(seed, version, chosen, config, tuple(writer.ops(length)))


def text_bytes(pick: random.Random, nbytes: int) -> str:
    """Bytes of a body as Base64: a short random piece over and over."""
    piece = pick.randbytes(pick.choice((1, 3, 8, 32)))
    return base64.b64encode((piece * (nbytes // len(piece) + 1))[:nbytes]).decode()


class ScriptWriter:
    """Makes up operations."""

    def __init__(
        self, pick: random.Random, version: str, feature: Feature, max_body_nbytes: int
    ) -> None:
        self._pick = pick
        self._version = tuple(map(int, version.split(".")))
        self._feature = feature.name
        self._max_body_nbytes = max_body_nbytes
        self._count = 0
        self._topics = ["TopicA", "TopicB", "T", "a" * 100, "u" * 127, "%RETRY%grp"]
        if self._version >= (5, 1):
            self._topics.append("%RETRY%" + "t" * 190)

    def ops(self, length: int) -> list[Op]:
        """Return ``length`` operations, the last third of them without pauses."""
        kinds: dict[Callable[[], Op], int] = {
            self.put: 60,
            self.batch: 8,
            self.transactional: 7,
            self.half: 4,
            self.delayed: 6,
            self.refused: 2,
            self.pause: 8,
        }
        if self._feature == "lmq":
            kinds[self.light] = 25
        if self._feature == "inner":
            kinds[self.inner_batch] = 25
        if self._feature == "expired":
            kinds[self.expire] = 4
        found: list[Op] = []
        for number in range(length):
            if number == length * 2 // 3:
                kinds.pop(self.pause)
            (make,) = self._pick.choices(list(kinds), list(kinds.values()))
            found.append(make())
        return found

    def _properties(self) -> dict[str, str]:
        pick, properties = self._pick, {}
        self._count += 1
        if pick.random() < 0.85:
            properties["UNIQ_KEY"] = f"{self._count * 7919:032X}"
        if pick.random() < 0.6:
            keys = [f"key-{self._count}"] if pick.random() < 0.6 else []
            keys += pick.sample(KEYS, pick.randrange(3))
            properties["KEYS"] = " ".join(keys) or "all"
        if pick.random() < 0.7:
            properties["TAGS"] = pick.choice(TAGS)
        if pick.random() < 0.2:
            properties["WAIT"] = pick.choice(("true", "false"))
        for _ in range(pick.choice((0, 0, 0, 1, 2))):
            properties[f"user-{pick.randrange(9)}"] = pick.choice(("", "v", "a=b;c", "x" * 60))
        return properties

    def _host(self) -> str:
        pick = self._pick
        if pick.random() < 0.15:
            return f"[2001:db8::{pick.randrange(1, 65536):x}]:{pick.randrange(1, 65536)}"
        return f"10.{pick.randrange(256)}.2.3:{pick.randrange(1, 65536)}"

    def put(self) -> Op:
        """A single message."""
        pick = self._pick
        nbytes = pick.choice((0, 3, 30, 120, 120, 400, 1500))
        if pick.random() < 0.01:
            nbytes = self._max_body_nbytes
        op: Op = {
            "op": "put",
            "topic": pick.choice(self._topics),
            "queueId": pick.randrange(4),
            "body": text_bytes(pick, nbytes),
            "flag": pick.choice((0, 0, 7, -1, 2**31 - 1)),
            "bornTs": 1_700_000_000_000 + pick.randrange(10**9),
            "bornHost": self._host(),
            "reconsume": pick.choice((0, 0, 3)),
            "props": self._properties(),
        }
        if pick.random() < 0.1:
            op["storeHost"] = f"[fe80::{pick.randrange(1, 65536):x}]:10911"
        return op

    def batch(self) -> Op:
        """A client batch."""
        pick, first = self._pick, self.put()
        if first["topic"].startswith("%RETRY%") and self._version >= (5,):
            # Brokers refuse these before the store sees them; the store alone would not.
            first["topic"] = "TopicB"
        items = [
            {
                "body": text_bytes(pick, pick.choice((0, 5, 50, 300))),
                "flag": pick.choice((0, 5)),
                "props": self._properties(),
            }
            for _ in range(pick.randrange(1, 7))
        ]
        kept = ("topic", "queueId", "bornTs", "bornHost", "storeHost")
        properties = pick.choice(({}, {"CLUSTER": "c"}, {"a": "1", "b": ""}))
        return {
            "op": "batch",
            **{name: first[name] for name in kept if name in first},
            "props": properties,
            "messages": items,
        }

    def transactional(self) -> Op:
        """A message with a transaction type of its own."""
        kind = self._pick.choice((TYPE_PREPARED, TYPE_COMMIT, TYPE_ROLLBACK))
        return {**self.put(), "sysFlag": kind, "prepared": self._pick.choice((0, 77, 2**40))}

    def half(self) -> Op:
        """A half message as a broker stores it."""
        op = self.put()
        properties = {
            **op["props"],
            "REAL_TOPIC": op["topic"],
            "REAL_QID": str(op["queueId"]),
            "TRAN_MSG": "true",
            "PGROUP": "pg",
        }
        return {**op, "topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queueId": 0, "props": properties}

    def delayed(self) -> Op:
        """A message with a delay level, sometimes beyond the highest."""
        op = self.put()
        op["props"]["DELAY"] = str(self._pick.choice((1, 2, 3, 4, 4, 9)))
        return op

    def light(self) -> Op:
        """A message for light queues beside its own, and for invalid names."""
        op = self.put()
        names = self._pick.sample(("%LMQ%a", "%LMQ%b", "%LMQ%c", "%LMQ%d$1"), 2)
        if self._version < (5,) and self._pick.random() < 0.3:
            names.append("TopicM")
        op["props"]["INNER_MULTI_DISPATCH"] = ",".join(names[: self._pick.choice((1, 2, 3))])
        return op

    def inner_batch(self) -> Op:
        """A batch that is one record, as a broker stores it for a topic with batch queues."""
        op = self.batch()
        items = op["messages"]
        properties = {"INNER_NUM": str(len(items)), **self._properties()}
        return {
            **op,
            "topic": BATCH_TOPIC,
            "inner": True,
            "sysFlag": INNER_BATCH_FLAGS,
            "props": properties,
        }

    def refused(self) -> Op:
        """A message that no store takes."""
        op = self.put()
        if self._pick.random() < 0.5:
            op["body"] = text_bytes(self._pick, self._max_body_nbytes + 1)
        else:
            op["props"]["long"] = "p" * 40_000
        return op

    def expire(self) -> Op:
        """All log files but the newest go, and mostly what only they needed."""
        keep = self._pick.choice((1, 1, 2, 3))
        return {"op": "expire", "keep": keep, "queues": self._pick.random() < 0.7}

    def pause(self) -> Op:
        """A few milliseconds without a write; now and then a second's border is crossed."""
        return {"op": "sleep", "ms": self._pick.choice((1, 1, 2, 5, 20, 150))}


def for_java(op: Op, version: str) -> Op:
    """Return ``op`` as RocketMQ's bare store is given it.

    A 5.x broker redirects delayed messages in a hook before the store; the store alone does not.
    """
    level = int(op.get("props", {}).get("DELAY", 0))
    kind = op.get("sysFlag", 0) & TYPE_ROLLBACK
    if op["op"] != "put" or version < "5" or level <= 0 or kind not in (0, TYPE_COMMIT):
        return op
    level = min(level, len(DELAY_LEVELS.split()))
    properties = {
        **op["props"],
        "DELAY": str(level),
        "REAL_TOPIC": op["topic"],
        "REAL_QID": str(op["queueId"]),
    }
    return {**op, "topic": "SCHEDULE_TOPIC_XXXX", "queueId": level - 1, "props": properties}
