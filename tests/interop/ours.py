"""Our side: the same scripts put, the same questions answered, by rocketstore."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import rocketstore
from golden.test_answers import Respondent
from interop.expiry import first_kept
from interop.workload import Job, Op
from rocketstore import Message, MessageBatch, MessageStoreConfig, formats
from rocketstore.cleaning.plan import Retention
from rocketstore.dialect import Dialect

STORE_HOST = "10.9.8.7:10911"
BORN_HOST = "10.1.2.3:4567"
#: Seconds that dispatch may take on a busy machine.
DEADLINE_S = 240.0


def open_store(
    root: Path, mode: str, job: Job, *, version: str | None = None, **more: Any
) -> rocketstore.DefaultMessageStore:
    """Open a store with the options of ``job``."""
    config = MessageStoreConfig.from_properties(job.config).replace(
        broker_version=version or job.version,
        store_host=STORE_HOST,
        topic_attributes=job.feature.topics,
    )
    return rocketstore.open(root, mode, config=config, **more)


def message_of(op: Op) -> Message:
    """The message of a ``put``."""
    return Message(
        op["topic"],
        base64.b64decode(op["body"]),
        queue_id=op["queueId"],
        flag=op["flag"],
        sys_flag=op.get("sysFlag", 0),
        born_timestamp=op["bornTs"],
        born_host=op["bornHost"],
        store_host=op.get("storeHost"),
        reconsume_times=op["reconsume"],
        prepared_transaction_offset=op.get("prepared", 0),
        properties=op["props"],
    )


def batch_of(op: Op) -> MessageBatch:
    """The client batch of a ``batch``."""
    messages = [
        Message(
            op["topic"],
            base64.b64decode(item["body"]),
            flag=item.get("flag", 0),
            properties=item["props"],
        )
        for item in op["messages"]
    ]
    return MessageBatch(
        messages,
        topic=op["topic"],
        queue_id=op["queueId"],
        properties=op["props"],
        born_timestamp=op.get("bornTs"),
        born_host=op.get("bornHost", BORN_HOST),
        store_host=op.get("storeHost"),
        sys_flag=op.get("sysFlag", 0),
    )


def inner_batch_of(op: Op, version: str) -> Message:
    """The one message that a broker makes of a batch for a topic with batch queues.

    Its body is the client's: up to 5.1 without a separator after the last property.
    """
    trailing = Dialect.for_version(version).trailing_separator
    body = b""
    for item in op["messages"]:
        content = base64.b64decode(item["body"])
        properties = b"".join(
            f"{name}\x01{value}\x02".encode() for name, value in item["props"].items()
        )
        properties = properties if trailing else properties.removesuffix(b"\x02")
        nbytes = formats.BATCH_ITEM_HEAD.nbytes + len(content) + 2 + len(properties)
        body += formats.BATCH_ITEM_HEAD.struct.pack(nbytes, 0, 0, item["flag"], len(content))
        body += content + struct.pack(">h", len(properties)) + properties
    return message_of({**op, "body": base64.b64encode(body).decode(), "flag": 0, "reconsume": 0})


class Writing:
    """A store that is written to. Files expire under its own cleaners.

    Parameters are those of ``open_store``. With ``forgets`` it is then closed and opened again,
    and knows as little of its files as after a broker that wrote its checkpoint.
    """

    def __init__(
        self, root: Path, mode: str, job: Job, *, forgets: bool = False, **more: Any
    ) -> None:
        self._root = root
        self._job = job
        self._forgets = forgets
        self._more = more
        self.store = open_store(root, mode, job, **more)

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def put(self, op: Op) -> dict[str, Any]:
        """Do one write, or delete the oldest files; answer in the words of the driver."""
        if op["op"] != "expire":
            return put(self.store, op)
        assert self.store.wait_dispatched(DEADLINE_S)
        size = int(self._job.config["mappedFileSizeCommitLog"])
        first = first_kept(self.store.max_physical_offset, size, op["keep"])
        self._clean(first, queues=op["queues"])
        if self._forgets:
            self.store.close()
            (self._root / formats.STATE_FILE).unlink()
            self.store = open_store(self._root, "r+", self._job, **self._more)
        return {"status": "expired", "minPhy": self.store.min_physical_offset}

    def _clean(self, first: int, *, queues: bool) -> None:
        """Delete the log files before ``first``, and with ``queues`` what only they needed."""
        self.store.flush()
        assert self.store._writer is not None
        cleaner = self.store._writer.cleaning.cleaner
        cleaner.clean_log(Retention(now=0, reserved_ms=0, at_once=True, limit_offset=first))
        assert max(self.store.min_physical_offset, 0) >= first
        if queues:
            cleaner.clean_followers()
            assert cleaner.failures == {}

    def run(self, script: Iterable[Op]) -> list[dict[str, Any]]:
        """Do all of ``script``."""
        return [self.put(op) for op in script]


def put(store: rocketstore.DefaultMessageStore, op: Op) -> dict[str, Any]:
    """Do one write; answer in the words of the driver."""
    if op["op"] == "sleep":
        time.sleep(op["ms"] / 1000)
        return {}
    if op.get("inner"):
        result = store.put_message(inner_batch_of(op, store.broker_version))
    elif op["op"] == "batch":
        result = store.put_messages(batch_of(op))
    else:
        result = store.put_message(message_of(op))
    answer: dict[str, Any] = {"status": result.status.name}
    if result.physical_offset is not None:
        answer |= {
            "append": result.append_status.name,
            "offset": result.physical_offset,
            "bytes": result.nbytes,
            "queueOffset": result.queue_offset,
            "storeTs": result.store_timestamp,
            "msgId": result.msg_id,
        }
    return answer


class RecordedClock:
    """Gives the store time that RocketMQ reported for the operation in progress."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def replay(
    root: Path, job: Job, answers: Sequence[Mapping[str, Any]]
) -> list[tuple[Op, Mapping[str, Any], dict[str, Any]]]:
    """Write the script of ``job`` with the clock of ``answers``; return theirs beside ours."""
    clock = RecordedClock()
    rows = []
    with Writing(root, "x", job, forgets=True, clock=clock) as writing:
        for op, theirs in zip(job.script, answers, strict=True):
            clock.now = theirs.get("storeTs") or clock.now
            if op["op"] != "sleep":
                rows.append((op, theirs, writing.put(op)))
        assert writing.store.wait_dispatched(DEADLINE_S)
    return rows


def ask(
    store: rocketstore.DefaultMessageStore, questions: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Answer ``questions``; what is raised is an answer too."""
    respondent = Respondent(store)
    answers = []
    for question in questions:
        try:
            answer = respondent.answer(dict(question))
        except (rocketstore.RocketStoreError, ValueError) as error:
            answer = {"op": question["op"], "raised": f"{type(error).__name__}: {error}"}
        answers.append(answer)
    return answers
