"""A real name server, broker and stock client of RocketMQ, in one process, on loopback."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from interop import maven
from interop.harness import JVM_FLAGS, Driver

HERE = Path(__file__).resolve().parent
VERSION = "5.3.3"
#: Versions that are asked about what differs between them: all of them in ``make interop``. 4.9.7
#: stands for 4.9.8, whose broker cannot be had as a jar everywhere.
VERSIONS = (
    ("4.9.7", "5.3.3", "5.5.0") if os.environ.get("ROCKETSTORE_BROKERS") == "all" else (VERSION,)
)
GROUP = "readers"
#: Small files, so that everything rolls.
STORE_CONFIG = {
    "mappedFileSizeCommitLog": str(64 * 1024),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "timerWheelEnable": "false",
    # A busy test machine is no reason to refuse a message.
    "osPageCacheBusyTimeOutMills": "60000",
    # Only what the tests make old is deleted.
    "fileReservedTime": "72",
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": "95",
}


def command(version: str) -> list[str]:
    """The command that starts the driver of ``version``; compiled when it is not yet."""
    path = maven.class_path(HERE / "pom.xml", version)
    sources = sorted((HERE / "java").glob("*.java"))
    sources.append(HERE.parent / "java" / "common" / "Values.java")
    classes = maven.compiled(sources, path, version)
    resources = HERE.parent / "java" / "resources"
    return [
        *("java", *JVM_FLAGS, *maven.JVM_OPENS, "-Drocketmq.client.logUseSlf4j=true"),
        *("-cp", f"{classes}:{resources}:{path}", "rocketstore.interop.BrokerDriver"),
    ]


def is_free(port: int) -> bool:
    """Whether no process listens on ``port``."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def free_port(*others: int) -> int:
    """A port that is free with those at these distances from it, below the ports that systems give
    to outgoing connections: one of those may be taken before the broker gets there."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        if all(is_free(port + other) for other in (0, *others)):
            return port


class BrokerDriver(Driver):
    """One Java process with a name server, a broker that comes and goes, and clients."""

    def __init__(self, scratch: Path, version: str = VERSION) -> None:
        super().__init__(version, scratch, command(version))
        self._scratch = scratch
        self._name_port = free_port()
        # The broker takes the ports beside its own too.
        self._broker_port = free_port(-2, 1)

    def _do(self, store: str, op: str, **request: Any) -> dict[str, Any]:
        return self._send(store=store, op=op, **request).result()

    def start_broker(
        self,
        root: Path,
        config: Mapping[str, str] = STORE_CONFIG,
        broker_config: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Start a broker on the directory ``root``; the bounds of its log.

        ``config`` are options of the store, ``broker_config`` those of the broker.
        """
        return self._do(
            "broker",
            "start",
            root=str(root),
            home=str(self._scratch),
            namePort=self._name_port,
            brokerPort=self._broker_port,
            config=dict(config),
            brokerConfig=dict(broker_config),
        )

    def stop_broker(self) -> None:
        """Shut the broker down in good order."""
        self._do("broker", "stop")

    def bounds(self) -> dict[str, Any]:
        """First and last log offset, and what is not dispatched yet."""
        return self._do("broker", "bounds")

    def expire(self, root: Path, keep: int) -> dict[str, Any]:
        """Let the broker delete all log files but the last ``keep``."""
        return self._do("broker", "expire", root=str(root), keep=keep)

    @contextlib.contextmanager
    def client(self, group: str = GROUP) -> Iterator[BrokerDriver]:
        """Connect the stock producer and consumer, and disconnect them."""
        self._do("client", "connect", namePort=self._name_port, group=group)
        yield self
        if self._process.poll() is None:
            self._do("client", "stop")

    def produce(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Send messages, one after the other; what the broker answered."""
        answer = self._do("client", "produce", messages=list(messages))
        sent: list[dict[str, Any]] = answer["sent"]
        assert all(row["status"] == "SEND_OK" for row in sent)
        return sent

    def produce_and_die(self, messages: Sequence[Mapping[str, Any]], acknowledged: int) -> None:
        """Send messages, and kill the process when about so many of them are stored."""
        before = self.bounds()["max"]
        nbytes = sum(len(base64.b64decode(message["body"])) for message in messages)
        self._send(store="client", op="produce", messages=list(messages))
        while self.bounds()["max"] - before < nbytes * acknowledged // len(messages):
            continue
        self.halt()

    def queues(self, topic: str) -> dict[int, tuple[int, int]]:
        """First and last offset of every queue of a topic."""
        rows = self._do("client", "queues", topic=topic)["queues"]
        return {row["queueId"]: (row["min"], row["max"]) for row in rows}

    def pull(self, topic: str, queue_id: int, offset: int = 0) -> list[dict[str, Any]]:
        """All messages of a queue from ``offset`` on, as the consumer gets them."""
        answer = self._do("client", "pull", topic=topic, queueId=queue_id, offset=offset)
        return [seen(row) for row in answer["messages"]]

    def query(self, topic: str, key: str) -> list[dict[str, Any]]:
        """Messages by key, as the console's queries get them."""
        answer = self._do("client", "query", topic=topic, key=key, begin=0, end=2**62)
        return [seen(row) for row in answer["messages"]]

    def unique(self, topic: str, unique_key: str) -> list[dict[str, Any]]:
        """The message with a unique key."""
        answer = self._do("client", "unique", topic=topic, uniqKey=unique_key)
        return [seen(row) for row in answer["messages"]]

    @contextlib.contextmanager
    def subscription(
        self, group: str, topic: str, expression: str | None = None
    ) -> Iterator[BrokerDriver]:
        """Consume a topic from its beginning, all of it or by an SQL92 expression."""
        self._do(
            "client", "subscribe", namePort=self._name_port, group=group, topic=topic,
            expression=expression,
        )  # fmt: skip
        yield self
        if self._process.poll() is None:
            self._do("client", "unsubscribe")

    def received(self, count: int, quiet_s: float = 2.0, within_s: float = 90.0) -> list[Any]:
        """What the subscription has received: at least ``count`` messages, and no more came for
        ``quiet_s`` since."""
        deadline = time.monotonic() + within_s
        rows: list[Any] = []
        while time.monotonic() < deadline:
            before = len(rows)
            rows = self._do("client", "received")["messages"]
            if before == len(rows) >= count:
                return [seen(row) for row in rows]
            time.sleep(quiet_s if len(rows) >= count else 0.1)
        raise AssertionError(f"{len(rows)} of {count} messages came in {within_s} s")

    @contextlib.contextmanager
    def transactions(
        self, group: str, topics: Sequence[str], answers: Mapping[str, str]
    ) -> Iterator[BrokerDriver]:
        """Connect the stock producer of transactions, whose ``answers`` are given by ``KEYS``."""
        self._do(
            "client", "transactional", namePort=self._name_port, group=group,
            topics=list(topics), answers=dict(answers),
        )  # fmt: skip
        yield self
        if self._process.poll() is None:
            self._do("client", "no longer transactional")

    def transact(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Send messages whose transactions get their ``state`` at once."""
        sent: list[dict[str, Any]] = self._do("client", "transact", messages=list(messages))["sent"]
        assert all(row["status"] == "SEND_OK" for row in sent)
        return sent

    def asked(self, *, until: Collection[str] = (), within_s: float = 60.0) -> list[str]:
        """``KEYS`` that the broker asked the producer about, ``until`` among them."""
        deadline = time.monotonic() + within_s
        while True:
            keys: list[str] = self._do("client", "asked")["keys"]
            if set(until) <= set(keys):
                return keys
            assert time.monotonic() < deadline, f"the broker asked about {keys} in {within_s} s"
            time.sleep(0.1)

    def commit(self, topic: str, queue_id: int, offset: int) -> None:
        """Tell the broker how far the group has consumed."""
        self._do("client", "commit", topic=topic, queueId=queue_id, offset=offset)

    def committed(self, topic: str, queue_id: int) -> int:
        """How far the broker says the group has consumed."""
        return int(self._do("client", "committed", topic=topic, queueId=queue_id)["offset"])


def to_send(topic: str, queue_id: int, number: int, nbytes: int = 40) -> dict[str, Any]:
    """A message for ``produce``; its key and its body say its number."""
    body = f"message {number} ".encode().ljust(nbytes, b".")
    return {
        "topic": topic,
        "queueId": queue_id,
        "body": base64.b64encode(body).decode(),
        "props": {"KEYS": f"key-{number}", "TAGS": f"tag-{number % 3}"},
    }


def seen(row: Mapping[str, Any]) -> dict[str, Any]:
    """A message from Java, comparable with ``shown``."""
    return {**row, "body": base64.b64decode(row["body"])}


def shown(message: Any) -> dict[str, Any]:
    """A message of ours, comparable with ``seen``."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeTimestamp": message.store_timestamp,
        "body": message.body,
        "tags": message.tags,
        "keys": message.keys,
        "uniqKey": message.unique_key,
    }
