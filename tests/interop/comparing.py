"""Answers of both sides beside each other: equal, a known difference, or a failure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interop.asking import Question

#: What may differ, by its number in the project's register of RocketMQ's defects, and why.
KNOWN = {
    "D-1": "after an unclean stop RocketMQ deletes the newest index files and makes only a part of "
    "their entries again; rocketstore finds the keys of every readable message",
    "D-41": "RocketMQ 4.9 does not load a store in which its own kill left an empty file; "
    "rocketstore opens it. The comparison is made on a copy without that file",
    "blank": "the writer died between the blank record that closes a log file and the next file: "
    "RocketMQ takes the blank's start for the log's end, rocketstore the file's end",
    "torn": "the writer died within a put: its record is complete but for zeros in the "
    "properties, which are under no CRC. RocketMQ takes it for whole; rocketstore cuts it off, as "
    "nobody was told that it was stored",
    "D-4": "what RocketMQ dispatches again it indexes again when it is the last indexed record "
    "(after a crash; 4.9 also after an orderly stop when no queue has that record), and names it "
    "twice",
    "altered": "messages of a damaged store that RocketMQ delivers with other bytes than were "
    "written, or in another place; rocketstore gives the right one (D-11, D-14, D-31)",
    "lost": "messages that RocketMQ gives up because something near them is damaged: all behind a "
    "bad record, or a queue that is not made again (D-23, D-24); rocketstore shows them",
    "refused": "rocketstore does not open a store for writing while bytes that were durable are "
    "damaged, since writing on would bury them; mode 'r' shows what is good",
    "unreadable": "RocketMQ does not load the damaged store, or does not answer",
    "tags": 'mode "r" completes the index behind its end in memory as the asked version would, '
    "which from 5.4.0 on indexes tags, too: only the index's last time and offset differ",
}
SHOWN = 1200
#: A client batch of six messages of the largest usual size, or one message of the largest.
MOST_TORN_NBYTES = 16_000


@dataclass
class Comparison:
    """What a comparison found."""

    failures: list[str] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    compared: int = 0

    def know(self, name: str, count: int = 1) -> None:
        """Count a known difference; one without a reason is a ``KeyError``."""
        KNOWN[name]
        self.known[name] += count

    def fail(self, text: str) -> None:
        """Note a difference that nothing explains."""
        self.failures.append(text)

    def add(self, other: Comparison) -> None:
        """Count ``other`` in."""
        self.failures += other.failures
        self.known += other.known
        self.compared += other.compared


def comparable(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer without timings, queues in one order, and only queues that ever held something."""
    kept = {
        name: value for name, value in answer.items() if name != "op" and not name.endswith("Ms")
    }
    if (kept.get("message") or {}).get("props", {}) is None:
        # So the driver has it when a record has no properties at all.
        kept["message"] = {**kept["message"], "props": {}}
    if "queues" in kept:
        rows = [row for row in kept["queues"] if row["messages"] or row["max"] > 0]
        kept["queues"] = sorted(rows, key=lambda row: (row["topic"], row["queueId"]))
    return kept


def compare(
    questions: Sequence[Question],
    theirs: Sequence[Mapping[str, Any]],
    ours: Sequence[Mapping[str, Any]],
    label: str,
    *,
    log_file_nbytes: int = 1,
    crashed: bool = False,
    adds_tags: bool = False,
    touched: Collection[tuple[str, int]] = (),
) -> Comparison:
    """Compare answers one by one.

    Parameters
    ----------
    questions, theirs, ours : sequences of equal length
    label : str
        Which sides these are, for messages.
    log_file_nbytes : int
        Bytes of a log file.
    crashed : bool
        RocketMQ opened the store after an unclean stop: it may have lost keys.
    adds_tags : bool
        The version that is asked puts tags into the index, one that wrote does not.
    touched : collection of (topic, queue id)
        Queues whose files were written since: RocketMQ 4.9 answers times by their modification
        times, so these questions are passed over.
    """
    found = Comparison()
    torn_at = _torn_at(questions, theirs, ours) if crashed else None
    if torn_at is not None:
        found.know("torn")
    for question, their, our in zip(questions, theirs, ours, strict=True):
        their, our = comparable(their), comparable(our)
        op = question["op"]
        if op == "bytime" and (question["topic"], question["queueId"]) in touched:
            continue
        found.compared += 1
        if their == our:
            continue
        if torn_at is not None and _differs_behind(question, their, our, torn_at):
            continue
        if op == "query" and _is_doubled(their, our):
            found.know("D-4")
            continue
        if op == "query" and adds_tags and _is_further(their, our):
            found.know("tags")
            continue
        if crashed and _ends_at_blank(their, our, log_file_nbytes):
            found.know("blank")
            continue
        if op == "query" and crashed and not {"raised"} & (their.keys() | our.keys()):
            _compare_keys(found, question, their, our, label)
            continue
        found.fail(difference(label, question, their, our))
    return found


def _torn_at(
    questions: Sequence[Question],
    theirs: Sequence[Mapping[str, Any]],
    ours: Sequence[Mapping[str, Any]],
) -> int | None:
    """Where our log ends in front of RocketMQ's, by less than one write; ``None`` where it does
    not."""
    for question, their, our in zip(questions, theirs, ours, strict=True):
        if question["op"] == "wait" and "maxPhy" in their and "maxPhy" in our:
            nbytes = their["maxPhy"] - our["maxPhy"]
            return our["maxPhy"] if 0 < nbytes < MOST_TORN_NBYTES else None
    return None


def _differs_behind(
    question: Question, their: Mapping[str, Any], our: Mapping[str, Any], torn_at: int
) -> bool:
    """Whether nothing differs in front of ``torn_at``. That no acknowledged message lies behind
    it is seen by looking each of them up, which is compared as ever."""
    if question["op"] == "look":
        return False
    if question["op"] != "dumpall" or "queues" not in their or "queues" not in our:
        return True
    sides = []
    for answer in (their, our):
        rows = {
            (row["topic"], row["queueId"]): [
                item for item in row["messages"] if item["offset"] < torn_at
            ]
            for row in answer["queues"]
        }
        sides.append({queue: messages for queue, messages in rows.items() if messages})
    return sides[0] == sides[1]


def _is_doubled(their: Mapping[str, Any], our: Mapping[str, Any]) -> bool:
    """Whether only the last indexed record is named twice by one side."""
    if "messages" not in their or "messages" not in our or their["messages"] == our["messages"]:
        return False
    last = their["lastOffset"]
    sides = []
    for answer in (their, our):
        others = [row for row in answer["messages"] if row["offset"] != last]
        sides.append((others, any(row["offset"] == last for row in answer["messages"])))
    return sides[0] == sides[1] and last == our["lastOffset"]


def _is_further(their: Mapping[str, Any], our: Mapping[str, Any]) -> bool:
    """Whether the same is found, and our index only reaches further."""
    return their.get("messages") == our.get("messages") and their["lastOffset"] < our["lastOffset"]


def _ends_at_blank(their: Mapping[str, Any], our: Mapping[str, Any], log_file_nbytes: int) -> bool:
    """Whether only the log's end differs: RocketMQ's lies in front of the last file's end, ours at
    it."""
    ends = their.get("maxPhy", -1), our.get("maxPhy", -1)
    within = ends[1] % log_file_nbytes == 0 and 0 < ends[1] - ends[0] < log_file_nbytes
    return within and {**their, "maxPhy": ends[1]} == our


def difference(
    label: str, question: Question, their: Mapping[str, Any], our: Mapping[str, Any]
) -> str:
    """A text that shows where two answers differ."""
    if question["op"] == "dumpall" and "queues" in their and "queues" in our:
        return f"{label}: {question}\n" + "\n".join(_queue_differences(their, our))
    return f"{label}: {question}\n  RocketMQ    {shown(their)}\n  rocketstore {shown(our)}"


def shown(value: object) -> str:
    """A value for a message, long texts cut in the middle."""
    return re.sub(r"(\w{12})\w{20,}(\w{4})", r"\1...\2", str(value))[:SHOWN]


def _queue_differences(their: Mapping[str, Any], our: Mapping[str, Any]) -> list[str]:
    mine = {(row["topic"], row["queueId"]): row for row in our["queues"]}
    yours = {(row["topic"], row["queueId"]): row for row in their["queues"]}
    lines = [
        f"  {name}: RocketMQ {their[name]}, rocketstore {our[name]}"
        for name in ("minPhy", "maxPhy", "behind")
        if their[name] != our[name]
    ]
    for queue in sorted(mine.keys() | yours.keys()):
        one, two = yours.get(queue), mine.get(queue)
        if one != two:
            lines.append(
                f"  {queue}: RocketMQ    {_short(one)}\n  {queue}: rocketstore {_short(two)}"
            )
    return lines[:12]


def _short(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "none"
    offsets = [(item["queueOffset"], item["offset"]) for item in row["messages"]]
    return f"{row['min']}..{row['max']}, {len(offsets)} messages, the last {offsets[-3:]}"


def _compare_keys(
    found: Comparison,
    question: Question,
    their: Mapping[str, Any],
    our: Mapping[str, Any],
    label: str,
) -> None:
    """After a crash we find all that RocketMQ finds; it may have lost keys, or doubled one."""
    yours = [(row["offset"], row["sha1"]) for row in their["messages"]]
    mine = [(row["offset"], row["sha1"]) for row in our["messages"]]
    full = len(mine) >= question["max"] or len(yours) >= question["max"]
    if not full and not set(yours) <= set(mine):
        found.fail(difference(label, question, their, our))
        return
    if set(mine) - set(yours) or their["lastOffset"] != our["lastOffset"]:
        found.know("D-1")
    if len(yours) > len(set(yours)) and Counter(yours) != Counter(mine):
        found.know("D-4")
