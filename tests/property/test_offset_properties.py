"""Random puts into light queues and of inner batches: both bodies agree, and what is stored is what
a model of the queues in a dict says."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore.dialect import Dialect
from support.appenders import Log, Pair, message, stored
from support.kernel_bodies import NATIVE

VERSIONS = ("4.9.3", "4.9.8", "5.0.0", "5.1.1", "5.1.4", "5.2.0", "5.3.1", "5.3.3", "5.5.0")
INNER = formats.SYS_FLAG_INNER_BATCH
TOPICS = ("T", "T", "%LMQ%a", "BCQ", "%RETRY%g", "%DLQ%g", "rmq_sys_x", formats.TOPIC_SCHEDULE)
NAMES = ("%LMQ%a", "%LMQ%b", "%LMQ%$T$é", "T", "Other", "BCQ")

lists = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(",".join)
properties = st.fixed_dictionaries(
    {},
    optional={
        "WAIT": st.sampled_from(("true", "false")),
        "INNER_BASE": st.just("given"),
        "INNER_MULTI_QUEUE_OFFSET": st.sampled_from(("", "1,2,3")),
        "KEYS": st.text("k ", max_size=30),
        "INNER_MULTI_DISPATCH": st.one_of(
            lists, lists, lists, lists, lists, st.sampled_from((" ", ",", "x/y"))
        ),
        "DELAY": st.sampled_from(("0", "0", "0", "0", "1")),
        "z": st.just(""),
    },
)
#: Of most messages the topic fits the flag and the count, or they would be refused.
inner_heads = st.tuples(
    st.sampled_from(("BCQ", "BCQ", "BCQ", "BCQ", "T")),
    st.sampled_from((INNER, INNER, INNER, INNER | 4, INNER | 8)),
    st.sampled_from((None, "1", "3", "12", "0")),
)
other_heads = st.tuples(
    st.sampled_from(TOPICS),
    st.sampled_from((0, 0, 0, 4, 8, 12)),
    st.sampled_from((None, None, None, None, None, "2")),
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """A message; its properties in any order, so that late values stand anywhere among them."""
    topic, sys_flag, count = draw(st.one_of(inner_heads, other_heads))
    pairs = draw(properties)
    if count is not None:
        pairs["INNER_NUM"] = count
    return {
        "topic": topic,
        "queue_id": draw(st.sampled_from((0, 0, 1, 2))),
        "sys_flag": sys_flag,
        "body": bytes(draw(st.integers(0, 120))),
        "properties": dict(draw(st.permutations(list(pairs.items())))),
    }


starts = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0, 8, 98, 2**62)), max_size=3)


def options(version: str, switches: int, **others: Any) -> dict[str, Any]:
    return {
        "broker_version": version,
        "enable_lmq": bool(switches & 1),
        "enable_multi_dispatch": bool(switches & 2),
        **others,
    }


def put_all(pair: Pair, kind: str, sequence: list[dict[str, Any]]) -> None:
    """The messages by one kind of put."""
    if kind == "many":
        pair.call("put_many", [message(**values) for values in sequence])
        return
    for values in sequence:
        if kind == "columns":
            body = values["body"]
            bounds = memoryview(bytes(4) + 2 * len(body).to_bytes(4, "little")).cast("i")
            named = {key: values[key] for key in ("queue_id", "sys_flag", "properties")}
            pair.call("put_columns", values["topic"], bounds, body, **named)
        elif kind == "put":
            named = {key: value for key, value in values.items() if key not in ("topic", "body")}
            pair.call("put", values["topic"], values["body"], **named)
        else:
            pair.call("put_message", message(**values))


@settings(max_examples=300, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    switches=st.sampled_from((3, 3, 3, 1, 2)),
    kind=st.sampled_from(("put", "message", "many", "columns")),
    property_crc=st.booleans(),
    segment_nbytes=st.sampled_from((300, 420, 4096)),
    max_message_size=st.sampled_from((100, 200, 260, 4194304)),
    limit=st.sampled_from((0, 1, 20_000)),
    quota=st.booleans(),
    first=starts,
    sequence=st.lists(messages(), min_size=1, max_size=10),
)
def test_both_bodies_agree(
    version: str,
    switches: int,
    kind: str,
    property_crc: bool,
    segment_nbytes: int,
    max_message_size: int,
    limit: int,
    quota: bool,
    first: dict[str, int],
    sequence: list[dict[str, Any]],
) -> None:
    pair = Pair(
        **options(version, switches),
        segment_nbytes=segment_nbytes,
        max_message_size=max_message_size,
        max_lmq_consume_queue_num=limit,
        enable_lmq_quota=quota,
        delay_ms=[1000],
        append_property_crc=property_crc and Dialect.for_version(version).property_crc,
    )
    pair.call("set_batch_topics", ["BCQ"])
    for name, offset in first.items():
        pair.call("set_next_queue_offset", name, 0, offset)
    put_all(pair, kind, sequence)
    for name in {*NAMES, *TOPICS}:
        for queue_id in range(3):
            pair.call("next_queue_offset", name, queue_id)


class Model:
    """Next offsets of all queues as 5.3.3 counts them, from what it stored."""

    def __init__(self) -> None:
        self.next: dict[tuple[str, int], int] = {}

    def check(self, record: Any) -> None:
        """Compare one stored record with the model, and count on."""
        pairs = record.properties
        key = (record.topic, record.queue_id)
        queued = not record.sys_flag & formats.SYS_FLAG_TRANSACTION_PREPARED
        assert record.queue_offset == (self.next.get(key, 0) if queued else 0)
        names = pairs.get("INNER_MULTI_DISPATCH", " ")
        lists = names.strip() and record.topic in ("T", "BCQ", "%DLQ%g", "%LMQ%a")
        light = [name.startswith("%LMQ%") for name in names.split(",")] if lists else []
        if any(light):
            reported = [
                str(self.next.get((name, 0), 0)) if is_light else ""
                for name, is_light in zip(names.split(","), light, strict=True)
            ]
            assert pairs["INNER_MULTI_QUEUE_OFFSET"] == ",".join(reported)
        if queued:
            inner = record.sys_flag & INNER
            assert not inner or pairs["INNER_BASE"] == str(record.queue_offset)
            width = int(pairs.get("INNER_NUM", "1")) if inner else 1
            self.next[key] = record.queue_offset + width
        for name, is_light in zip(names.split(","), light, strict=bool(light)):
            if is_light and not (queued and (name, 0) == key):
                self.next[name, 0] = self.next.get((name, 0), 0) + 1


@settings(max_examples=150, deadline=None)
@given(sequence=st.lists(messages(), min_size=1, max_size=30))
def test_stored_offsets_are_those_of_a_model(sequence: list[dict[str, Any]]) -> None:
    log = Log(NATIVE, **options("5.3.3", 3, delay_ms=[1000]))
    log.appender.set_batch_topics(["BCQ"])
    model = Model()
    for values in sequence:
        try:
            result = log.appender.put_message(message(**values))
        except ValueError:
            continue  # names that can be no queue
        if result.appended:
            model.check(stored(log, result.physical_offset))
    for key, offset in model.next.items():
        assert log.appender.next_queue_offset(*key) == offset
