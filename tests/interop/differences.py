"""The known differences between two answers, each recognized only by its appearance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interop.asking import Question

Answer = Mapping[str, Any]
Queue = tuple[str, int]
#: A client batch of six messages of the largest usual size, or one message of the largest.
MOST_TORN_NBYTES = 16_000


@dataclass(frozen=True)
class Facts:
    """What the answers say of the stores as a whole."""

    #: Where our log begins.
    begin: int = 0
    #: Where our log ends before RocketMQ's, by less than one write.
    torn_at: int | None = None
    #: Where RocketMQ's log ends.
    their_end: int = 0
    #: Size and queue offset of the records that both sides show or one side decodes, by offset.
    records: Mapping[int, set[tuple[int, int]]] = field(default_factory=dict)
    #: Units after ``torn_at``, and where our queue ends.
    torn_units: Mapping[Queue, int] = field(default_factory=Counter)
    our_max: Mapping[Queue, int] = field(default_factory=dict)
    #: The last record that our index has: offset and store time.
    our_index_end: tuple[int, int] = (0, 0)


def facts_of(
    questions: Sequence[Question],
    theirs: Sequence[Answer],
    ours: Sequence[Answer],
    *,
    crashed: bool,
) -> Facts:
    """Gather what all answers together say."""
    records: dict[int, set[tuple[int, int]]] = {}
    torn_units: Counter[Queue] = Counter()
    our_max: dict[Queue, int] = {}
    begin, torn_at, their_end = 0, None, 0
    for question, their, our in zip(questions, theirs, ours, strict=True):
        for answer in (their, our):
            found = [item for row in answer.get("queues", ()) for item in row["messages"]]
            if question["op"] == "look" and answer.get("message"):
                found = [answer["message"]]
            for item in found:
                shown = (item["size"], item["queueOffset"])
                records.setdefault(item["offset"], set()).add(shown)
        if question["op"] == "wait" and "maxPhy" in their and "maxPhy" in our:
            begin, their_end = our["minPhy"], their["maxPhy"]
            if crashed and 0 < their_end - our["maxPhy"] < MOST_TORN_NBYTES:
                torn_at = our["maxPhy"]
        for row in their.get("queues", ()):
            if torn_at is not None:
                queue = row["topic"], row["queueId"]
                torn_units[queue] += sum(item["offset"] >= torn_at for item in row["messages"])
        our_max |= {(row["topic"], row["queueId"]): row["max"] for row in our.get("queues", ())}
    index_ends = [(item["lastOffset"], item["lastTs"]) for item in ours if "lastOffset" in item]
    index_end = max(index_ends, default=(0, 0))
    return Facts(begin, torn_at, their_end, records, torn_units, our_max, index_end)


def without_torn(question: Question, their: Answer, our: Answer, facts: Facts) -> dict[str, Any]:
    """What RocketMQ would have answered without the records after ``facts.torn_at``.

    A look-up of each acknowledged message proves that none is there.
    """
    assert facts.torn_at is not None
    changed = dict(their)
    if changed.get("maxPhy") == facts.their_end:
        changed["maxPhy"] = facts.torn_at
    if "messages" in changed:
        changed["messages"] = _before(changed["messages"], facts.torn_at)
    if "queues" in changed:
        rows = [_row_before(row, facts.torn_at) for row in changed["queues"]]
        changed["queues"] = [row for row in rows if row["messages"] or row["max"] > 0]
    if question["op"] == "query" and their.get("lastOffset", 0) >= facts.torn_at:
        # An answer for a key without entries does not say where the index ends.
        is_said = bool(changed["messages"]) or our.get("lastOffset") != 0
        end = facts.our_index_end if is_said else (0, 0)
        changed |= dict(zip(("lastOffset", "lastTs"), end, strict=True))
    queue = question.get("topic", ""), question.get("queueId", -1)
    count, end = facts.torn_units.get(queue, 0), facts.our_max.get(queue, 0)
    if count and question["op"] == "get" and "max" in changed:
        changed["max"] -= count
        if their["next"] > end or question["offset"] >= end:
            changed |= {name: our.get(name) for name in ("status", "next")}
    if count and question["op"] == "bytime" and "offset" in changed and "offset" in our:
        near = range(end - 1, end + count + 1)
        if changed["offset"] in near and our["offset"] in (end - 1, end):
            changed["offset"] = our["offset"]
    return changed


def _before(messages: Sequence[Answer], offset: int) -> list[Answer]:
    return [item for item in messages if item["offset"] < offset]


def _row_before(row: Answer, offset: int) -> dict[str, Any]:
    kept = _before(row["messages"], offset)
    return {**row, "messages": kept, "max": row["max"] - (len(row["messages"]) - len(kept))}


def is_doubled(fewer: Answer, more: Answer) -> bool:
    """Whether only the last indexed record is named again by ``more``, all its hits as often."""
    if "messages" not in more or "messages" not in fewer:
        return False
    last = more["lastOffset"]
    hits = [[row for row in side["messages"] if row["offset"] == last] for side in (fewer, more)]
    others = [[row for row in side["messages"] if row["offset"] != last] for side in (fewer, more)]
    counts = len(hits[0]), len(hits[1])
    return (
        {**more, "messages": None} == {**fewer, "messages": None}
        and others[0] == others[1]
        and 0 < counts[0] < counts[1]
        and counts[1] % counts[0] == 0
        and all(row == hits[0][0] for side in hits for row in side)
    )


def is_further(their: Answer, our: Answer) -> bool:
    """Whether the same is found, and our index only reaches further."""
    names = ("lastOffset", "lastTs")
    if any(name not in answer for name in names for answer in (their, our)):
        return False
    is_behind = their["lastOffset"] < our["lastOffset"] and their["lastTs"] <= our["lastTs"]
    return is_behind and {**their, **{name: our[name] for name in names}} == our


def has_first_again(question: Question, their: Answer, our: Answer, begin: int) -> bool:
    """Whether one queue of RocketMQ's begins with the log's first record, and otherwise nothing
    differs. That queue held the record at log offset 0, which has expired."""
    if begin == 0:
        return False
    if "queues" in their and "queues" in our:
        pairs = list(zip(their["queues"], our["queues"], strict=False))
        differing = [(one, two) for one, two in pairs if one != two]
        rest = {**their, "queues": None} == {**our, "queues": None}
        same_count = len(their["queues"]) == len(our["queues"])
        return rest and same_count and len(differing) == 1 and _has_one_more(*differing[0], begin)
    if "status" not in their or "status" not in our:
        return False
    status = "FOUND" if our["messages"] else "MESSAGE_WAS_REMOVING"
    if their["status"] != "FOUND" or our["status"] != status or question["offset"] > 0:
        return False
    their = {**their, "status": our["status"]}
    if len(their["messages"]) == question["max"] and their["next"] <= our["next"]:
        # No room was left for more, or for looking further.
        our = {**our, "messages": our["messages"][: question["max"] - 1]}
        their = {**their, "next": our["next"]}
    return _has_one_more(their, our, begin)


def _has_one_more(their: Answer, our: Answer, begin: int) -> bool:
    """Whether the only difference is a message before all others, from the log's begin."""
    first, *others = their["messages"] or [{}]
    is_first = first.get("offset") == begin and their["min"] == 0
    return is_first and {**their, "messages": others} == our


def begins_earlier(question: Question, their: Answer, our: Answer, begin: int) -> bool:
    """Whether, in a log that begins at ``begin``, queues of RocketMQ's only begin earlier, where
    nothing is left."""
    if begin <= 0 or {"raised"} & (their.keys() | our.keys()):
        return False
    if question["op"] == "dumpall":
        rows = [
            {**one, "min": two["min"]} if _is_earlier(one, two) else one
            for one, two in zip(their["queues"], our["queues"], strict=False)
        ]
        return len(their["queues"]) == len(our["queues"]) and {**their, "queues": rows} == our
    if question["op"] != "get" or not _is_earlier(their, our):
        return False
    if question["offset"] >= our["min"]:
        return {**their, "min": our["min"]} == our
    return not their["messages"] and their["max"] == our["max"] and our["next"] == our["min"]


def _is_earlier(their: Answer, our: Answer) -> bool:
    """Whether our queue begins after theirs, but not after its first message."""
    first = min((row["queueOffset"] for row in our["messages"]), default=our["max"])
    return their["min"] < our["min"] <= first


def ends_at_blank(their: Answer, our: Answer, log_file_nbytes: int) -> bool:
    """Whether only the log's end differs: RocketMQ's is before the last file's end, ours at it."""
    ends = their.get("maxPhy", -1), our.get("maxPhy", -1)
    within = ends[1] % log_file_nbytes == 0 and 0 < ends[1] - ends[0] < log_file_nbytes
    return within and {**their, "maxPhy": ends[1]} == our


def known_after_crash(
    question: Question, their: Answer, our: Answer, facts: Facts
) -> set[str] | None:
    """Which known differences explain two answers to a question for a key, after a crash.

    We find all that RocketMQ finds, each as often or less, and nothing that is no message of the
    store; RocketMQ may have lost keys (D-1), or put the last one twice (D-4). ``None``: something
    else differs.
    """
    if not {"messages", "lastOffset", "lastTs"} <= their.keys() & our.keys():
        return None
    yours = Counter(map(_identity, their["messages"]))
    mine = Counter(map(_identity, our["messages"]))
    missing, further = yours.keys() - mine.keys(), mine.keys() - yours.keys()
    if missing and len(our["messages"]) < question["max"]:
        return None
    # The newest are named first: what does not fit is older than all that fits.
    if missing and max(missing)[0] > min(mine)[0]:
        return None
    if any(mine[row] > yours[row] for row in mine.keys() & yours.keys()):
        return None
    if any((row[2], row[3]) not in facts.records.get(row[0], ()) for row in further):
        return None
    ahead = our["lastOffset"] - their["lastOffset"]
    if ahead < 0 or (ahead == 0 and our["lastTs"] != their["lastTs"]):
        return None
    doubled = any(yours[row] > mine[row] for row in mine.keys() & yours.keys())
    names = {"D-1"} if further or missing or ahead else set()
    return names | ({"D-4"} if doubled else set())


def _identity(row: Answer) -> tuple[int, str, int, int]:
    return row["offset"], row["sha1"], row["size"], row["queueOffset"]
