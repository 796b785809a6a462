"""``trace``: histories of golden stores, by key, by offset, by index and from the bare log."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore.looking.search import grep
from rocketstore.looking.timeline import EventKind, Timeline, trace
from support.looked_stores import make_store, plain_records


def shape(timeline: Timeline) -> list[tuple[str, int]]:
    return [(event.kind.value, event.offset) for event in timeline.events]


HISTORIES = {
    "engine/transaction-5.3.3": {
        "half commit": 7, "half rollback": 7, "half check commit": 5, "half check check commit": 5,
        "half check check rollback": 5, "half check check check": 5,
        "half check check check check check copy": 5, "put": 1,
    },
    "engine/retry-5.3.3": {
        "put": 13, "put retry due retry": 8, "put dead": 6, "put retry due": 5, "put retry": 5,
    },
    "engine/delay-5.3.3": {"delay": 23, "delay due": 15, "put": 2},
    "engine/timer-5.3.3": {"delay": 26, "delay due": 12, "put": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_histories(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    seen: collections.Counter[str] = collections.Counter()
    known: dict[str, Timeline] = {}
    for message, _ in grep(root, raw=True):
        key = message.unique_key
        if key and key not in known and len(known) < 40:
            known[key] = trace(root, key)
            assert known[key].messages == [key]
            seen[" ".join(event.kind.value for event in known[key].events)] += 1
    assert seen == HISTORIES[name]
    for key, timeline in list(known.items())[::8]:
        assert shape(trace(root / "commitlog", key)) == shape(timeline)
        for event in timeline.events[:2]:
            if event.kind != EventKind.ROLLBACK:
                assert shape(trace(root, event.offset)) == shape(timeline)


def test_groups_and_details(tmp_path: Path) -> None:
    root = unpack("engine/retry-5.3.3", tmp_path)
    events = [
        event
        for message, _ in grep(root, raw=True, limit=60)
        if message.unique_key
        for event in trace(root, message.unique_key).events
    ]
    dead = next(event for event in events if event.kind == EventKind.DEAD)
    assert dead.topic == f"%DLQ%{dead.group}"
    retry = next(event for event in events if event.kind == EventKind.RETRY)
    assert f"for %RETRY%{retry.group}" in retry.detail
    assert "due 17" in retry.detail


def test_keys_that_several_messages_have(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    expected = [one.offset for one in plain_records(root) if one.properties.get("KEYS") == "k7"]
    for place in (root, root / "commitlog"):
        timeline = trace(place, "k7")
        assert [event.offset for event in timeline.events] == expected
        assert len(timeline.messages) == len(expected)
    assert trace(root, "k7").whole_log is False
    for path in (root / "index").iterdir():
        path.unlink()
    assert [event.offset for event in trace(root, "k7").events] == expected


def test_a_message_without_a_unique_key(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x") as store:
        first = store.put("T", b"same", keys="17", unique_key=None, born_timestamp=5)
        store.put("T", b"other", keys="17", unique_key=None, born_timestamp=5)
        again = store.put("T", b"same", keys="17", unique_key=None, born_timestamp=5)
    timeline = trace(root, again.physical_offset)
    assert shape(timeline) == [("put", first.physical_offset), ("copy", again.physical_offset)]
    assert timeline.messages == [f"@{first.physical_offset}"]
    assert len(trace(root, "17").events) == 3
    assert shape(trace(root, first.msg_id)) == shape(timeline)


def test_nothing(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 5)
    for asked in ("absent", "0" * 32, 3, 10**15, "-1"):
        assert trace(root, asked).events == []
    with pytest.raises(FileNotFoundError):
        trace(tmp_path / "nowhere", "k")


def test_damage_is_listed(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    second = list(plain_records(root))[1]
    content[second.offset + 4 : second.offset + 8] = bytes(4)
    path.write_bytes(content)
    assert trace(root / "commitlog", "k7").damaged
