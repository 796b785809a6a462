"""Ordinary calls are answered by one kernel call, and as the general way answers them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import DefaultMessageStore, Message, TagFilter

COUNT = 300
#: A stock producer's properties.
PROPERTIES = {"WAIT": "true"}


@pytest.fixture(params=["r", "r+"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DefaultMessageStore]:
    """Messages of 4 queues in segments of 16 KiB, with keys; opened in both modes."""
    path = tmp_path / "s"
    options: dict[str, Any] = {"mapped_file_size_commit_log": 16 * 1024}
    with rocketstore.open(path, "x", **options) as writer:
        messages = [
            Message(
                "T", b"x" * (n % 200), queue_id=n % 4,
                properties={"UNIQ_KEY": f"{n:032X}", "KEYS": f"k{n % 50}",
                            "TAGS": "Tag" + "ABC"[n % 3], **PROPERTIES},
                born_timestamp=1_700_000_000_000 + n, born_host="10.1.2.3:50123",
            )
            for n in range(COUNT)
        ]  # fmt: skip
        assert writer.put_many(messages).ok
        assert writer.wait_dispatched()
    with rocketstore.open(path, request.param, **options) as opened:
        yield opened


def pull(store: DefaultMessageStore) -> Any:
    """Answers of pulls from every offset of a queue, the messages as what they hold."""
    answers = [
        store.get_message("g", "T", 1, offset, count)
        for count in (1, 7, 32)
        for offset in range(75)
    ]
    return [(*one[:4], [m.raw.tobytes() for m in one.messages]) for one in answers]


def query(store: DefaultMessageStore) -> Any:
    answers = [
        store.query_message("T", f"k{n}", count, *times)
        for n in range(55)
        for count in (1, 3, 64)
        for times in ((), (0, 1), (1_600_000_000_000,))
    ]
    return [([m.raw.tobytes() for m in one.messages], *one[1:]) for one in answers]


def look(store: DefaultMessageStore) -> Any:
    end = store.max_physical_offset
    return [store.look_message_by_offset(offset) for offset in range(-3, end + 9)]


def look_by_id(store: DefaultMessageStore) -> Any:
    ids = [message.msg_id for message in store.scan()]
    ids += [one.lower() for one in ids] + [one[:-2] + "FF" for one in ids] + ["0" * 32]
    return [found and found.raw.tobytes() for found in map(store.look_message_by_id, ids)]


def find(store: DefaultMessageStore) -> Any:
    wanted = [{"key": f"k{n}"} for n in range(55)] + [{"key": "k1 k2"}, {"key": ""}]
    wanted += [{"unique_key": f"{n:032X}"} for n in range(-1, COUNT + 1)]
    return [
        [message.raw.tobytes() for message in store.find(topic=topic, **one)]
        for one in wanted
        for topic in ("T", "U")
    ]


def pull_tags(store: DefaultMessageStore) -> Any:
    answers = [
        store.get_message("g", "T", 1, offset, count, filter=TagFilter(tags, exact=exact))
        for count in (1, 7, 32)
        for offset in range(75)
        for tags in ("TagA", "TagB || TagC", "none", "*")
        for exact in (False, True)
    ]
    return [(*one[:4], [m.raw.tobytes() for m in one.messages]) for one in answers]


def by_time(store: DefaultMessageStore) -> Any:
    times = sorted({message.store_timestamp for message in store.scan()})
    return [
        store.get_offset_in_queue_by_time("T", queue, time, boundary=boundary)
        for time in range(times[0] - 2, times[-1] + 3)
        for queue in range(5)
        for boundary in ("lower", "upper", None)
    ]


ASK = (pull, pull_tags, query, find, look, look_by_id, by_time)


@pytest.mark.parametrize("ask", ASK)
def test_both_ways_give_the_same_answers(
    store: DefaultMessageStore,
    ask: Callable[[DefaultMessageStore], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask(store)  # now every segment and file was read
    at_once = ask(store)
    for name in ("get_message", "query_message", "look_message_by_offset", "look_message_by_id",
                 "find"):  # fmt: skip
        general = getattr(DefaultMessageStore, name).__wrapped__
        monkeypatch.setattr(store, name, functools.partial(general, store))
    monkeypatch.setattr(store.reader, "narrow", lambda queue, low, high, *_: (low, high))
    assert ask(store) == at_once


def test_the_general_way_is_not_taken(
    store: DefaultMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls as producers' messages bring them, the second time."""
    first = store.get_message("g", "T", 1, 0).messages[0]
    offset = first.physical_offset

    def calls() -> tuple[Any, ...]:
        return (
            [m.queue_offset for m in store.get_message("g", "T", 1, 0, 4).messages],
            [m.keys for m in store.query_message("T", "k1", 2).messages],
            store.look_message_by_offset(offset),
            store.look_message_by_id(first.msg_id),
            [m.keys for m in store.find(topic="T", key="k1")],
            [
                m.tags
                for m in store.get_message("g", "T", 1, 0, 4, filter=TagFilter("TagB")).messages
            ],
            store.get_offset_in_queue_by_time("T", 1, first.store_timestamp, boundary="lower"),
        )

    before = calls()

    def refuse(*_: Any) -> Any:
        raise AssertionError("the general way was taken")

    monkeypatch.setattr(store.reader, "get_message", refuse)
    monkeypatch.setattr(store.reader.index, "query_offset", refuse)
    monkeypatch.setattr(store.reader, "find_by_key", refuse)
    monkeypatch.setattr(store.reader, "store_timestamp_of", refuse)
    monkeypatch.setattr(store.reader.log, "look_message_by_offset", refuse)
    assert calls() == before
