"""Where a put sends a message with a delivery time, in both bodies of the appender."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest

from rocketstore import PutMessageStatus, formats
from rocketstore.timer_rules import DUE_NOW, TimerPlace, TimerRules
from support.appenders import FIRST_CLOCK, Log, batch, message, stored
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

NOW = FIRST_CLOCK + 250
DAY_MS = 86_400_000
RULES = TimerRules(1000, 3 * DAY_MS)
ILLEGAL = PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
BODIES = pytest.mark.parametrize("kernels", [NATIVE, REFERENCE], ids=repr)


@pytest.mark.parametrize(
    ("wish", "out"),
    [
        ({"TIMER_DELAY_MS": "1"}, 0),
        ({"TIMER_DELAY_MS": "750"}, 0),  # due at a multiple: the slot before it
        ({"TIMER_DELAY_MS": "751"}, 1_000),
        ({"TIMER_DELAY_SEC": "5"}, 5_000),
        ({"TIMER_DELAY_SEC": "+005"}, 5_000),
        ({"TIMER_DELIVER_MS": str(FIRST_CLOCK + 9_000)}, 8_000),
        ({"TIMER_DELIVER_MS": str(FIRST_CLOCK + 9_001)}, 9_000),
        ({"TIMER_DELAY_SEC": str(3 * 86_400)}, 3 * DAY_MS),
        # The first of the three that is present counts.
        ({"TIMER_DELIVER_MS": "x", "TIMER_DELAY_MS": "x", "TIMER_DELAY_SEC": "2"}, 2_000),
        ({"TIMER_DELIVER_MS": "x", "TIMER_DELAY_MS": "2000"}, 2_000),
    ],
)
def test_the_slot_of_a_wish(wish: dict[str, str], out: int) -> None:
    assert RULES.place(wish, NOW) == TimerPlace(None, FIRST_CLOCK + out)


@pytest.mark.parametrize(
    "wish",
    [
        {"TIMER_DELAY_SEC": ""},
        {"TIMER_DELAY_SEC": " 5"},
        {"TIMER_DELAY_SEC": "5.0"},
        {"TIMER_DELAY_SEC": "٥"},
        {"TIMER_DELAY_SEC": "x", "TIMER_DELAY_MS": "5000"},
        {"TIMER_DELAY_MS": str(1 << 63)},
        {"TIMER_DELAY_MS": "9" * 5_000},
        {"TIMER_DELAY_SEC": str((1 << 63) - 1)},  # RocketMQ's product is negative: at once
        {"TIMER_DELAY_SEC": str(3 * 86_400 + 1)},
        {"TIMER_DELIVER_MS": str(NOW + 3 * DAY_MS + 1)},
        {"TIMER_DELAY_MS": "0", "TIMER_DEL_UNIQKEY": "k"},
        {"TIMER_DELIVER_MS": str(NOW), "TIMER_DEL_UNIQKEY": "k"},
    ],
)
def test_wishes_that_are_refused(wish: dict[str, str]) -> None:
    assert RULES.place(wish, NOW) == TimerPlace(ILLEGAL)


@pytest.mark.parametrize(
    "wish",
    [
        {"TIMER_DELAY_MS": "0"},
        {"TIMER_DELAY_SEC": "-5"},
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELIVER_MS": "0"},
        {"TIMER_DELIVER_MS": str(-(1 << 63))},
    ],
)
def test_wishes_that_are_due(wish: dict[str, str]) -> None:
    assert RULES.place(wish, NOW) == TimerPlace(None, DUE_NOW)


@pytest.mark.parametrize("precision_ms", formats.TIMER_PRECISIONS_MS)
def test_the_precision(precision_ms: int) -> None:
    rules = TimerRules(precision_ms, DAY_MS)
    for due in range(NOW + 1, NOW + 2_500, 7):
        out = rules.place({"TIMER_DELIVER_MS": str(due)}, NOW).out
        assert out % precision_ms == 0
        assert due - precision_ms <= out < due


def test_a_crowded_slot() -> None:
    asked: list[int] = []
    rules = TimerRules(1000, DAY_MS, lambda out: asked.append(out) is None)
    place = rules.place({"TIMER_DELAY_SEC": "5"}, NOW)
    assert place == TimerPlace(PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL)
    assert asked == [FIRST_CLOCK + 5_000]


# --- puts -----------------------------------------------------------------------------------------

WISH = {"n": "1", "TIMER_DELAY_SEC": "5"}


def timed_log(kernels: Bodies, **options: Any) -> Log:
    options = {"broker_version": "5.3.3", "timer_rules": RULES, **options}
    return Log(kernels, clock=lambda: NOW, delay_ms=(1000, 5000), **options)


PUTS: dict[str, Callable[[Any, dict[str, str]], list[Any]]] = {
    "put": lambda to, wish: [to.put("T", b"b", 3, properties=wish)],
    "put_message": lambda to, wish: [to.put_message(message(queue_id=3, properties=wish))],
    "put_many": lambda to, wish: list(to.put_many([message(queue_id=3, properties=wish)])),
    "put_columns": lambda to, wish: list(
        to.put_columns("T", array("i", [0, 1, 2]), b"bb", queue_id=3, properties=wish)
    ),
}


@BODIES
@pytest.mark.parametrize("name", PUTS)
def test_every_put_moves_the_message(kernels: Bodies, name: str) -> None:
    log = timed_log(kernels)
    results = PUTS[name](log.appender, WISH)
    offset = 0
    for number, result in enumerate(results):
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, number)
        record = stored(log, offset)
        offset += record.store_size
        assert (record.topic, record.queue_id) == (formats.TOPIC_TIMER, 0)
        assert list(record.properties.items()) == [
            *WISH.items(),
            ("TIMER_OUT_MS", str(FIRST_CLOCK + 5_000)),
            ("REAL_TOPIC", "T"),
            ("REAL_QID", "3"),
        ]


@BODIES
@pytest.mark.parametrize("name", PUTS)
@pytest.mark.parametrize("wish", [{"TIMER_DELAY_MS": "x"}, {"TIMER_DELAY_SEC": "300000"}])
def test_every_put_refuses(kernels: Bodies, name: str, wish: dict[str, str]) -> None:
    for rules, status in ((RULES, ILLEGAL), (None, PutMessageStatus.WHEEL_TIMER_NOT_ENABLE)):
        log = timed_log(kernels, timer_rules=rules)
        assert {one.status for one in PUTS[name](log.appender, wish)} == {status}
        assert log.appender.write_offset == 0


@BODIES
@pytest.mark.parametrize(
    ("version", "wish", "topic", "kept"),
    [
        ("4.9.8", WISH, "T", WISH),
        ("5.3.3", {"TIMER_DELAY_MS": "-5"}, "T", {"TIMER_DELAY_MS": "-5"}),
        ("5.3.3", {**WISH, "TIMER_OUT_MS": "7"}, "T", {**WISH, "TIMER_OUT_MS": "7"}),
        ("5.3.3", {**WISH, "DELAY": "0"}, formats.TOPIC_TIMER, None),
        ("5.3.3", {**WISH, "DELAY": "-1"}, formats.TOPIC_TIMER, None),
    ],
)
def test_what_is_moved(
    kernels: Bodies, version: str, wish: dict[str, str], topic: str, kept: dict[str, str] | None
) -> None:
    log = timed_log(kernels, broker_version=version)
    log.appender.put("T", b"b", properties=wish)
    record = stored(log)
    assert record.topic == topic
    assert kept is None or record.properties == kept


@BODIES
def test_d_53_a_delay_level_takes_all_three_wishes_away(kernels: Bodies) -> None:
    """RocketMQ leaves TIMER_DELAY_MS to a message that it delivers, and times that again."""
    wish = {"DELAY": "1", "TIMER_DELAY_MS": "9", "TIMER_DELAY_SEC": "9", "TIMER_DELIVER_MS": "9"}
    for rules in (RULES, None):
        log = timed_log(kernels, timer_rules=rules)
        assert log.appender.put("T", b"b", properties=wish).status == PutMessageStatus.PUT_OK
        record = stored(log)
        assert record.topic == formats.TOPIC_SCHEDULE
        assert record.properties == {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}


@BODIES
@pytest.mark.parametrize("kind", [formats.SYS_FLAG_TRANSACTION_PREPARED, 12, 8])
def test_transactions(kernels: Bodies, kind: int) -> None:
    """A half message or a rollback is not timed; a committed message is."""
    log = timed_log(kernels)
    log.appender.put("T", b"b", properties=WISH, sys_flag=kind)
    is_commit = kind == formats.SYS_FLAG_TRANSACTION_COMMIT
    assert stored(log).topic == (formats.TOPIC_TIMER if is_commit else "T")


@BODIES
@pytest.mark.parametrize(
    ("rules", "wish", "status"),
    [
        (RULES, WISH, ILLEGAL),
        (RULES, {"TIMER_DELAY_MS": "x"}, ILLEGAL),
        (RULES, {"TIMER_DELAY_MS": "0"}, PutMessageStatus.PUT_OK),
        (None, WISH, PutMessageStatus.WHEEL_TIMER_NOT_ENABLE),
    ],
)
def test_a_batch_cannot_wait(
    kernels: Bodies, rules: TimerRules | None, wish: dict[str, str], status: PutMessageStatus
) -> None:
    """RocketMQ moves the batch, and its messages then lack the time of their slot."""
    log = timed_log(kernels, timer_rules=rules)
    result = log.appender.put_messages(batch(message(), message(), properties=wish))
    assert result.status == status


@BODIES
def test_an_error_of_the_clock_or_the_rules_stores_nothing(kernels: Bodies) -> None:
    def broken(*_: Any) -> bool:
        raise RuntimeError("broken")

    for options in (
        {"clock": broken},
        {"clock": lambda: "x"},
        {"timer_rules": TimerRules(1000, DAY_MS, broken)},
    ):
        log = Log(kernels, broker_version="5.3.3", **{"timer_rules": RULES, **options})
        with pytest.raises((RuntimeError, TypeError)):
            log.appender.put("T", b"b", properties=WISH)
        assert log.appender.write_offset == 0


@BODIES
def test_a_long_topic_is_short_on_the_timer_topic(kernels: Bodies) -> None:
    """The record's version depends on the topic that is stored."""
    topic = "%RETRY%" + "g" * 200
    log = timed_log(kernels)
    log.appender.put(topic, b"b", properties=WISH)
    record = stored(log)
    assert (record.magic_code, record.properties["REAL_TOPIC"]) == (formats.MAGIC_V1, topic)
