"""Random puts, hostile ones too, leave the same bytes and outcomes under both bodies."""

from __future__ import annotations

from array import array
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore.status import PutMessageStatus, RecordFlags, RecordStatus
from support.appenders import Log, Pair, batch, message
from support.kernel_bodies import NATIVE

VERSIONS = st.sampled_from(
    ("4.9.0", "4.9.2", "4.9.3", "4.9.8", "5.0.0", "5.1.0", "5.1.4", "5.2.0", "5.3.3", "5.5.0")
)
NAMES = ("TAGS", "KEYS", "WAIT", "DELAY", "UNIQ_KEY", "REAL_TOPIC", "REAL_QID", "__CRC32#")
NAMES += ("INNER_NUM", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_OUT_MS")
NAMES += ("INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")

topics = st.one_of(
    st.sampled_from(("T", "TopicA", "%RETRY%g", "%LMQ%$a$b", "%RETRY%g+T", "rmq_sys_wheel_timer")),
    st.sampled_from((formats.TOPIC_SCHEDULE, formats.TOPIC_HALF, "t" * 127, "t" * 128)),
    st.sampled_from(("BCQ", "BCQ", "%DLQ%g", "%LMQ%a")),
    st.sampled_from(("%RETRY%" + "r" * 120, "%RETRY%" + "r" * 121, "%RETRY%" + "r" * 249)),
)
odd_topics = st.one_of(
    st.sampled_from(
        ("", ".", "a/b", "a b", "T+", "$T", "a\0", "é", "😀", "\ud800", "a\n", 5, None)
    ),
    st.sampled_from((b"T", "%RETRY%$", "%LMQ%+", "%RETRY%" + "r" * 300)),
    st.text(max_size=5),
)
texts = st.one_of(
    st.sampled_from(("", "v", "true", "TRUE", "false", "1", "+2", "99", "-1", "0", "x9", "٣")),
    st.sampled_from(("標籤", "😀é", "\ud83d", "\ud83d\ude00", "a b", formats.TOPIC_SCHEDULE)),
    st.sampled_from(("%LMQ%a", "%LMQ%a,%LMQ%b", "T,%LMQ%a,BCQ,%LMQ%a,", "%LMQ%é😀,\ud83d,T", " ")),
    st.sampled_from(
        (",", "%LMQ%a,,T", "a/b", "%LMQ%a,..", "\xa0", "\u2003\t", "%LMQ%" + "l" * 251)
    ),
    st.text(st.characters(codec="utf-8", min_codepoint=3), max_size=12),
)
odd_texts = st.sampled_from(("\0", "a\x01", "\x02b", 7, b"x", 1.5, ["a", " "], True))
names = st.one_of(st.sampled_from(NAMES), st.text("abc-é", min_size=1, max_size=5))
properties = st.one_of(
    st.none(),
    st.dictionaries(names, texts, max_size=6),
)
odd_properties = st.one_of(
    st.dictionaries(
        st.one_of(names, st.sampled_from(("", "a\x02", 3))),
        st.one_of(texts, odd_texts, st.none()),
        max_size=3,
    ),
    st.sampled_from((5, "TAGS", [("a", "b")])),
)
bodies = st.one_of(
    st.binary(max_size=80),
    st.binary(max_size=300).map(bytearray),
    st.binary(max_size=40).map(memoryview),
    st.integers(0, 1200).map(bytes),
    st.just(array("i", [1, 2, 3])),
)
odd_bodies = st.sampled_from((None, "text", 5, memoryview(b"abcdef")[::2], [1, 2]))
hosts = st.sampled_from((None, "10.0.0.1:1234", "[2001:db8::1]:65535", "255.255.255.255:0"))
odd_hosts = st.sampled_from(
    ("", "10.0.0.1", "[::1]", "host:80", 5, b"1.2.3.4:5", "1.2.3.4:70000", ["::"])
)
small = st.sampled_from((0, 1, 7, 2**31 - 1))
i32 = st.one_of(small, st.sampled_from((-1, -(2**31))))
i64 = st.sampled_from((0, 1, -1, 2**63 - 1, -(2**63), 1_700_000_000_000))
odd_numbers = st.sampled_from((True, 1.0, "1", None, 2**31, -(2**31) - 1, 2**63, -(2**70)))
sys_flags = st.one_of(st.sampled_from((0, 4, 8, 12, 16, 32, 48, 0x80, 0x8C, 3)), i32)


def fields(odd: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of ``put`` by name; with ``odd`` some are wrong."""

    def maybe(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> Any:
        return st.one_of(good, good, good, bad) if odd else good

    return st.fixed_dictionaries(
        {"topic": maybe(topics, odd_topics), "body": maybe(bodies, odd_bodies)},
        optional={
            "queue_id": maybe(small, odd_numbers),
            "flag": maybe(i32, odd_numbers),
            "sys_flag": maybe(sys_flags, odd_numbers),
            "born_timestamp": st.one_of(st.none(), maybe(i64, odd_numbers)),
            "born_host": maybe(hosts, odd_hosts),
            "store_host": maybe(hosts, odd_hosts),
            "reconsume_times": maybe(i32, odd_numbers),
            "prepared_transaction_offset": maybe(i64, odd_numbers),
            "properties": maybe(properties, odd_properties),
        },
    )


def extras(odd: bool) -> st.SearchStrategy[dict[str, Any]]:
    """The arguments that only ``put`` knows."""
    text = st.one_of(st.none(), texts, odd_texts) if odd else st.one_of(st.none(), texts)
    keys = st.one_of(text, st.lists(st.sampled_from(("k1", "k2", "é")), max_size=3))
    bad_keys = st.sampled_from((["a b"], [""], [3], 7, ["a\x01"], b"k"))
    return st.fixed_dictionaries(
        {},
        optional={
            "tags": text,
            "keys": st.one_of(keys, bad_keys) if odd else keys,
            "delay_level": st.one_of(st.integers(0, 20), odd_numbers) if odd else small,
            "wait_store_msg_ok": st.booleans(),
            "unique_key": st.one_of(text, st.booleans()),
        },
    )


def sent(values: dict[str, Any]) -> Any:
    """A message of the caller's own making."""
    return message(**{"properties": None, **values})


def native_message(values: dict[str, Any]) -> Any:
    """A ``Message`` where its constructor takes the values; both bodies can read it."""
    keywords = dict(values)
    try:
        return NATIVE.message.Message(keywords.pop("topic"), keywords.pop("body"), **keywords)
    except (TypeError, ValueError, OverflowError, BufferError):
        return sent(values)


@st.composite
def columns(draw: st.DrawFn) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of ``put_columns``."""
    values = draw(fields(odd=draw(st.booleans())))
    values.pop("reconsume_times", None)
    values.pop("prepared_transaction_offset", None)
    lengths = draw(st.lists(st.integers(0, 60), max_size=12))
    bounds = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    if draw(st.integers(0, 5)) == 0:
        bounds = draw(st.lists(st.integers(-2, 400), max_size=5))
    offsets: Any = array(draw(st.sampled_from("iq")), bounds)
    data = bytes(sum(lengths) + draw(st.sampled_from((0, 0, 5))))
    values.pop("body")
    named = {**values, **draw(st.one_of(st.just({}), st.fixed_dictionaries({"tags": texts})))}
    return (named.pop("topic"), offsets, draw(st.sampled_from((data, bytearray(data))))), named


batches = st.builds(
    lambda head, items: batch(*map(sent, items), **{"properties": None, **head}),
    fields(odd=False).map(lambda f: {k: v for k, v in f.items() if k != "body"}),
    st.lists(st.booleans().flatmap(fields), max_size=5),
)
steps = st.one_of(
    st.tuples(st.just("put"), fields(odd=False), extras(odd=False)),
    st.tuples(st.just("put"), fields(odd=True), extras(odd=True)),
    st.tuples(st.just("message"), st.booleans().flatmap(fields)),
    st.tuples(st.just("many"), st.lists(fields(odd=False), max_size=8)),
    st.tuples(st.just("many"), st.lists(fields(odd=True), max_size=4)),
    st.tuples(st.just("batch"), batches),
    st.tuples(st.just("columns"), columns()),
)


def take(pair: Pair, step: tuple[Any, ...]) -> None:
    """One step on both bodies, which must agree."""
    kind = step[0]
    if kind == "put":
        pair.call("put", **step[1], **step[2])
    elif kind == "message":
        pair.call("put_message", sent(step[1]))
        pair.call("put_message", native_message(step[1]))
    elif kind == "many":
        pair.call("put_many", [sent(values) for values in step[1]])
        pair.call("put_many", [native_message(values) for values in step[1]])
    elif kind == "batch":
        pair.call("put_messages", step[1])
    else:
        pair.call("put_columns", *step[1][0], **step[1][1])


def strictly_check(log: Log) -> list[tuple[int, int]]:
    """Every byte of the log is a strictly good record or the blank after one; where, how long."""
    found = []
    end = log.appender.write_offset
    for number, segment in enumerate(log.segments):
        base = number * log.segment_nbytes
        position = 0
        while base + position < end and position < log.segment_nbytes:
            status, size = NATIVE.message.check_record(
                segment,
                position,
                min(end - base, log.segment_nbytes),
                base,
                base + log.segment_nbytes,
                int(RecordFlags.CHECK_BODY_CRC),
            )
            if status != RecordStatus.BLANK:
                assert status == RecordStatus.OK, (base + position, status)
                found.append((base + position, size))
            position += size
    return found


def assert_same_next_offsets(pair: Pair) -> None:
    """The queues of the log, and those that its messages name, go on alike in both bodies."""
    for topic in ("T", "BCQ", "%LMQ%a", "%LMQ%b", "%LMQ%é😀", "%LMQ%$a$b", "?"):
        for queue_id in (0, 1, 7):
            pair.call("next_queue_offset", topic, queue_id)


@settings(max_examples=300, deadline=None)
@given(
    version=VERSIONS,
    segment_nbytes=st.sampled_from((128, 300, 512, 1024, 4096)),
    extent_nbytes=st.sampled_from((None, 64, 100)),
    max_message_size=st.sampled_from((100, 1000, 4194304)),
    delay_levels=st.sampled_from((0, 2, 18)),
    waits=st.booleans(),
    lights=st.sampled_from(((False, False), (True, True), (True, False), (False, True))),
    light_limit=st.sampled_from((0, 1, 20_000)),
    quota=st.booleans(),
    sequence=st.lists(steps, max_size=8),
)
def test_both_bodies_agree(
    version: str,
    segment_nbytes: int,
    extent_nbytes: int | None,
    max_message_size: int,
    delay_levels: int,
    waits: bool,
    lights: tuple[bool, bool],
    light_limit: int,
    quota: bool,
    sequence: list[tuple[Any, ...]],
) -> None:
    if version < "4.9.3":
        lights = (False, False)
    flush = {"wait": lambda end: PutMessageStatus.FLUSH_DISK_TIMEOUT if end % 2 else 0}
    pair = Pair(
        segment_nbytes=segment_nbytes,
        extent_nbytes=extent_nbytes,
        broker_version=version,
        max_message_size=max_message_size,
        delay_ms=[1000] * delay_levels,
        unique_key_maker=lambda: "0A0B",
        append_property_crc=version in ("5.3.3", "5.5.0") and max_message_size == 1000,
        enable_lmq=lights[0],
        enable_multi_dispatch=lights[1],
        max_lmq_consume_queue_num=light_limit,
        enable_lmq_quota=quota,
        **(flush if waits else {}),
    )
    pair.call("set_batch_topics", ["BCQ"])
    for step in sequence:
        take(pair, step)
    assert_same_next_offsets(pair)
    assert len(strictly_check(pair.native)) == pair.native.appender.put_times


@settings(max_examples=60, deadline=None)
@given(sequence=st.lists(fields(odd=False), min_size=1, max_size=12), version=VERSIONS)
def test_queue_offsets_are_dense(sequence: list[dict[str, Any]], version: str) -> None:
    """Offsets of a queue count from 0 without gaps; what is not queued carries 0."""
    log = Log(NATIVE, broker_version=version, delay_ms=[1000] * 18)
    for values in sequence:
        try:
            log.appender.put_message(sent(values))
        except ValueError as error:  # text that UTF-8 cannot store: nothing is put
            if "half a surrogate pair" not in str(error):
                raise
    seen: dict[tuple[str, int], int] = {}
    for offset, _ in strictly_check(log):
        base = offset - offset % log.segment_nbytes
        stored = NATIVE.message.StoredMessage(
            log.segments[base // log.segment_nbytes],
            offset - base,
            base,
            base + log.segment_nbytes,
        )
        if stored.sys_flag & formats.SYS_FLAG_TRANSACTION_PREPARED:
            assert stored.queue_offset == 0
            continue
        key = (stored.topic, stored.queue_id)
        assert stored.queue_offset == seen.get(key, 0)
        seen[key] = stored.queue_offset + 1
    for (topic, queue_id), count in seen.items():
        assert log.appender.next_queue_offset(topic, queue_id) == count


keys = st.tuples(st.sampled_from(("a", "b", "é😀", "t" * 200, "\ud800")), st.integers(0, 300))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(("set", "remove", "get")), keys, st.integers(0, 2**62)),
        max_size=150,
    ),
    st.integers(0, 400),
)
def test_the_table_is_a_dict(actions: list[tuple[str, tuple[str, int], int]], many: int) -> None:
    """The topic-queue table against a dict, growing and shrinking."""
    appender = Log(NATIVE).appender
    model: dict[tuple[str, int], int] = {}
    for number in range(many):
        appender.set_next_queue_offset("many", number, number + 1)
        model["many", number] = number + 1
    for action, key, value in actions:
        if action == "set":
            appender.set_next_queue_offset(*key, value)
            model[key] = value
        elif action == "remove":
            appender.remove_queue(*key)
            model.pop(key, None)
        assert appender.next_queue_offset(*key) == model.get(key, 0)
    assert all(appender.next_queue_offset(*key) == value for key, value in model.items())
