"""Both dispatchers on the same logs: equal answers, equal counters, equal bytes."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore.status import KernelStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies
from support.reput_store import MemoryStore, record

BODIES = (NATIVE, REFERENCE)
PHYSICAL_OFFSET_AT = formats.RECORD_HEAD.at("physical_offset")
TOPICS = ("T", "TopicA", "TopicB-long-name-of-a-topic", "Tœ\U0001f600", formats.TOPIC_SCHEDULE)
UNSAFE_TOPICS = ("a/b", "..", "x\ny")
MODERATE = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # fmt: skip

key_text = st.text("ab \u00e9\U0001f600标", max_size=12).filter(bool)
optional_text = st.none() | key_text
hosts = st.sampled_from([("10.0.0.1:1", 0), ("[2001:db8::1]:9", 0x30)])


@st.composite
def record_fields(draw: st.DrawFn) -> dict[str, Any]:
    """A record; its queue offset is relative to what its queue expects."""
    host, host_flags = draw(hosts)
    fields: dict[str, Any] = {
        "topic": draw(st.sampled_from(TOPICS[:1] * 12 + TOPICS * 2 + UNSAFE_TOPICS)),
        "queue_id": draw(st.sampled_from([0, 0, 0, 1, 2])),
        "queue_offset": draw(st.sampled_from([0] * 9 + [-1, -2, 1, 3, "zero"])),
        "body": draw(st.binary(max_size=20)),
        "sys_flag": host_flags | draw(st.sampled_from([0, 0, 0, 4, 8, 12, 0x80])),
        "store_timestamp": draw(st.sampled_from([0, -5, 1_700_000_000_000, 2**62])),
        "host": host,
        "version": draw(st.integers(1, 2)),
    }
    if draw(st.integers(0, 9)) == 0:
        # Zeros at the end were lost with their page: that is damage, where dispatch stops.
        lost = bytes(formats.LOST_TAIL_NBYTES)
        binary = st.binary(max_size=40).filter(lambda text: not text.endswith(lost))
        fields["properties"] = draw(binary).replace(b"\x7f", b"KEYS\x01")
    else:
        for name in ("unique_key", "keys", "tags"):
            fields[name] = draw(optional_text)
        fields["delay"] = draw(st.sampled_from([None, "1", "2", "3", "-1", "abc"]))
    fields["ghost"] = draw(st.integers(0, 15)) == 0
    return fields


def encode(scripts: list[dict[str, Any]], base_offset: int) -> tuple[bytes, list[int]]:
    """The log of the scripts, and where its records begin."""
    log, starts = bytearray(), []
    following: dict[tuple[str, int], int] = {}
    for script in scripts:
        fields = dict(script)
        ghost, shift = fields.pop("ghost"), fields.pop("queue_offset")
        queue = (fields["topic"], fields["queue_id"])
        expected = following.get(queue, 0)
        offset = 0 if shift == "zero" else max(0, expected + shift)
        data = bytearray(record(REFERENCE, base_offset + len(log), queue_offset=offset, **fields))
        if ghost:
            struct.pack_into(">q", data, PHYSICAL_OFFSET_AT, max(0, base_offset + len(log) - 7))
        elif fields["sys_flag"] & formats.SYS_FLAG_TRANSACTION_PREPARED == 0:
            following[queue] = max(expected, offset + 1)
        starts.append(len(log))
        log += data
    return bytes(log), starts


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int, list[int]]:
    base_offset = draw(st.sampled_from([0, 65536, 2**40]))
    least = draw(st.sampled_from([0, 1, 8, 15]))
    scripts = draw(st.lists(record_fields(), min_size=least, max_size=25))
    log, starts = encode(scripts, base_offset)
    return log, base_offset, starts


options = st.fixed_dictionaries(
    {
        "units_per_file": st.integers(1, 6),
        "slots": st.sampled_from([1, 2, 7, 50]),
        "entries": st.sampled_from([2, 3, 10, 200, 3000]),
        "index_enable": st.sampled_from([True, True, True, False]),
        "index_tags": st.booleans(),
        "delay_ms": st.sampled_from([(), (1000,), (1000, 5000)]),
    }
)


def run(
    kernels: Bodies, log: bytes, base_offset: int, max_count: int, **chosen: Any
) -> MemoryStore:
    store = MemoryStore(kernels, **chosen)
    store.dispatch(log, base_offset, max_count=max_count)
    return store


@MODERATE
@given(logs(), options, st.sampled_from([1, 2, 7, 4096]))
def test_both_bodies_leave_the_same(
    made: tuple[bytes, int, list[int]], chosen: dict[str, Any], max_count: int
) -> None:
    log, base_offset, starts = made
    native, reference = (
        run(kernels, log, base_offset, max_count, **chosen).state() for kernels in BODIES
    )
    assert native == reference
    assert native["position_offset"] == base_offset + len(log)
    assert (
        native["dispatched_count"]
        == len(starts) - native["skipped_ghosts"] - native["skipped_topics"]
    )


@MODERATE
@given(logs(), options, st.data())
def test_both_bodies_meet_damage_alike(
    made: tuple[bytes, int, list[int]], chosen: dict[str, Any], data: st.DataObject
) -> None:
    log, base_offset, _ = made
    damaged = bytearray(log)
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            at = data.draw(st.integers(0, len(damaged) - 1))
            damaged[at] ^= data.draw(st.integers(1, 255))
    damaged += data.draw(st.sampled_from([b"", bytes(12), b"\xff" * 9]))
    stop = data.draw(st.integers(0, len(damaged)))
    states = []
    for kernels in BODIES:
        store = MemoryStore(kernels, **chosen)
        states.append((drive(store, damaged, stop, base_offset), store.state()))
    assert states[0] == states[1]


def drive(store: MemoryStore, log: bytearray, stop: int, base_offset: int) -> list[Any]:
    """Serve requests without filling gaps, which a flipped bit makes as long as it likes."""
    answers = []
    position = 0
    for _ in range(60):
        position, status = store.dispatcher.dispatch(
            log, position, stop, base_offset, base_offset + len(log)
        )
        answers.append((position, status, store.dispatcher.stalled))
        if store.dispatcher.stalled is not None:
            topic, queue_id, queue_offset = store.dispatcher.stalled
            file = store.queue_files.setdefault((topic, queue_id, queue_offset), bytearray(40))
            if queue_offset < 2**58:
                store.dispatcher.set_queue(topic, queue_id, file, queue_offset, queue_offset, -1)
        elif status == KernelStatus.NEED_INDEX and len(store.index_files) < 40:
            store.add_index_file()
    return answers


@MODERATE
@given(logs(), options)
def test_one_by_one_equals_all_at_once(
    made: tuple[bytes, int, list[int]], chosen: dict[str, Any]
) -> None:
    log, base_offset, _ = made
    single, batched = (run(NATIVE, log, base_offset, n, **chosen).state() for n in (1, 4096))
    for state in (single, batched):
        del state["statuses"]
        del state["stalled"]
    assert single == batched


@MODERATE
@given(logs(), options, st.integers(0, 24))
def test_dispatching_again_changes_nothing(
    made: tuple[bytes, int, list[int]], chosen: dict[str, Any], record_number: int
) -> None:
    log, base_offset, starts = made
    start = starts[min(record_number, len(starts) - 1)] if starts else 0
    states = []
    for kernels in BODIES:
        store = run(kernels, log, base_offset, 4096, **chosen)
        before = store.state()
        store.dispatch(log, base_offset, position=start)
        after = store.state()
        assert after["queue_files"] == before["queue_files"]
        assert after["index_files"] == before["index_files"]
        states.append(after)
    assert states[0] == states[1]


@MODERATE
@given(logs(), options, st.integers(0, 24))
def test_the_index_alone_is_rebuilt_from_any_record(
    made: tuple[bytes, int, list[int]], chosen: dict[str, Any], record_number: int
) -> None:
    log, base_offset, starts = made
    chosen = {**chosen, "index_enable": True}
    start = base_offset + (starts[min(record_number, len(starts) - 1)] if starts else 0)
    for kernels in BODIES:
        store = run(kernels, log, base_offset, 4096, **chosen)
        before = store.state()
        expected = [entry for entry in store.entries_put() if entry[1] >= start]
        store.index_files.clear()
        store.dispatcher.set_index(None, 0, 0, start)
        store.dispatch(log, base_offset)
        assert store.state()["queue_files"] == before["queue_files"]
        found = [(entry[0], entry[1]) for entry in store.entries_put()]
        assert found == [(entry[0], entry[1]) for entry in expected]
