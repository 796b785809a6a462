"""What must hold for a directory after a power failure: a quick check of many, and a thorough one
of some."""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy

import rocketstore
from crash.abandoning import abandon
from crash.power_cut import write_image
from crash.power_cut_life import MODES, TOPICS, History, State
from rocketstore import StoredMessage, TagFilter, formats
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.testing import check_invariants
from rocketstore.testing.plain_files import java_hash


class Expectation:
    """One life's records as arrays, so that any prefix of them is compared at once."""

    def __init__(self, history: History) -> None:
        self.history = history
        records = history.records
        self.offsets = numpy.array([m.physical_offset for m in records], numpy.int64)
        self.starts = {0, *self.offsets.tolist()}
        queues: dict[tuple[str, int], list[StoredMessage]] = defaultdict(list)
        keyed: dict[str, list[StoredMessage]] = defaultdict(list)
        for message in records:
            if message.sys_flag & 12 != 4:
                queues[message.topic, message.queue_id].append(message)
            if message.unique_key:
                keyed[message.topic].append(message)
        self.queues = {place: self._units(messages) for place, messages in queues.items()}
        self.keys = {
            topic: (
                [str(message.unique_key) for message in messages],
                numpy.array([message.physical_offset for message in messages], numpy.int64),
            )
            for topic, messages in keyed.items()
        }

    @staticmethod
    def _units(messages: list[StoredMessage]) -> numpy.ndarray[Any, Any]:
        units = numpy.zeros(len(messages), formats.CONSUME_QUEUE_UNIT.dtype)
        for number, message in enumerate(messages):
            assert message.queue_offset == number
            code = java_hash(message.tags) if message.tags else 0
            units[number] = (message.physical_offset, message.store_size, code)
        return units


def judge(state: State, expected: Expectation, mode: str, root: Path, *, closing: bool) -> int:
    """Write the state's image to ``root``, open it for writing, compare; return the log's end.

    Raises ``AssertionError``, or what opening raises.
    """
    shutil.rmtree(root, ignore_errors=True)
    write_image(state.image, str(root))
    check_checkpoint(state, expected)
    store = rocketstore.open(root, "a", config=MODES[mode], start=False)
    try:
        end = check_end(state, store)
        start = check_log(root, expected.history, state.log_start, end)
        check_units(store, expected, start, end)
        check_places(store, expected, start, end)
    finally:
        if closing:
            store.close()
        else:
            abandon(store)
    return end


def check_end(state: State, store: rocketstore.DefaultMessageStore) -> int:
    """No damage is seen, and the log ends where it may."""
    report = store.recovery_report
    assert not report.damaged
    assert not report.gaps
    assert not report.refused
    end = store.max_physical_offset
    assert state.confirmed_end <= end <= state.log_end, (
        f"confirmed {state.confirmed_end}, recovered {end}, written {state.log_end}"
    )
    return end


def check_checkpoint(state: State, expected: Expectation) -> None:
    """RocketMQ must be able to believe the checkpoint."""
    content = state.image.get(formats.CHECKPOINT_FILE)
    if content is None:
        return
    checkpoint = StoreCheckpoint.from_bytes(content)
    assert checkpoint.physic_timestamp <= state.newest_durable
    assert checkpoint.logics_timestamp <= state.newest_durable
    place = checkpoint.logics_physical_offset
    assert place == 0 or place in expected.starts
    assert place == 0 or place < state.durable_end


def check_log(root: Path, history: History, latest_start: int, end: int) -> int:
    """Check that the segments have the written bytes up to ``end`` and zeros after it; return
    where the first one begins, which is no later than ``latest_start``."""
    folder = root / formats.COMMIT_LOG_DIR
    names = sorted(os.listdir(folder)) if end else []
    start = covered = int(names[0]) if names else 0
    assert start <= latest_start
    for name in names:
        content = (folder / name).read_bytes()
        base = int(name)
        assert base == covered or base >= end
        nbytes = min(max(end - base, 0), len(content))
        assert content[:nbytes] == history.log[base : base + nbytes], f"{name} has other bytes"
        assert not content[nbytes:].strip(b"\0"), f"{name} has bytes past the end {end}"
        covered = max(covered, base + nbytes)
    assert covered == end
    return start


def check_units(
    store: rocketstore.DefaultMessageStore, expected: Expectation, start: int, end: int
) -> None:
    """Every queue has exactly the units of its messages that are in the log."""
    present = {}
    for place, units in expected.queues.items():
        first, stop = numpy.searchsorted(units["physical_offset"], (start, end)).tolist()
        wanted = units[first:stop]
        if len(wanted):
            present[place] = stop
        view = store.queue_view(*place)
        assert len(view) == len(wanted), f"{place} has {len(view)} of {len(wanted)} units"
        for name in ("physical_offset", "size", "tags_code"):
            assert (view[name] == wanted[name]).all(), f"{place} has wrong {name}"
    found = {
        (topic, queue_id): count
        for topic in store.topics()
        for queue_id in store.queues(topic)
        if (count := store.max_offset_in_queue(topic, queue_id))
    }
    # A queue without messages that are left may be there with its last offset, or be gone.
    assert {place: count for place, count in found.items() if place in present} == present
    assert start or found.keys() == present.keys()


def check_places(
    store: rocketstore.DefaultMessageStore, expected: Expectation, start: int, end: int
) -> None:
    """The index leads from every unique key to its message, once, and to nothing past ``end``."""
    for topic, (keys, places) in expected.keys.items():
        first, stop = numpy.searchsorted(places, (start, end)).tolist()
        offsets, splits = store.index_offsets(topic, keys[first:stop])
        hits = numpy.diff(splits)
        right = offsets == numpy.repeat(places[first:stop], hits)
        found = numpy.add.reduceat(right, splits[:-1]) if len(hits) and hits.all() else hits
        assert (found == 1).all(), f"keys of {topic} are not found once: {found}"
        assert not len(offsets) or offsets.max() < end


# --- thorough -----------------------------------------------------------------------------------


def judge_thoroughly(state: State, history: History, mode: str, root: Path) -> None:
    """The same by every way there is to read a store."""
    shutil.rmtree(root, ignore_errors=True)
    write_image(state.image, str(root))
    with rocketstore.open(root, "r") as store:
        shown = store.max_physical_offset
    with rocketstore.open(root, "a", config=MODES[mode]) as store:
        end = check_end(state, store)
        assert shown == end
        start = store.min_physical_offset
        assert start <= state.log_start
        kept = history.truncated(end)
        present = [m for m in kept.records if m.physical_offset >= start]
        assert [bytes(m.raw) for m in store.scan()] == [bytes(m.raw) for m in present]
        check_queues(store, kept, start)
        check_keys(store, present)
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    check_invariants(root, acknowledged=present).require()


def check_queues(store: rocketstore.DefaultMessageStore, kept: History, start: int) -> None:
    """Every queue has exactly its messages that are left, with their tags."""
    queues: dict[tuple[str, int], list[StoredMessage]] = {}
    for message in kept.records:
        if message.sys_flag & 12 != 4:
            queues.setdefault((message.topic, message.queue_id), []).append(message)
    for (topic, queue_id), messages in queues.items():
        assert [m.queue_offset for m in messages] == list(range(len(messages)))
        present = [m for m in messages if m.physical_offset >= start]
        if not present:
            continue
        assert store.max_offset_in_queue(topic, queue_id) == len(messages)
        tagged = [m.queue_offset for m in present if m.tags == "TagA"]
        assert store.filter_units(topic, queue_id, "TagA").tolist() == tagged
        first = store.min_offset_in_queue(topic, queue_id)
        assert first == present[0].queue_offset
        found = store.get_message("g", topic, queue_id, first, 32, filter=TagFilter("TagA"))
        assert [m.queue_offset for m in found.messages] == tagged[: len(found.messages)]


def check_keys(store: rocketstore.DefaultMessageStore, present: list[StoredMessage]) -> None:
    """Every key is found, also by its time."""
    for message in present:
        if not message.unique_key:
            continue
        time, place = message.store_timestamp, message.physical_offset
        value = message.unique_key
        found = store.find(topic=message.topic, unique_key=value, begin=time, end=time + 1)
        assert [m.physical_offset for m in found] == [place]
        found = store.find(topic=message.topic, key=message.keys.split()[0])
        assert [m.physical_offset for m in found] == [place]
    shared = Counter(m.topic for m in present if m.unique_key)
    for topic in TOPICS:
        assert len(list(store.find(topic=topic, key="shared"))) == shared[topic]
