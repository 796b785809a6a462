"""Putting inner batches: one record that takes as many queue offsets as it holds messages."""

from __future__ import annotations

from typing import Any

import pytest

from rocketstore import formats
from support.appenders import Log, Pair, batch, message, stored
from support.kernel_bodies import Bodies

INNER = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP
ILLEGAL = "MESSAGE_ILLEGAL"


def inner(count: str | None = "3", **values: Any) -> dict[str, Any]:
    """A ``put_message`` of an inner batch that says it holds ``count`` messages."""
    properties = {} if count is None else {"INNER_NUM": count}
    properties |= values.pop("properties", {})
    return {"topic": "BCQ", "sys_flag": INNER, "properties": properties, **values}


def batch_log(kernels: Bodies, **options: Any) -> Log:
    log = Log(kernels, **options)
    log.appender.set_batch_topics(["BCQ", "Other"])
    return log


@pytest.mark.parametrize("version", ["5.0.0", "5.1.4", "5.3.3", "5.5.0"])
def test_an_inner_batch_takes_as_many_offsets_as_it_holds_messages(
    kernels: Bodies, version: str
) -> None:
    log = batch_log(kernels, broker_version=version)
    found = []
    for count in ("3", "1", None, "32767", "+2", "1"):
        result = log.appender.put_message(message(**inner(count)))
        record = stored(log, result.physical_offset)
        assert record.queue_offset == result.queue_offset
        assert record.properties["INNER_BASE"] == str(result.queue_offset)
        found.append(result.queue_offset)
    assert found == [0, 3, 4, 5, 32772, 32774]
    assert log.appender.next_queue_offset("BCQ", 0) == 32775
    assert log.appender.put_times == 6


def test_every_kind_of_put(kernels: Bodies) -> None:
    log = batch_log(kernels)
    appender, properties = log.appender, {"INNER_NUM": "2"}
    results = [
        appender.put("BCQ", b"", sys_flag=INNER, properties=properties),
        appender.put_message(message(**inner("2"))),
        *appender.put_many([message(**inner("2"))] * 2),
        *appender.put_columns(
            "BCQ", memoryview(bytes(12)).cast("i"), b"", sys_flag=INNER, properties=properties
        ),
    ]
    assert [result.queue_offset for result in results] == [0, 2, 4, 6, 8, 10]
    bases = [stored(log, r.physical_offset).properties["INNER_BASE"] for r in results]
    assert bases == ["0", "2", "4", "6", "8", "10"]


def test_the_base_is_the_last_property_or_stays_in_its_place(kernels: Bodies) -> None:
    log = batch_log(kernels)
    log.appender.put_message(message(**inner("2", properties={"UNIQ_KEY": "u"})))
    last = log.appender.put_message(
        message(**inner("2", properties={"INNER_BASE": "99", "UNIQ_KEY": "u"}))
    )
    assert stored(log).properties_bytes == b"INNER_NUM\x012\x02UNIQ_KEY\x01u\x02INNER_BASE\x010\x02"
    again = stored(log, last.physical_offset)
    assert again.properties_bytes == b"INNER_NUM\x012\x02INNER_BASE\x012\x02UNIQ_KEY\x01u\x02"


def test_other_messages_on_a_batch_topic_take_one(kernels: Bodies) -> None:
    log = batch_log(kernels)
    log.appender.put_message(message(**inner("5")))
    result = log.appender.put("BCQ", b"")
    assert result.queue_offset == 5
    assert stored(log, result.physical_offset).properties == {}
    many = log.appender.put_messages(batch(message(), message(), topic="BCQ"))
    assert (many.queue_offset, many.message_count) == (6, 2)
    assert log.appender.next_queue_offset("BCQ", 0) == 8


@pytest.mark.parametrize(
    ("version", "values", "expected"),
    [
        ("5.3.3", inner(), "PUT_OK"),
        ("5.3.3", inner(topic="Simple"), ILLEGAL),
        ("5.3.3", inner(sys_flag=0), ILLEGAL),
        ("5.3.3", inner(sys_flag=formats.SYS_FLAG_NEED_UNWRAP), ILLEGAL),
        ("5.3.3", inner("0"), ILLEGAL),
        ("5.3.3", inner("-1"), ILLEGAL),
        ("5.3.3", inner("32768"), ILLEGAL),
        ("5.3.3", inner("4294967297"), ILLEGAL),
        ("5.3.3", inner(""), ILLEGAL),
        ("5.3.3", inner("x"), ILLEGAL),
        ("5.3.3", inner("2 "), ILLEGAL),
        ("5.3.3", inner(properties={"DELAY": "1"}), ILLEGAL),
        ("5.3.3", inner(properties={"TIMER_DELAY_MS": "1"}), "WHEEL_TIMER_NOT_ENABLE"),
        ("5.5.0", inner("0"), ILLEGAL),
        # 4.9 has no such queues: these are messages like any other.
        ("4.9.8", inner("0"), "PUT_OK"),
        ("4.9.8", inner(topic="Simple"), "PUT_OK"),
        ("4.9.8", inner(sys_flag=0), "PUT_OK"),
    ],
)
def test_which_inner_batches_are_stored(
    version: str, values: dict[str, Any], expected: str
) -> None:
    pair = Pair(broker_version=version, delay_ms=[1000])
    pair.call("set_batch_topics", ("BCQ",))
    result = pair.call("put_message", message(**values))[1]
    assert result[0][0].name == expected
    topic = values["topic"]
    assert pair.call("next_queue_offset", topic, 0)[1] == (expected == "PUT_OK") * (
        3 if version == "5.3.3" else 1
    )


def test_a_clients_batch_is_no_inner_batch(kernels: Bodies) -> None:
    log = batch_log(kernels)
    sent = batch(message(), topic="BCQ", sys_flag=INNER)
    assert log.appender.put_messages(sent).status.name == ILLEGAL
    sent = batch(message(), topic="BCQ", properties={"INNER_NUM": "1"})
    assert log.appender.put_messages(sent).status.name == ILLEGAL
    assert log.segments == []


def test_prepared_inner_batches_take_none(kernels: Bodies) -> None:
    log = batch_log(kernels)
    result = log.appender.put_message(message(**inner("3", sys_flag=INNER | 4)))
    assert result.queue_offset == 0
    assert stored(log).properties == {"INNER_NUM": "3"}
    assert log.appender.next_queue_offset("BCQ", 0) == 0


@pytest.mark.parametrize("version", ["5.1.4", "5.3.3"])
def test_an_inner_batch_in_light_queues(kernels: Bodies, version: str) -> None:
    """Both values are filled in; before 5.2 a topic with batch queues has no light ones."""
    log = batch_log(kernels, broker_version=version, enable_lmq=True, enable_multi_dispatch=True)
    log.appender.set_next_queue_offset("BCQ", 0, 17)
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a", "WAIT": "true"}
    for _ in range(2):
        result = log.appender.put_message(message(**inner("3", properties=names)))
    pairs = stored(log, result.physical_offset).properties_bytes.rstrip(b"\x02").split(b"\x02")
    late = [b"INNER_BASE\x0120", b"INNER_MULTI_QUEUE_OFFSET\x011", b"WAIT\x01true"]
    if version == "5.1.4":
        late = [b"WAIT\x01true", b"INNER_BASE\x0120"]
    assert pairs == [b"INNER_NUM\x013", b"INNER_MULTI_DISPATCH\x01%LMQ%a", *late]


def test_the_base_may_follow_the_light_offsets(kernels: Bodies) -> None:
    log = batch_log(kernels, enable_lmq=True)
    log.appender.set_next_queue_offset("BCQ", 0, 17)
    given = {"INNER_MULTI_QUEUE_OFFSET": "x", "INNER_BASE": "y", "INNER_MULTI_DISPATCH": "%LMQ%a"}
    log.appender.put("BCQ", b"", sys_flag=INNER, properties=given)
    assert stored(log).properties_bytes == (
        b"INNER_MULTI_QUEUE_OFFSET\x010\x02INNER_BASE\x0117\x02INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
    )


def test_limits_count_with_the_base(kernels: Bodies) -> None:
    for excess, expected in ((0, "PUT_OK"), (1, "PROPERTIES_SIZE_EXCEEDED")):
        log = batch_log(kernels, segment_nbytes=1 << 17)
        log.appender.set_next_queue_offset("BCQ", 0, 1000)
        fixed = "p\x01\x02INNER_BASE\x011000\x02"
        filler = {"p": "x" * (32767 - len(fixed) + excess)}
        result = log.appender.put_message(message(**inner(None, properties=filler)))
        assert result.status.name == expected
        assert log.appender.next_queue_offset("BCQ", 0) == 1000 + result.ok


def test_the_topics_are_replaced_as_a_whole(kernels: Bodies) -> None:
    log = batch_log(kernels)
    log.appender.set_batch_topics(name for name in ("Other",))
    assert log.appender.put_message(message(**inner())).status.name == ILLEGAL
    assert log.appender.put_message(message(**inner(topic="Other"))).ok
    for bad in ([5], [b"BCQ"], ["BCQ", None]):
        with pytest.raises(TypeError, match="topic must be str"):
            log.appender.set_batch_topics(bad)
    assert log.appender.put_message(message(**inner(topic="Other"))).ok
