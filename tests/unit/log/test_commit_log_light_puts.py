"""Puts that give a message offsets in light queues, under both bodies, by version."""

from __future__ import annotations

from typing import Any

import pytest

from rocketstore import formats
from rocketstore.errors import ConfigError
from support.appenders import Log, Pair, batch, message, stored
from support.kernel_bodies import NATIVE, Bodies

ON = {"enable_lmq": True, "enable_multi_dispatch": True}
#: One version of each way to give offsets, and those at which only topics or switches change.
LIGHT_VERSIONS = ("4.9.3", "4.9.8", "5.0.0", "5.1.0", "5.1.4", "5.2.0", "5.3.1", "5.3.3", "5.5.0")
LATE_VERSIONS = ("5.2.0", "5.3.1", "5.3.3", "5.4.0", "5.5.0")
DISPATCH, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


def light(names: str, **properties: str) -> dict[str, str]:
    return {"KEYS": "k", DISPATCH: names, **properties}


def stored_offsets(log: Log, offset: int) -> str | None:
    """INNER_MULTI_QUEUE_OFFSET as stored, an empty one too."""
    encoded = stored(log, offset).properties_bytes
    for pair in encoded.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name == OFFSETS.encode():
            return value.decode()
    return None


def put(log: Log, names: str, **values: Any) -> str | None:
    """Put a message that names queues; return the offsets that it stored."""
    result = log.appender.put_message(message(properties=light(names), **values))
    assert result.ok, result
    return stored_offsets(log, result.physical_offset)


@pytest.mark.parametrize("version", LIGHT_VERSIONS)
def test_every_kind_of_put_gives_offsets(kernels: Bodies, version: str) -> None:
    log = Log(kernels, broker_version=version, **ON)
    appender, names = log.appender, light("%LMQ%a,%LMQ%b")
    offsets = [
        appender.put("T", b"", properties=names).physical_offset,
        appender.put_message(message(properties=names)).physical_offset,
        appender.put_message(NATIVE.message.Message("T", b"", properties=names)).physical_offset,
        *appender.put_many([message(properties=names)] * 3).physical_offsets,
        *appender.put_columns(
            "T", memoryview(b"\0" * 16).cast("i"), b"", properties=names
        ).physical_offsets,
    ]
    assert [stored_offsets(log, offset) for offset in offsets] == [f"{n},{n}" for n in range(9)]
    assert appender.next_queue_offset("%LMQ%a", 0) == appender.next_queue_offset("%LMQ%b", 0) == 9
    assert appender.next_queue_offset("T", 0) == 9


def test_a_batch_of_a_client_gets_none(kernels: Bodies) -> None:
    log = Log(kernels, **ON)
    names = light("%LMQ%a")
    first = log.appender.put_messages(batch(message(properties=names), properties=names))
    assert stored_offsets(log, first.physical_offset) is None
    assert log.appender.next_queue_offset("%LMQ%a", 0) == 0


@pytest.mark.parametrize(
    ("version", "switches", "expected"),
    [
        ("4.9.8", {}, None),
        ("4.9.8", {"enable_lmq": True}, None),
        ("4.9.8", {"enable_multi_dispatch": True}, "0"),
        ("5.0.0", {"enable_lmq": True}, None),
        ("5.1.4", {"enable_multi_dispatch": True}, ""),
        ("5.3.1", {"enable_multi_dispatch": True}, ""),
        ("5.3.1", {"enable_lmq": True}, None),
        ("5.3.2", {"enable_lmq": True}, "0"),
        ("5.3.2", {"enable_multi_dispatch": True}, None),
        ("5.5.0", {}, None),
    ],
)
def test_the_switches(
    kernels: Bodies, version: str, switches: dict[str, bool], expected: str | None
) -> None:
    log = Log(kernels, broker_version=version, **switches)
    assert put(log, "%LMQ%a") == expected


@pytest.mark.parametrize("switch", ON)
def test_versions_without_light_queues_refuse_the_switches(kernels: Bodies, switch: str) -> None:
    with pytest.raises(ConfigError, match=r"light queues need broker_version 4\.9\.3"):
        Log(kernels, broker_version="4.9.2", **{switch: True})


@pytest.mark.parametrize("version", LIGHT_VERSIONS)
def test_queues_of_other_names(kernels: Bodies, version: str) -> None:
    """4.9 gives offsets in any queue, under the message's queue id; later versions leave a gap."""
    log = Log(kernels, broker_version=version, **ON)
    log.appender.set_next_queue_offset("Other", 3, 40)
    expected = "40,0" if version < "5" else ",0"
    assert put(log, "Other,%LMQ%a", queue_id=3) == expected
    assert log.appender.next_queue_offset("Other", 3) == (41 if version < "5" else 40)


def test_without_lmq_a_light_name_is_one_like_others(kernels: Bodies) -> None:
    log = Log(kernels, broker_version="4.9.8", enable_multi_dispatch=True)
    assert [put(log, "%LMQ%a", queue_id=2) for _ in range(2)] == ["0", "1"]
    assert log.appender.next_queue_offset("%LMQ%a", 2) == 2
    assert log.appender.next_queue_offset("%LMQ%a", 0) == 0


@pytest.mark.parametrize(
    ("version", "first", "second"),
    [
        ("4.9.8", "0,0", "1,1"),
        ("5.0.0", "0,1", "2,3"),
        ("5.1.0", "0,1", "2,3"),
        ("5.1.1", "0,0", "2,2"),
        ("5.3.3", "0,0", "2,2"),
    ],
)
def test_a_queue_that_is_named_twice(
    kernels: Bodies, version: str, first: str, second: str
) -> None:
    log = Log(kernels, broker_version=version, **ON)
    assert [put(log, "%LMQ%a,%LMQ%a") for _ in range(2)] == [first, second]


def test_a_message_may_name_its_own_queue(kernels: Bodies) -> None:
    for version in ("4.9.8", "5.3.3"):
        log = Log(kernels, broker_version=version, **ON)
        assert [put(log, "%LMQ%a", topic="%LMQ%a") for _ in range(3)] == ["0", "1", "2"]


@pytest.mark.parametrize("sys_flag", [4, 12])
@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.9.8", ["0", "0"]), ("5.1.4", [None, "0"]), ("5.3.3", ["0", "1"]), ("5.5.0", ["0", "1"])],
)
def test_prepared_and_rollback_records(
    kernels: Bodies, version: str, expected: list[str | None], sys_flag: int
) -> None:
    """Which of them take an offset of a light queue, to leave no unit there, is up to the
    version."""
    log = Log(kernels, broker_version=version, **ON)
    assert [put(log, "%LMQ%a", sys_flag=sys_flag), put(log, "%LMQ%a")] == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("4.9.8", f"KEYS\x01k\x02{DISPATCH}\x01%LMQ%a\x02x\x01y\x02{OFFSETS}\x010"),
        ("5.1.4", f"KEYS\x01k\x02{DISPATCH}\x01%LMQ%a\x02x\x01y\x02{OFFSETS}\x010"),
        (
            "5.3.3",
            f"KEYS\x01k\x02{DISPATCH}\x01%LMQ%a\x02x\x01y\x02{OFFSETS}\x010\x02WAIT\x01false\x02",
        ),
    ],
)
def test_the_order_of_properties(kernels: Bodies, version: str, expected: str) -> None:
    """WAIT is not stored, or after all others; the put obeys it all the same."""
    waited: list[int] = []
    log = Log(kernels, broker_version=version, wait=lambda end: waited.append(end) or 0, **ON)
    properties = {"KEYS": "k", "WAIT": "false", DISPATCH: "%LMQ%a", "x": "y"}
    log.appender.put("T", b"", properties=properties)
    assert stored(log).properties_bytes.decode() == expected
    assert waited == []


def test_given_offsets_are_overwritten_in_place(kernels: Bodies) -> None:
    log = Log(kernels, **ON)
    given = {OFFSETS: "77", DISPATCH: "%LMQ%a", "x": "y"}
    log.appender.put("T", b"", properties=given)
    assert stored(log).properties_bytes.decode() == (
        f"{OFFSETS}\x010\x02{DISPATCH}\x01%LMQ%a\x02x\x01y\x02"
    )


@pytest.mark.parametrize("names", [" ", "\t\u2003", ""])
def test_blank_names_mean_nothing(kernels: Bodies, names: str) -> None:
    log = Log(kernels, **ON)
    assert put(log, names) is None


def test_topics_that_get_no_offsets_store_what_they_were_given(kernels: Bodies) -> None:
    log = Log(kernels, **ON)
    given = light("%LMQ%a", WAIT="false", x="y")
    log.appender.put("%RETRY%g", b"", properties=given)
    assert stored(log).properties == given


def test_a_delayed_message_is_judged_by_where_it_goes(kernels: Bodies) -> None:
    for version, expected in (("4.9.8", "0,0"), ("5.3.3", None)):
        log = Log(kernels, broker_version=version, delay_ms=[1000, 5000], **ON)
        properties = light("%LMQ%a,Other", DELAY="2")
        log.appender.put("T", b"", 7, properties=properties)
        assert stored(log).topic == formats.TOPIC_SCHEDULE
        assert stored_offsets(log, 0) == expected
        assert log.appender.next_queue_offset("Other", 1) == (expected is not None)


def test_offsets_go_on_where_a_store_was_left(kernels: Bodies) -> None:
    log = Log(kernels, **ON)
    log.appender.set_next_queue_offset("%LMQ%a", 0, 2**62)
    assert put(log, "%LMQ%a,%LMQ%b") == f"{2**62},0"
    log.appender.remove_queue("%LMQ%a", 0)
    assert put(log, "%LMQ%a,%LMQ%b") == "0,1"


def test_a_record_grows_with_its_offsets_and_rolls_by_its_true_length(kernels: Bodies) -> None:
    """At the end of a segment the length counts with the offsets of that moment."""
    log = Log(kernels, segment_nbytes=512, **ON)
    log.appender.set_next_queue_offset("%LMQ%a", 0, 9)
    nbytes = [log.appender.put("T", b"", properties=light("%LMQ%a")).nbytes for _ in range(2)]
    assert nbytes[1] == nbytes[0] + 1
    room = 512 - sum(nbytes) - 8
    fitting = room - nbytes[1]
    exact = log.appender.put("T", bytes(fitting), properties=light("%LMQ%a"))
    assert (exact.physical_offset, log.rolls[1:]) == (sum(nbytes), [])
    log = Log(kernels, segment_nbytes=512, **ON)
    log.appender.set_next_queue_offset("%LMQ%a", 0, 9)
    for _ in range(2):
        log.appender.put("T", b"", properties=light("%LMQ%a"))
    rolled = log.appender.put("T", bytes(fitting + 1), properties=light("%LMQ%a"))
    assert (rolled.physical_offset, log.rolls[1:]) == (512, [nbytes[1] + fitting + 1])
    assert stored_offsets(log, 512) == "11"


# --- limits -------------------------------------------------------------------------------------

UNKNOWN, ILLEGAL, TOO_MANY = "UNKNOWN_ERROR", "MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED"


@pytest.mark.parametrize(
    ("version", "excess", "expected"),
    [
        ("4.9.8", 0, "PUT_OK"),
        ("4.9.8", 1, (UNKNOWN, UNKNOWN)),
        ("5.1.4", 0, "PUT_OK"),
        ("5.1.4", 1, (TOO_MANY, None)),
        ("5.3.3", 0, "PUT_OK"),
        ("5.3.3", 1, (ILLEGAL, TOO_MANY)),
        ("5.5.0", 1, (ILLEGAL, TOO_MANY)),
    ],
)
def test_properties_count_with_the_offsets(version: str, excess: int, expected: Any) -> None:
    pair = Pair(segment_nbytes=1 << 17, broker_version=version, **ON)
    pair.call("set_next_queue_offset", "%LMQ%a", 0, 1000)
    fixed = f"p\x01\x02{DISPATCH}\x01%LMQ%a\x02{OFFSETS}\x011000"
    trailing = 0 if version in ("4.9.8", "5.1.4") else 1
    filled = 32767 - len(fixed) - trailing + excess
    properties = {"p": "x" * filled, DISPATCH: "%LMQ%a"}
    result = pair.call("put", "T", b"", properties=properties)[1]
    assert_status(pair, result, expected)


@pytest.mark.parametrize(
    ("version", "body_nbytes", "expected"),
    [
        ("4.9.3", 838, "PUT_OK"),
        ("4.9.3", 839, (UNKNOWN, UNKNOWN)),
        ("4.9.8", 840, "PUT_OK"),
        ("4.9.8", 1000, "PUT_OK"),
        ("4.9.8", 1001, (UNKNOWN, UNKNOWN)),
        ("5.1.4", 1000, "PUT_OK"),
        ("5.1.4", 1001, (ILLEGAL, None)),
        ("5.2.0", 837, "PUT_OK"),
        ("5.2.0", 838, (ILLEGAL, "MESSAGE_SIZE_EXCEEDED")),
        ("5.3.3", 837, "PUT_OK"),
        ("5.3.3", 838, (ILLEGAL, "MESSAGE_SIZE_EXCEEDED")),
        ("5.3.3", 1001, (ILLEGAL, None)),
    ],
)
def test_the_limit_of_a_whole_record(version: str, body_nbytes: int, expected: Any) -> None:
    pair = Pair(segment_nbytes=4096, broker_version=version, max_message_size=1000, **ON)
    result = pair.call(
        "put_message", message(body=bytes(body_nbytes), properties=light("%LMQ%a,%LMQ%b"))
    )[1]
    assert_status(pair, result, expected)


def test_a_record_for_no_segment(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=256, broker_version="5.3.3", **ON)
    result = log.appender.put("T", bytes(100), properties=light("%LMQ%a"))
    assert (result.status.name, result.append_status.name) == (ILLEGAL, "MESSAGE_SIZE_EXCEEDED")
    assert (log.rolls, log.appender.failed_times) == ([], 1)


def assert_status(pair: Pair, result: Any, expected: Any) -> None:
    status, append_status = result[0][0], result[0][1]
    if expected == "PUT_OK":
        assert status.name == append_status.name == "PUT_OK"
        return
    assert (status.name, append_status and append_status.name) == expected
    assert pair.call("next_queue_offset", "T", 0)[1] == 0
    assert pair.native.appender.failed_times == 1
    assert pair.native.appender.put_times == 0


def test_a_refused_message_takes_no_offset_and_stops_no_other(kernels: Bodies) -> None:
    log = Log(kernels, max_message_size=300, broker_version="5.3.3", **ON)
    sizes = (10, 290, 10, 301, 10)
    results = log.appender.put_many(
        [message(body=bytes(size), properties=light("%LMQ%a")) for size in sizes]
    )
    names = [result.status.name for result in results]
    assert names == ["PUT_OK", ILLEGAL, "PUT_OK", ILLEGAL, "PUT_OK"]
    assert [stored_offsets(log, r.physical_offset) for r in results if r.ok] == ["0", "1", "2"]
    assert log.appender.failed_times == 2
    assert log.appender.next_queue_offset("T", 0) == 3


@pytest.mark.parametrize(
    ("version", "quota", "statuses"),
    [
        # 4.9: any light queue once there are more than the limit.
        ("4.9.8", False, "PUT_OK PUT_OK PUT_OK LMQ LMQ PUT_OK"),
        ("5.0.0", True, "PUT_OK PUT_OK PUT_OK PUT_OK PUT_OK PUT_OK"),
        ("5.4.0", True, "PUT_OK PUT_OK PUT_OK PUT_OK PUT_OK PUT_OK"),
        ("5.5.0", False, "PUT_OK PUT_OK PUT_OK PUT_OK PUT_OK PUT_OK"),
        # 5.5 with the quota: a new one once the limit is reached.
        ("5.5.0", True, "PUT_OK PUT_OK LMQ LMQ PUT_OK PUT_OK"),
    ],
)
def test_the_limit_of_light_queues(version: str, quota: bool, statuses: str) -> None:
    pair = Pair(broker_version=version, max_lmq_consume_queue_num=2, enable_lmq_quota=quota, **ON)
    found = []
    for names in ("%LMQ%a", "%LMQ%b", "%LMQ%c", "%LMQ%a,%LMQ%d", "%LMQ%a", None):
        properties = {} if names is None else light(names)
        found.append(pair.call("put", "T", b"", properties=properties)[1][0][0].name)
    expected = statuses.replace("LMQ", "LMQ_CONSUME_QUEUE_NUM_EXCEEDED").split()
    assert found == expected


def test_a_removed_light_queue_makes_room(kernels: Bodies) -> None:
    log = Log(
        kernels,
        broker_version="5.5.0",
        max_lmq_consume_queue_num=1,
        enable_lmq_quota=True,
        **ON,
    )
    log.appender.set_next_queue_offset("%LMQ%a", 0, 5)
    assert not log.appender.put("T", b"", properties=light("%LMQ%b")).appended
    log.appender.remove_queue("%LMQ%a", 0)
    assert put(log, "%LMQ%b") == "0"


def test_a_name_longer_than_a_folders(kernels: Bodies) -> None:
    log = Log(kernels, **ON)
    assert log.appender.put("T", b"", properties=light("%LMQ%" + "é" * 125)).ok
    result = log.appender.put("T", b"", properties=light("%LMQ%" + "é" * 126))
    assert result.status.name == ILLEGAL
