"""Ordinary calls are answered by one kernel call, and as the general way answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import DefaultMessageStore, Message

COUNT = 300
#: A stock producer's properties.
PROPERTIES = {"WAIT": "true", "TAGS": "TagA"}


@pytest.fixture(params=["r", "r+"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DefaultMessageStore]:
    """Messages of 4 queues in segments of 16 KiB, with keys; opened in both modes."""
    path = tmp_path / "s"
    options: dict[str, Any] = {"mapped_file_size_commit_log": 16 * 1024}
    with rocketstore.open(path, "x", **options) as writer:
        messages = [
            Message(
                "T", b"x" * (n % 200), queue_id=n % 4,
                properties={"UNIQ_KEY": f"{n:032X}", "KEYS": f"k{n % 50}", **PROPERTIES},
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


ASK = (pull, query, look)


@pytest.mark.parametrize("ask", ASK)
def test_both_ways_give_the_same_answers(
    store: DefaultMessageStore, ask: Callable[[DefaultMessageStore], Any]
) -> None:
    ask(store)  # now every segment and file was read
    at_once = ask(store)
    windows = store.reader.log.windows

    class Closed:
        """Windows that answer nothing."""

        def __getattr__(self, name: str) -> Any:
            if name in ("get_message", "query_message", "record", "get"):
                return lambda *_: None
            return getattr(windows, name)

    store.reader.log.windows = Closed()  # type: ignore[assignment]
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
        )

    before = calls()

    def refuse(*_: Any) -> Any:
        raise AssertionError("the general way was taken")

    monkeypatch.setattr(store.reader, "get_message", refuse)
    monkeypatch.setattr(store.reader.index, "query_offset", refuse)
    monkeypatch.setattr(store.reader.log, "look_message_by_offset", refuse)
    assert calls() == before
