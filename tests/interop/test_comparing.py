"""The comparison itself: real answers, spoilt in one place, must not pass for equal.

No Java is needed: the answers are those that RocketMQ gave about the recorded stores.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from golden import golden_stores
from interop.asking import Question
from interop.comparing import KNOWN, Comparison, compare

Answers = list[dict[str, Any]]
Plant = Callable[["Sides"], None]
STORES = ("plain-4.9.8", "plain-5.3.3", "crash-5.3.3")
LOG_FILE_NBYTES = 65_536
#: What a message that no store holds looks like.
FOREIGN = {"size": 99, "queueId": 0, "queueOffset": 7, "offset": 123_457, "sha1": "0" * 16}


@dataclass
class Sides:
    """Questions with two sides' answers, equal at first."""

    questions: list[Question]
    theirs: Answers
    ours: Answers

    def compare(self, **rules: Any) -> Comparison:
        """Compare them as the cases do."""
        rules = {"log_file_nbytes": LOG_FILE_NBYTES, **rules}
        return compare(self.questions, self.theirs, self.ours, "planted", **rules)

    def at(self, op: str, fits: Callable[[Question, dict[str, Any]], Any] | None = None) -> int:
        """The first question ``op`` whose answer fits."""
        for number, (question, answer) in enumerate(zip(self.questions, self.theirs, strict=True)):
            if question["op"] == op and (fits is None or fits(question, answer)):
                return number
        raise LookupError(f"no {op} fits")

    def our(self, op: str, fits: Callable[[Question, dict[str, Any]], Any] | None = None) -> Any:
        """Our answer there."""
        return self.ours[self.at(op, fits)]


@functools.cache
def pickled(name: str) -> bytes:
    steps = [step for step in golden_stores.questions(name) if step.op != "open"]
    questions = [{"max": 32, **step.ask} for step in steps]
    answers = [step.answer for step in steps]
    return pickle.dumps((questions, answers, pickle.loads(pickle.dumps(answers))))


def recorded(name: str) -> Sides:
    """The questions recorded with a store and RocketMQ's answers, twice."""
    return Sides(*pickle.loads(pickled(name)))


@pytest.fixture(params=STORES)
def sides(request: pytest.FixtureRequest) -> Sides:
    return recorded(request.param)


def has(count: int) -> Callable[[Question, dict[str, Any]], bool]:
    """Answers with at least ``count`` messages."""
    return lambda question, answer: len(answer["messages"]) >= count


def is_early(question: Question, answer: dict[str, Any]) -> bool:
    """Answers whose messages are all before the last kilobytes of the log."""
    return bool(answer["messages"]) and not any(
        row["offset"] == answer["lastOffset"] for row in answer["messages"]
    )


def queue_of(sides: Sides, count: int = 3) -> dict[str, Any]:
    """Our queue with ``count`` messages or more."""
    return next(row for row in sides.our("dumpall")["queues"] if len(row["messages"]) >= count)


PLANTS: dict[str, Plant] = {}


def plant(make: Plant) -> Plant:
    """Name a difference that may never pass."""
    PLANTS[make.__name__] = make
    return make


@plant
def message_missing(sides: Sides) -> None:
    del queue_of(sides)["messages"][1]


@plant
def last_message_missing(sides: Sides) -> None:
    del queue_of(sides)["messages"][-1]


@plant
def messages_exchanged(sides: Sides) -> None:
    messages = queue_of(sides)["messages"]
    messages[0], messages[1] = messages[1], messages[0]


@plant
def message_moved_to_another_queue(sides: Sides) -> None:
    one, two = [row for row in sides.our("dumpall")["queues"] if len(row["messages"]) >= 2][:2]
    two["messages"].append(one["messages"].pop())


@plant
def message_doubled(sides: Sides) -> None:
    messages = queue_of(sides)["messages"]
    messages.insert(1, messages[0])


@plant
def message_with_another_digest(sides: Sides) -> None:
    queue_of(sides)["messages"][2]["sha1"] = "0" * 16


@plant
def message_at_another_offset(sides: Sides) -> None:
    queue_of(sides)["messages"][2]["offset"] += 1


@plant
def queue_begins_one_later(sides: Sides) -> None:
    queue_of(sides)["min"] += 1


@plant
def queue_ends_one_later(sides: Sides) -> None:
    queue_of(sides)["max"] += 1


@plant
def queue_ends_one_earlier(sides: Sides) -> None:
    queue_of(sides)["max"] -= 1


@plant
def queue_missing(sides: Sides) -> None:
    sides.our("dumpall")["queues"].remove(queue_of(sides))


@plant
def queue_too_many(sides: Sides) -> None:
    sides.our("dumpall")["queues"].append({**queue_of(sides), "topic": "extra"})


@plant
def empty_queue_with_an_end(sides: Sides) -> None:
    empty = {"topic": "extra", "queueId": 1, "min": 0, "max": 3, "messages": []}
    sides.our("dumpall")["queues"].append(empty)


@plant
def log_begins_elsewhere(sides: Sides) -> None:
    sides.our("info")["minPhy"] += 1


@plant
def log_ends_one_byte_later(sides: Sides) -> None:
    sides.our("wait")["maxPhy"] += 1


@plant
def dispatch_lags(sides: Sides) -> None:
    sides.our("info")["behind"] = 4


@plant
def read_without_a_message(sides: Sides) -> None:
    del sides.our("get", has(2))["messages"][-1]


@plant
def read_with_a_message_too_many(sides: Sides) -> None:
    sides.our("get", has(1))["messages"].append(FOREIGN)


@plant
def read_with_another_digest(sides: Sides) -> None:
    sides.our("get", has(1))["messages"][0]["sha1"] = "0" * 16


@plant
def read_with_another_status(sides: Sides) -> None:
    sides.our("get", has(1))["status"] = "NO_MATCHED_MESSAGE"


@plant
def read_with_another_status_of_nothing(sides: Sides) -> None:
    sides.our("get", lambda question, answer: not answer["messages"])["status"] = "OFFSET_RESET"


@plant
def read_that_goes_on_elsewhere(sides: Sides) -> None:
    sides.our("get", has(1))["next"] += 1


@plant
def read_with_another_max(sides: Sides) -> None:
    sides.our("get", has(1))["max"] += 1


@plant
def filtered_read_that_looks_further(sides: Sides) -> None:
    sides.our("get", lambda question, answer: "tags" in question)["next"] += 1


@plant
def key_not_found(sides: Sides) -> None:
    sides.our("query", is_early)["messages"].clear()


@plant
def one_of_several_not_found(sides: Sides) -> None:
    del sides.our("query", has(2))["messages"][0]


@plant
def key_of_no_message(sides: Sides) -> None:
    sides.our("query", is_early)["messages"].append(FOREIGN)


@plant
def key_of_a_message_with_another_digest(sides: Sides) -> None:
    sides.our("query", is_early)["messages"][0]["sha1"] = "0" * 16


@plant
def key_found_twice(sides: Sides) -> None:
    messages = sides.our("query", is_early)["messages"]
    messages.append(messages[0])


@plant
def last_key_found_twice_by_us(sides: Sides) -> None:
    last = sides.our("query")["lastOffset"]
    size = [row for queue in sides.our("dumpall")["queues"] for row in queue["messages"]]
    row = max((item for item in size if item["offset"] <= last), key=lambda item: item["offset"])
    number = sides.at("query")
    for answers, count in ((sides.theirs, 1), (sides.ours, 2)):
        answers[number]["lastOffset"] = row["offset"]
        answers[number]["messages"] = [row] * count


@plant
def more_hits_than_there_is_room_for(sides: Sides) -> None:
    number = sides.at("query", is_early)
    sides.questions[number]["max"] = len(sides.ours[number]["messages"])
    sides.ours[number]["messages"] = [FOREIGN] * sides.questions[number]["max"]


@plant
def index_ends_earlier(sides: Sides) -> None:
    sides.our("query")["lastOffset"] -= 1


@plant
def index_ends_at_another_time(sides: Sides) -> None:
    sides.our("query")["lastTs"] += 1


@plant
def time_one_later(sides: Sides) -> None:
    sides.our("bytime", lambda question, answer: answer["offset"] > 0)["offset"] += 1


@plant
def time_one_earlier(sides: Sides) -> None:
    sides.our("bytime", lambda question, answer: answer["offset"] > 0)["offset"] -= 1


def is_shown(question: Question, answer: dict[str, Any]) -> Any:
    return answer["message"] and answer["message"]["body"] and answer["message"]["props"]


@plant
def body_with_another_byte(sides: Sides) -> None:
    message = sides.our("look", is_shown)["message"]
    message["body"] = ("B" if message["body"][0] == "A" else "A") + message["body"][1:]


@plant
def property_missing(sides: Sides) -> None:
    sides.our("look", is_shown)["message"]["props"].popitem()


@plant
def stored_a_millisecond_later(sides: Sides) -> None:
    sides.our("look", is_shown)["message"]["storeTs"] += 1


@plant
def message_not_there(sides: Sides) -> None:
    sides.our("look", is_shown)["message"] = None


@plant
def message_where_there_is_none(sides: Sides) -> None:
    there = sides.our("look", is_shown)["message"]
    sides.our("look", lambda question, answer: answer["message"] is None)["message"] = there


def _raise(sides: Sides, op: str) -> None:
    sides.ours[sides.at(op)] = {"op": op, "raised": "CorruptionError: somewhere"}


for _op in ("wait", "dumpall", "get", "query", "bytime", "look", "info"):
    PLANTS[f"{_op}_raised_by_us"] = lambda sides, op=_op: _raise(sides, op)


@pytest.mark.parametrize("crashed", [False, True], ids=["clean", "crashed"])
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_difference_does_not_pass(name: str, crashed: bool, sides: Sides) -> None:
    rules = {"crashed": crashed, "first_again": True}
    assert sides.compare(**rules).failures == []
    PLANTS[name](sides)
    found = sides.compare(**rules)
    assert len(found.failures) == 1, (name, found.known)


@pytest.mark.parametrize("op", ["wait", "dumpall", "get", "query", "bytime", "look", "info"])
@pytest.mark.parametrize("crashed", [False, True], ids=["clean", "crashed"])
def test_what_only_rocketmq_raises_does_not_pass(op: str, crashed: bool, sides: Sides) -> None:
    sides.theirs[sides.at(op)] = {"raised": "java.lang.NullPointerException"}
    assert len(sides.compare(crashed=crashed).failures) == 1


def test_equal_answers_pass_in_every_mode(sides: Sides) -> None:
    flags = ("crashed", "adds_last", "adds_tags", "first_again")
    for flag in (None, *flags):
        found = sides.compare(**({flag: True} if flag else {}))
        assert found.failures == []
        assert not +found.known
        assert found.compared == len(sides.questions)


def test_only_times_of_touched_queues_are_skipped(sides: Sides) -> None:
    number = sides.at("bytime")
    sides.ours[number]["offset"] += 1
    queue = sides.questions[number]["topic"], sides.questions[number]["queueId"]
    assert sides.compare(touched={queue}).failures == []
    assert len(sides.compare(touched={("other", 0)}).failures) == 1


def test_a_known_difference_needs_a_reason() -> None:
    with pytest.raises(KeyError):
        Comparison().know("D-0")


# --- each known difference, and its near misses ------------------------------------------------


def lost_key(sides: Sides) -> None:
    """RocketMQ lost the key of a message that is there."""
    number = sides.at("query", lambda question, answer: is_early(question, answer) and _all_shown(
        sides, answer
    ))  # fmt: skip
    sides.theirs[number]["messages"].clear()
    sides.theirs[number]["lastOffset"] -= 1


def _all_shown(sides: Sides, answer: dict[str, Any]) -> bool:
    shown = {row["offset"] for queue in sides.our("dumpall")["queues"] for row in queue["messages"]}
    return all(row["offset"] in shown for row in answer["messages"])


def doubled_key(sides: Sides) -> None:
    """RocketMQ names the last record twice."""
    last_key_found_twice_by_us(sides)
    number = sides.at("query")
    sides.theirs[number], sides.ours[number] = sides.ours[number], sides.theirs[number]


def trebled_unevenly(sides: Sides) -> None:
    doubled_key(sides)
    number = sides.at("query")
    row = sides.ours[number]["messages"][0]
    sides.ours[number]["messages"] = [row] * 2
    sides.theirs[number]["messages"] = [row] * 3


def blank_end(sides: Sides) -> None:
    for side, end in ((sides.theirs, LOG_FILE_NBYTES * 9 - 40), (sides.ours, LOG_FILE_NBYTES * 9)):
        for question, answer in zip(sides.questions, side, strict=True):
            if question["op"] in ("wait", "info", "dumpall"):
                answer["maxPhy"] = end


def blank_end_elsewhere(sides: Sides) -> None:
    blank_end(sides)
    sides.our("info")["maxPhy"] -= 1


def index_with_tags(sides: Sides) -> None:
    answer = sides.our("query")
    answer["lastOffset"] += 200
    answer["lastTs"] += 3


def index_with_tags_but_older(sides: Sides) -> None:
    index_with_tags(sides)
    sides.our("query")["lastTs"] -= 4


def first_again(sides: Sides, **more: Any) -> None:
    """A read of RocketMQ 4.9 begins with the log's first record."""
    number = sides.at("get", has(1))
    sides.questions[number] |= {"offset": 0, "max": 32}
    begin = sides.our("wait")["minPhy"]
    messages = sides.ours[number]["messages"]
    more = {"min": 0, "status": "FOUND", **more}
    first = {**FOREIGN, "offset": begin}
    sides.ours[number] |= more
    sides.theirs[number] |= {**more, "messages": [first, *messages]}


def first_again_from_elsewhere(sides: Sides) -> None:
    first_again(sides)
    sides.theirs[sides.at("get", has(1))]["messages"][0]["offset"] += 1


def first_again_in_a_later_queue(sides: Sides) -> None:
    first_again(sides, min=1)


def first_again_and_full(sides: Sides) -> None:
    """There was room for one message, so RocketMQ went no further; we found nothing up to the
    end."""
    number = sides.at("get", has(1))
    first_again(sides)
    sides.questions[number]["max"] = 1
    sides.theirs[number]["next"], sides.theirs[number]["messages"][1:] = 1, []
    sides.ours[number] |= {"messages": [], "status": "MESSAGE_WAS_REMOVING"}


def first_again_and_one_less(sides: Sides) -> None:
    first_again(sides)
    number = sides.at("get", has(1))
    sides.ours[number]["messages"].append(FOREIGN)


def first_again_in_a_queue(sides: Sides, count: int = 1) -> None:
    begin = sides.our("wait")["minPhy"]
    for row in sides.theirs[sides.at("dumpall")]["queues"][:count]:
        row["messages"].insert(0, {**FOREIGN, "offset": begin})


def first_again_in_two_queues(sides: Sides) -> None:
    first_again_in_a_queue(sides, 2)


def looked_at_few(sides: Sides) -> None:
    """RocketMQ checks two units; we find another message after them."""
    number = sides.at("get", has(1))
    row = sides.ours[number]["messages"][0]
    sides.questions[number] |= {"offset": 3, "max": 2, "tags": "TagA"}
    rows = [{**row, "queueOffset": offset} for offset in (4, 8)]
    both = {"status": "FOUND", "min": 0, "max": 20}
    sides.ours[number] |= {**both, "messages": rows, "next": 9}
    sides.theirs[number] |= {**both, "messages": rows[:1], "next": 5}


def torn_end(sides: Sides) -> None:
    """Our log ends before the last record of a queue; so do all our answers."""
    rows = [
        (row["offset"], row["size"], queue)
        for queue in sides.our("dumpall")["queues"]
        for row in queue["messages"]
    ]
    end, nbytes, torn = max(rows, key=lambda row: row[0])
    torn_queue = torn["topic"], torn["queueId"]
    torn["max"] -= 1
    for question, their, our in zip(sides.questions, sides.theirs, sides.ours, strict=True):
        if "maxPhy" in our:
            their["maxPhy"], our["maxPhy"] = end + nbytes, end
        if question["op"] == "look" and (our["message"] or {}).get("offset", 0) >= end:
            our["message"] = their["message"] = None
        for answer in (our, *our.get("queues", ())):
            if "messages" in answer:
                answer["messages"] = [row for row in answer["messages"] if row["offset"] < end]
        if "lastOffset" in our and their["messages"]:
            their["lastOffset"] = end
            our["lastOffset"] = end - 1 if our["messages"] else 0
            our["lastTs"] = our["lastTs"] - 1 if our["messages"] else 0
        if (question.get("topic"), question.get("queueId")) != torn_queue:
            continue
        if question["op"] == "get":
            our["max"] -= 1
            our["next"] = min(our["next"], our["max"])
            if question["offset"] == our["max"]:
                our |= {"status": "OFFSET_OVERFLOW_ONE", "next": our["max"]}
        if question["op"] == "bytime":
            our["offset"] = min(our["offset"], torn["max"])


KNOWN_EXAMPLES: dict[str, tuple[Plant, dict[str, Any]]] = {
    "D-1": (lost_key, {"crashed": True}),
    "D-4": (doubled_key, {}),
    "blank": (blank_end, {"crashed": True}),
    "tags": (index_with_tags, {"adds_tags": True}),
}
NEAR_MISSES: dict[str, tuple[Plant, dict[str, Any]]] = {
    "a key that only we find, after an orderly stop": (lost_key, {}),
    "the last record named three times instead of two": (trebled_unevenly, {}),
    "an end that is no file's end": (blank_end_elsewhere, {"crashed": True}),
    "another end of the log after an orderly stop": (blank_end, {}),
    "an index that reaches further without tags": (index_with_tags, {}),
    "a further index with an older time": (index_with_tags_but_older, {"adds_tags": True}),
    "fewer units": (looked_at_few, {}),
}


@pytest.mark.parametrize("name", KNOWN_EXAMPLES)
def test_a_known_difference_is_counted(name: str, sides: Sides) -> None:
    make, rules = KNOWN_EXAMPLES[name]
    make(sides)
    found = sides.compare(**rules)
    assert found.failures == []
    assert set(+found.known) == {name}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_no_known_difference(name: str, sides: Sides) -> None:
    make, rules = NEAR_MISSES[name]
    make(sides)
    assert sides.compare(**rules).failures


def begins_at(sides: Sides, begin: int) -> Sides:
    """The same with a log that begins elsewhere."""
    for answer in (*sides.theirs, *sides.ours):
        if "minPhy" in answer:
            answer["minPhy"] = begin
    return sides


@pytest.mark.parametrize(
    ("make", "rules", "begin", "passes"),
    [
        (first_again, {"first_again": True}, 65_536, True),
        (first_again_and_full, {"first_again": True}, 65_536, True),
        (first_again_in_a_queue, {"first_again": True}, 65_536, True),
        (first_again, {}, 65_536, False),
        (first_again, {"first_again": True}, 0, False),
        (first_again_from_elsewhere, {"first_again": True}, 65_536, False),
        (first_again_in_a_later_queue, {"first_again": True}, 65_536, False),
        (first_again_in_two_queues, {"first_again": True}, 65_536, False),
        (first_again_and_one_less, {"first_again": True}, 65_536, False),
    ],
)
def test_the_first_record_in_place_of_an_expired_one(
    make: Plant, rules: dict[str, Any], begin: int, passes: bool
) -> None:
    sides = begins_at(recorded("plain-4.9.8"), begin)
    make(sides)
    found = sides.compare(**rules)
    assert (found.failures == []) == passes
    assert +found.known == ({"first": 1} if passes else {})


def begins_earlier(sides: Sides, more: int = 0) -> None:
    """RocketMQ's first queue begins at 0 and ours at its first message."""
    their = sides.theirs[sides.at("dumpall")]["queues"][0]
    our = sides.our("dumpall")["queues"][0]
    first = our["messages"][0]["queueOffset"] + 3
    for row in (their, our):
        row["messages"] = [item for item in row["messages"] if item["queueOffset"] >= first]
        row["min"] = 0
    our["min"] = first + more


def begins_after_a_message(sides: Sides) -> None:
    begins_earlier(sides, 1)


def begins_earlier_with_more(sides: Sides) -> None:
    begins_earlier(sides)
    row = sides.theirs[sides.at("dumpall")]["queues"][0]
    row["messages"].insert(0, {**FOREIGN, "queueOffset": 0})


@pytest.mark.parametrize(
    ("make", "begin", "passes"),
    [
        (begins_earlier, 65_536, True),
        (begins_earlier, 0, False),
        (begins_after_a_message, 65_536, False),
        (begins_earlier_with_more, 65_536, False),
    ],
)
def test_a_queue_that_begins_where_nothing_is_left(make: Plant, begin: int, passes: bool) -> None:
    sides = begins_at(recorded("plain-5.3.3"), begin)
    make(sides)
    found = sides.compare()
    assert (found.failures == []) == passes
    assert +found.known == ({"min": 1} if passes else {})


@pytest.mark.parametrize("name", ["plain-5.3.3", "crash-5.3.3", "plain-4.9.8"])
def test_a_torn_record_hides_no_other_difference(name: str) -> None:
    sides = recorded(name)
    torn_end(sides)
    found = sides.compare(crashed=True)
    assert found.failures == []
    assert found.known["torn"] == 1
    assert sides.compare().failures
    passed: list[str] = []
    for plant_name, make in PLANTS.items():
        sides = recorded(name)
        torn_end(sides)
        make(sides)
        if not sides.compare(crashed=True).failures:
            passed.append(plant_name)
    assert passed == []


def test_every_known_name_is_tried_or_belongs_to_another_case() -> None:
    of_their_own = {"first", "min", "torn", "D-40", "D-41", "altered", "lost", "refused"}
    # RocketMQ's silence on a damaged store is counted, and nothing compared with it.
    assert set(KNOWN) == {*KNOWN_EXAMPLES, *of_their_own, "unreadable"}
