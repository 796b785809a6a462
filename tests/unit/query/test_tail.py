"""Following a live directory: every record once, past rolls, deletions, truncations and
half-written ones.

The test writes whenever the follower waits, so nothing here depends on time.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Sql92Filter
from rocketstore.query.tail import PATIENCE, LogTail, start_of_newest

SEGMENT_NBYTES = 4096
OPTIONS = {
    "mapped_file_size_commit_log": SEGMENT_NBYTES,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 20,
    "max_index_num": 60,
}


class EnoughError(Exception):
    """Raised by the script when it has nothing left to do."""


class Script:
    """Takes the place of sleeping: one step a wait, then ``EnoughError``."""

    def __init__(self, *steps: Callable[[], Any]) -> None:
        self.steps = list(steps)

    def __call__(self, seconds: float) -> None:
        if not self.steps:
            raise EnoughError
        self.steps.pop(0)()


def nothing() -> None:
    """A wait in which nothing happens."""


def follow(store: Any, *steps: Callable[[], Any], **options: Any) -> tuple[list[bytes], list[str]]:
    events: list[str] = []
    tail = LogTail(store, on_event=events.append, wait=Script(*steps), **options)
    bodies: list[bytes] = []
    with contextlib.suppress(EnoughError):
        for message in tail.follow(1.0):
            bodies.append(message.body)
    return bodies, events


def write(root: Path, *bodies: bytes, **options: Any) -> None:
    with rocketstore.open(root, "a", **{**OPTIONS, **options}) as store:
        for number, body in enumerate(bodies):
            assert store.put("TopicA", body, number % 2, None, f"k{number}").ok


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "store", b"one", b"two", b"three")
    return tmp_path / "store"


@pytest.fixture
def reader(root: Path) -> Iterator[rocketstore.DefaultMessageStore]:
    with rocketstore.open(root, derive="none") as store:
        yield store


def test_only_what_comes_later_unless_a_start_is_given(root: Path, reader: Any) -> None:
    bodies, events = follow(reader, lambda: write(root, b"four"), nothing)
    assert (bodies, events) == ([b"four"], [])
    assert follow(reader, start=0)[0] == [b"one", b"two", b"three", b"four"]
    with pytest.raises(ValueError, match="the log ends at offset"):
        LogTail(reader, start=10**9)
    with pytest.raises(ValueError, match="no record begins"):
        list(LogTail(reader, start=7).poll())


def test_a_writer_beside_it_and_many_rolls(root: Path, reader: Any) -> None:
    sent = [b"%d " % number * 60 for number in range(120)]
    with rocketstore.open(root, "r+") as writer:

        def put(part: list[bytes]) -> Callable[[], None]:
            return lambda: [writer.put("TopicA", body) for body in part] and None

        steps = [put(sent[at : at + 7]) for at in range(0, len(sent), 7)]
        bodies, events = follow(reader, *steps)
    assert len(list((root / "commitlog").iterdir())) > 5
    assert (bodies, events) == (sent, [])


def test_a_store_open_for_writing_is_followed_too(root: Path) -> None:
    with rocketstore.open(root, "r+") as store:
        bodies, _ = follow(
            store, lambda: store.put("T", b"x"), nothing, lambda: store.put("T", b"y")
        )
    assert bodies == [b"x", b"y"]


def test_deleted_segments_are_reported_and_skipped(root: Path, reader: Any) -> None:
    def fill_and_delete() -> None:
        write(root, *(b"%03d" % number + b"." * 500 for number in range(40)))
        for path in sorted((root / "commitlog").iterdir())[:3]:
            path.unlink()

    bodies, events = follow(reader, fill_and_delete, nothing, nothing)
    (event,) = events
    assert f"to {3 * SEGMENT_NBYTES - 1} were deleted before they were read" in event
    with rocketstore.open(root) as store:
        assert bodies == [message.body for message in store.scan()]
    assert bodies[-1].startswith(b"039")


def test_a_log_that_was_truncated_and_rewritten(root: Path, reader: Any, tmp_path: Path) -> None:
    """What a broker's recovery truncated and wrote again must be delivered, and only that."""
    shorter = tmp_path / "shorter"
    shutil.copytree(root, shorter)
    write(root, b"lost 1", b"lost 2" * 20, b"lost 3")
    write(shorter, b"instead 1 " * 7, b"instead 2 " * 3, b"instead 3 " * 9)

    def replace() -> None:
        for path in sorted(path for path in shorter.rglob("*") if path.is_file()):
            (root / path.relative_to(shorter)).write_bytes(path.read_bytes())

    bodies, events = follow(reader, nothing, replace, nothing, start=0)
    assert bodies[:6] == [b"one", b"two", b"three", b"lost 1", b"lost 2" * 20, b"lost 3"]
    assert bodies[6:] == [b"instead 1 " * 7, b"instead 2 " * 3, b"instead 3 " * 9]
    (event,) = events
    assert "the log was truncated at offset" in event


def test_only_what_a_filter_passes(root: Path, reader: Any) -> None:
    """The position goes on past what does not pass: that is judged once."""
    made = Sql92Filter("KEYS = 'k1' AND KEYS <> 5 OR KEYS = 'k0' AND 1 = 2")
    errs = Sql92Filter("KEYS > 5")
    steps = (lambda: write(root, b"four", b"five"), nothing, nothing)
    assert follow(reader, *steps, select={"filter": made}, start=0)[0] == []
    assert made.errors == 2
    assert follow(reader, nothing, nothing, select={"filter": errs}, start=0)[0] == []
    assert errs.errors == 5
    chosen = {"filter": Sql92Filter("KEYS = 'k1'"), "topics": ["TopicA"]}
    more = (lambda: write(root, *[b"%d" % n for n in range(60)]), nothing)
    assert follow(reader, *more, select=chosen, start=0) == ([b"two", b"five", b"1"], [])


@pytest.mark.parametrize("key", ["k0", "k1", "k2", "k9"])
def test_a_rewritten_log_beside_what_a_filter_passed(
    root: Path, reader: Any, tmp_path: Path, key: str
) -> None:
    """The truncation is found although its place holds no record that passed."""
    shorter = tmp_path / "shorter"
    shutil.copytree(root, shorter)
    write(root, b"lost 1", b"lost 2" * 20, b"lost 3")
    write(shorter, b"instead 1 " * 7, b"instead 2 " * 3, b"instead 3 " * 9)

    def replace() -> None:
        for path in sorted(path for path in shorter.rglob("*") if path.is_file()):
            (root / path.relative_to(shorter)).write_bytes(path.read_bytes())

    chosen = {"filter": Sql92Filter(f"KEYS = '{key}'")}
    bodies, events = follow(reader, nothing, replace, nothing, start=0, select=chosen)
    wanted = {
        "k0": [b"one", b"lost 1", b"instead 1 " * 7],
        "k1": [b"two", b"lost 2" * 20, b"instead 2 " * 3],
        "k2": [b"three", b"lost 3", b"instead 3 " * 9],
    }
    assert bodies == wanted.get(key, [])
    (event,) = events
    assert "the log was truncated at or after offset" in event


def test_a_record_that_is_being_written_is_waited_for(root: Path, reader: Any) -> None:
    """Its bytes come in any order; for a moment the next record is whole and it is not."""
    whole = root.parent / "whole"
    shutil.copytree(root, whole)
    write(whole, b"slowly written", b"after it")
    segment = root / "commitlog" / ("0" * 20)
    content = (whole / "commitlog" / ("0" * 20)).read_bytes()
    torn = content.replace(b"slowly written", b"\x00" * 14)
    bodies, events = follow(
        reader,
        lambda: segment.write_bytes(torn),
        nothing,
        lambda: segment.write_bytes(content),
        nothing,
    )
    assert (bodies, events) == ([b"slowly written", b"after it"], [])


@pytest.mark.parametrize("word", ["fail", "skip", "stop"])
def test_damage_that_stays(root: Path, reader: Any, word: str) -> None:
    whole = root.parent / "whole"
    shutil.copytree(root, whole)
    write(whole, b"to be damaged", b"after it")
    content = (whole / "commitlog" / ("0" * 20)).read_bytes()
    shutil.copytree(whole, root, dirs_exist_ok=True)
    segment = root / "commitlog" / ("0" * 20)
    segment.write_bytes(content.replace(b"to be damaged", b"\xff" * 13))
    tail = LogTail(reader, on_corruption=word, wait=Script(*[nothing] * (2 * PATIENCE + 4)))
    seen: list[bytes] = []

    def run() -> None:
        for message in tail.follow(1.0):
            seen.append(message.body)

    if word == "fail":
        with pytest.raises(rocketstore.CorruptMessageError):
            run()
        assert seen == []
    elif word == "skip":
        with pytest.raises(EnoughError):
            run()
        assert seen == [b"after it"]
    else:
        run()
        assert tail.ended
        assert seen == []


def test_the_directory_goes_away(root: Path, reader: Any) -> None:
    root.rename(root.parent / "elsewhere")
    tail = LogTail(reader, wait=Script(*[nothing] * 100))
    with pytest.raises(FileNotFoundError, match="store"):
        list(tail.follow(1.0))


def test_a_new_store_in_an_empty_directory(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    with rocketstore.open(root) as reader:
        bodies, _ = follow(reader, nothing, lambda: write(root, b"first"), nothing)
    assert bodies == [b"first"]


def test_store_tail(root: Path, reader: Any) -> None:
    bodies = [m.body for m in reader.tail(start=0, timeout_s=0.0, interval_s=0.0)]
    assert bodies == [b"one", b"two", b"three"]
    assert list(reader.tail(start=0, timeout_s=0.0, topics=["Other"])) == []
    with pytest.raises(ValueError, match="must be one of"):
        reader.tail(on_corruption="maybe")
    with pytest.raises(TypeError, match="not str"):
        reader.tail(topics="TopicA")


def test_the_place_of_the_newest(reader: Any) -> None:
    offsets = [message.physical_offset for message in reader.scan()]
    assert [start_of_newest(reader, count) for count in (1, 2, 3, 9)] == [
        offsets[2], offsets[1], offsets[0], 0,
    ]  # fmt: skip
    assert start_of_newest(reader, 1, {"Other"}) == 0


def test_files_that_are_open_need_no_refresh(
    root: Path, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may have 70,000 queues: they are not read again for every new record."""
    refreshed: list[int] = []
    refresh = rocketstore.DefaultMessageStore.refresh

    def counted(self: Any) -> None:
        refreshed.append(self.max_physical_offset)
        refresh(self)

    monkeypatch.setattr(rocketstore.DefaultMessageStore, "refresh", counted)
    with rocketstore.open(root, "r+") as writer:
        steps = [lambda: writer.put("TopicA", b"x") and None] * 20
        bodies, _ = follow(reader, *steps)
        assert len(bodies) == 20
        assert len(refreshed) <= 1
        steps = [lambda: writer.put("TopicA", b"y" * 1500) and None] * 9
        bodies, _ = follow(reader, *steps)
    assert len(bodies) == 9
    assert 1 < len(refreshed) < 20


@pytest.mark.parametrize("select", [None, {"topics": ("T",)}])
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_record_that_is_overwritten_between_look_and_delivery(
    root: Path, reader: Any, select: Any, comes_back: bool
) -> None:
    # It was a ValueError, and ended the watch of a reader whose log was truncated and rewritten.
    tail = LogTail(reader, select=select)
    with rocketstore.open(root, "a", **OPTIONS) as writer:
        place = writer.put("T", b"new").physical_offset
    (segment,) = (root / "commitlog").iterdir()
    whole = segment.read_bytes()
    assert tail.look()

    def overwrite(content: bytes) -> None:
        with open(segment, "r+b") as file:
            file.seek(place)
            file.write(content)

    overwrite(b"\xff" * 16)
    assert list(tail.deliver()) == []
    if comes_back:
        overwrite(whole[place : place + 16])
        assert [message.body for message in tail.poll()] == [b"new"]
        return
    for _ in range(PATIENCE - 1):
        assert list(tail.poll()) == []
    with pytest.raises(rocketstore.CorruptMessageError, match=f"log offset {place}"):
        list(tail.poll())
