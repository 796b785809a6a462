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
    "D-4": "RocketMQ indexes the last record before a crash once more, and names it twice",
}
SHOWN = 1200


@dataclass
class Comparison:
    """What a comparison found."""

    failures: list[str] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    compared: int = 0

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
    crashed: bool = False,
    touched: Collection[tuple[str, int]] = (),
) -> Comparison:
    """Compare answers one by one.

    Parameters
    ----------
    questions, theirs, ours : sequences of equal length
    label : str
        Which sides these are, for messages.
    crashed : bool
        RocketMQ opened the store after an unclean stop: it may have lost keys.
    touched : collection of (topic, queue id)
        Queues whose files were written since: RocketMQ 4.9 answers times by their modification
        times, so these questions are passed over.
    """
    found = Comparison()
    for question, their, our in zip(questions, theirs, ours, strict=True):
        their, our = comparable(their), comparable(our)
        op = question["op"]
        if op == "bytime" and (question["topic"], question["queueId"]) in touched:
            continue
        found.compared += 1
        if their == our:
            continue
        if op == "query" and crashed and not {"raised"} & (their.keys() | our.keys()):
            _compare_keys(found, question, their, our, label)
            continue
        found.fail(difference(label, question, their, our))
    return found


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
        found.known["D-1"] += 1
    if len(yours) > len(set(yours)) and Counter(yours) != Counter(mine):
        found.known["D-4"] += 1
