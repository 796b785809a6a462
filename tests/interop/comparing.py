"""Answers of both sides beside each other: equal, a known difference, or a failure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interop.asking import Question
from interop.differences import (
    begins_earlier,
    ends_at_blank,
    facts_of,
    has_first_again,
    is_doubled,
    is_further,
    known_after_crash,
    without_torn,
)

#: What may differ, by its number in the project's register of RocketMQ's defects, and why.
KNOWN = {
    "D-1": "After an unclean stop RocketMQ deletes the newest index files and rebuilds only part "
    "of their entries. rocketstore finds the keys of every readable message",
    "D-41": "RocketMQ 4.9 does not load a store in which its own kill left an empty file. "
    "rocketstore opens it. The comparison uses a copy without that file",
    "blank": "The writer died between the blank record that closes a log file and the next file. "
    "RocketMQ takes the start of the blank as the end of the log, rocketstore the end of the file. "
    "Neither loses a message",
    "torn": "The writer died during a put. The record is complete except for zeros in its "
    "properties, which no CRC covers. RocketMQ accepts it. rocketstore truncates it, because the "
    "put was never acknowledged and zeros there indicate a torn write",
    "D-4": "When RocketMQ dispatches the last indexed record again, it indexes it again and lists "
    "it twice. This happens after a crash, and with 4.9 also after an orderly stop if no queue has "
    "that record",
    "D-40": "RocketMQ gives two index files created in one millisecond the same name. The second "
    "overwrites the first, whose keys are lost. Names in rocketstore differ",
    "altered": "RocketMQ delivers messages of a damaged store with other bytes than were written, "
    "or in another place. rocketstore returns the right ones (D-11, D-14, D-31)",
    "lost": "RocketMQ gives up messages near damage: all after a corrupt record, or a queue that "
    "it does not rebuild (D-23, D-24). rocketstore returns them",
    "refused": "rocketstore does not open a store for writing while durable bytes are damaged, "
    "because new records would bury them. Mode 'r' returns what is good. RocketMQ truncates the "
    "log there, and the next put overwrites what follows",
    "unreadable": "RocketMQ does not load the damaged store, or does not answer (D-11: an endless "
    "loop over the units of a queue)",
    "first": "After the first log file was deleted, 4.9 delivers the new first record in place of "
    "the expired record at log offset 0, truncated to the size of the latter. A consumer that "
    "pulls that queue from queue offset 0 gets it. rocketstore delivers nothing for expired "
    "messages",
    "min": "When the log was cleaned and the queues were not yet, RocketMQ searches only the first "
    "file of a queue for its first message, and keeps min offset 0 if that file has none left. "
    "rocketstore returns the offset of the first message that exists",
    "tags": "Mode 'r' derives the missing index entries in memory as the requested version would. "
    "From 5.4.0 on that includes tags. Only the last time and offset of the index differ",
}
SHOWN = 1200


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
    adds_last: bool = False,
    adds_tags: bool = False,
    first_again: bool = False,
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
    adds_last : bool
        The first answers are older ones of ours; RocketMQ 4.9 had the store open since.
    adds_tags : bool
        The version that is asked puts tags into the index, one that wrote does not.
    first_again : bool
        The version that is asked delivers the log's first record for one that has expired.
    touched : collection of (topic, queue id)
        Queues whose files were written since: RocketMQ 4.9 answers times by their modification
        times, so these questions are skipped.
    """
    found = Comparison()
    theirs, ours = [*map(comparable, theirs)], [*map(comparable, ours)]
    facts = facts_of(questions, theirs, ours, crashed=crashed)
    if facts.torn_at is not None:
        found.know("torn")
    for question, their, our in zip(questions, theirs, ours, strict=True):
        op = question["op"]
        if op == "bytime" and (question["topic"], question["queueId"]) in touched:
            continue
        found.compared += 1
        if facts.torn_at is not None:
            their = without_torn(question, their, our, facts)
        if their == our:
            continue
        known: set[str] | None = None
        if op == "query" and is_doubled(*((their, our) if adds_last else (our, their))):
            known = {"D-4"}
        elif op == "query" and adds_tags and is_further(their, our):
            known = {"tags"}
        elif first_again and has_first_again(question, their, our, facts.begin):
            known = {"first"}
        elif begins_earlier(question, their, our, facts.begin):
            known = {"min"}
        elif crashed and ends_at_blank(their, our, log_file_nbytes):
            known = {"blank"}
        elif op == "query" and crashed:
            known = known_after_crash(question, their, our, facts)
        if known is None:
            found.fail(difference(label, question, their, our))
        for name in known or ():
            found.know(name)
    return found


def difference(
    label: str, question: Question, their: Mapping[str, Any], our: Mapping[str, Any]
) -> str:
    """A text that shows where two answers differ."""
    if question["op"] == "dumpall" and "queues" in their and "queues" in our:
        return f"{label}: {question}\n" + "\n".join(_queue_differences(their, our))
    return f"{label}: {question}\n  RocketMQ    {shown(their)}\n  rocketstore {shown(our)}"


def shown(value: object) -> str:
    """A value for a message, long texts shortened in the middle."""
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
