"""Splits give what the whole log gives, wherever they begin, intact or damaged."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptMessageError, MappedFileError, formats, kernels
from rocketstore.sources import LogFiles, Split, list_log, plan_splits
from rocketstore.sources import window as window_module
from rocketstore.sources.walk import log_end, walk
from rocketstore.status import RecordFlags, RecordStatus
from support.split_walks import Reading, Records, read_log, split_at

SEGMENT = 16 * 1024
GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


def fill(root: Path, *, count: int = 120, segment: int = SEGMENT, **options: Any) -> Path:
    """A store of ``count`` messages of mixed sizes, in several segments."""
    chance = random.Random(5)
    with rocketstore.open(root, "x", mapped_file_size_commit_log=segment, **options) as store:
        for number in range(count):
            body = chance.randbytes(chance.choice((0, 1, 40, 300, 700, 3000)))
            host = "[2001:db8::1]:1234" if number % 5 == 0 else None
            result = store.put(
                f"Topic{number % 3}",
                body,
                number % 4,
                f"Tag{number % 2}",
                f"key{number}",
                born_host=host,
            )
            assert result.ok
    return root


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undamaged store; only to be read."""
    return fill(tmp_path_factory.mktemp("whole") / "store")


def oracle(log: LogFiles) -> tuple[list[int], list[int]]:
    """Offsets of the records, and of damage, computed from whole files one by one."""
    offsets, damage = [], []
    begun = [s for s in log.segments if Path(s.uri).read_bytes()[:8].strip(b"\0")]
    for segment in begun:
        content = Path(segment.uri).read_bytes()
        base, end = segment.base_offset, segment.base_offset + segment.segment_size
        position = 0
        while position < segment.segment_size:
            status, size = kernels.message.check_record(
                content, position, len(content), base, end, RecordFlags.CHECK_BODY_CRC
            )
            if status in GOOD:
                offsets.append(base + position)
            if size and status != RecordStatus.BLANK:
                position += size
                continue
            if status == RecordStatus.BLANK:
                break
            next_good = kernels.message.find_record(content, position + 1, len(content), base, end)
            if next_good >= 0 or segment is not begun[-1]:
                damage.append(base + position)
            if next_good < 0:
                break
            position = next_good
    return offsets, damage


def random_borders(log: LogFiles, seed: int, count: int = 12) -> list[int]:
    """Places to split at: anywhere, and at and beside records' first bytes."""
    chance = random.Random(seed)
    known = oracle(log)
    beside = [place + shift for places in known for place in places for shift in (-1, 0, 1)]
    return sorted(
        {chance.randrange(log.min_offset, log.end_offset) for _ in range(count)}
        | set(chance.sample(beside, min(count, len(beside))))
    )


# --- whole logs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [100, 1000, 5000, 1 << 20])
def test_any_window_gives_what_scan_gives(
    whole: Path, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "WINDOW_NBYTES", window)
    with rocketstore.open(whole) as store:
        expected = [(m.physical_offset, bytes(m.raw)) for m in store.scan()]
    for split_bytes in (1 << 30, 5000, 777):
        assert read_log(list_log(whole), split_bytes=split_bytes).records == expected


@pytest.mark.parametrize("seed", range(20))
def test_cuts_anywhere_lose_and_repeat_nothing(whole: Path, seed: int) -> None:
    log = list_log(whole)
    splits = split_at(plan_splits(log), random_borders(log, seed))
    assert len(splits) > 12
    reading = Reading(splits)
    assert reading.offsets == oracle(log)[0]
    assert reading.damage == []


def test_each_byte_of_a_segment_may_be_a_border(whole: Path) -> None:
    log = list_log(whole)
    split = plan_splits(log)[0]
    first = oracle(replace(log, segments=log.segments[:1]))[0]
    for at in range(1, 2000):
        left, right = split_at([replace(split, tail=False)], [at])
        assert Reading([left]).offsets == [offset for offset in first if offset < at]
        if at % 7 == 0:
            assert Reading([right]).offsets == [offset for offset in first if offset >= at]


def test_a_full_pass_is_drained_and_called_again(whole: Path) -> None:
    log = list_log(whole)
    once = read_log(log)
    assert read_log(log, room=1).records == once.records
    assert read_log(log, room=7, split_bytes=3000).records == once.records


def test_a_given_stop_bounds_what_is_read(whole: Path) -> None:
    log = list_log(whole)
    offsets, _ = oracle(log)
    for start, stop in ((offsets[3], offsets[40]), (offsets[3] + 1, offsets[40] + 1), (0, 1)):
        expected = [offset for offset in offsets if start <= offset < stop]
        assert read_log(log, start=start, stop=stop, split_bytes=4000).offsets == expected


def test_a_split_is_small_when_pickled(whole: Path) -> None:
    split = replace(plan_splits(list_log(whole))[0], uri="")
    assert len(pickle.dumps(tuple(getattr(split, n) for n in split.__slots__))) < 200
    assert pickle.loads(pickle.dumps(split)) == split


def test_records_longer_than_the_window_are_read_whole(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=8 << 20) as store:
        for number in range(12):
            store.put("Long", bytes([number]) * (700_000 if number % 3 else 10))
        expected = [(m.physical_offset, bytes(m.raw)) for m in store.scan()]
    log = list_log(root)
    for split_bytes in (8 << 20, 1 << 20, 300_000):
        for check_crc in (True, False):
            reading = read_log(log, split_bytes=split_bytes, check_crc=check_crc)
            assert reading.records == expected


def test_a_record_inside_a_body_is_not_taken_for_one(tmp_path: Path) -> None:
    """A record inside a body is skipped: it has another offset."""
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=SEGMENT) as store:
        store.put("T", b"first")
        raw = bytes(next(iter(store.scan())).raw)
        for _ in range(10):
            store.put("T", raw * 5)
        expected = [m.physical_offset for m in store.scan()]
    for split_bytes in (64, 300, 1000):
        assert read_log(list_log(root), split_bytes=split_bytes).offsets == expected


# --- damaged logs -------------------------------------------------------------------------------


def flip(content: bytearray, at: int) -> None:
    """Turn one bit."""
    content[at] ^= 0x10


def wipe(content: bytearray, at: int) -> None:
    """Lose a sector."""
    content[at : at + 512] = bytes(len(content[at : at + 512]))


def lose(content: bytearray, at: int) -> None:
    """Lose a long stretch."""
    content[at : at + 5000] = b"\xee" * len(content[at : at + 5000])


def shorten(content: bytearray, at: int) -> None:
    """Lose the file's end."""
    del content[at:]


@pytest.mark.parametrize("harm", [flip, wipe, lose, shorten])
@pytest.mark.parametrize("seed", range(12))
def test_damage_is_skipped_and_reported_once_wherever_the_log_is_split(
    tmp_path: Path, whole: Path, harm: Callable[[bytearray, int], None], seed: int
) -> None:
    chance = random.Random(seed)
    root = damaged_copy(whole, tmp_path / "store", harm, chance)
    log = list_log(root)
    offsets, damage = oracle(log)
    for number in range(4):
        window = chance.choice((200, 3000, 1 << 20))
        borders = random_borders(log, 100 * seed + number) if number else []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(window_module, "WINDOW_NBYTES", window)
            reading = Reading(split_at(plan_splits(log), borders), on_corruption="skip")
        assert reading.offsets == offsets
        assert [first for first, _, _ in reading.damage] == damage
        for first, following, _ in reading.damage:
            same = [o for o in offsets if o > first and o // SEGMENT == first // SEGMENT]
            assert following == (same[0] if same else None)
    if damage:
        with rocketstore.open(root) as store:
            assert [m.physical_offset for m in store.scan(on_corruption="skip")] == offsets


def damaged_copy(
    whole: Path, root: Path, harm: Callable[[bytearray, int], None], chance: random.Random
) -> Path:
    """Copy a log without what shows how far it was written, and damage its second segment."""
    (root / "commitlog").mkdir(parents=True)
    names = sorted(path.name for path in (whole / "commitlog").iterdir())
    for number, name in enumerate(names):
        content = bytearray((whole / "commitlog" / name).read_bytes())
        if number == 1:
            for _ in range(chance.randrange(1, 4)):
                harm(content, chance.randrange(len(content)))
        (root / "commitlog" / name).write_bytes(content)
    return root


def test_a_record_that_begins_where_little_is_in_memory_is_found(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search once skipped its own start when less than a head was in memory."""
    monkeypatch.setattr(window_module, "_BEHIND_NBYTES", 10)
    split = plan_splits(list_log(whole))[1]
    for offset in oracle(list_log(whole))[0]:
        position = offset - split.base_offset
        if not 0 < position < split.file_size - 1:
            continue
        for check_crc in (True, False):
            short = replace(split, start=position - 1, stop=position + 1, aligned=False)
            assert Reading([short], check_crc=check_crc).offsets == [offset]


def harmed(whole: Path, tmp_path: Path, position: int) -> tuple[LogFiles, int]:
    """A copy of the log whose second segment has a flipped bit; the damaged record's offset."""
    root = damaged_copy(whole, tmp_path / "store", lambda c, _: None, random.Random(0))
    path = root / "commitlog" / formats.offset_to_file_name(SEGMENT)
    content = bytearray(path.read_bytes())
    flip(content, position)
    path.write_bytes(content)
    log = list_log(root)
    offset = max(o for o in oracle(list_log(whole))[0] if o <= SEGMENT + position)
    assert offset in oracle(log)[1]
    return log, offset


def test_damage_fails_with_file_and_position(whole: Path, tmp_path: Path) -> None:
    log, offset = harmed(whole, tmp_path, 5000)
    before = [o for o in oracle(log)[0] if o < offset]
    taken = Records()
    split = plan_splits(log)[1]
    with pytest.raises(CorruptMessageError) as caught:
        list(walk(split, taken))
    assert (caught.value.path, caught.value.position) == (split.uri, offset - SEGMENT)
    assert f"log offset {offset}" in caught.value.reason
    assert [o for o, _ in taken.taken] == [o for o in before if o >= SEGMENT]


def test_stop_ends_a_split_at_its_damage(whole: Path, tmp_path: Path) -> None:
    log, offset = harmed(whole, tmp_path, 5000)
    reading = Reading(plan_splits(log)[:2], on_corruption="stop")
    assert reading.offsets == [o for o in oracle(log)[0] if o < offset]
    assert [first for first, _, _ in reading.damage] == [offset]


def test_damage_at_a_border_belongs_to_the_split_before(whole: Path, tmp_path: Path) -> None:
    log, offset = harmed(whole, tmp_path, 5000)
    splits = split_at(plan_splits(log)[1:2], [offset])
    left, right = Reading(splits[:1], on_corruption="skip"), Reading(splits[1:])
    assert [first for first, _, _ in left.damage] == [offset]
    assert right.damage == []
    assert left.offsets + right.offsets == [
        o for o in oracle(log)[0] if splits[0].base_offset <= o < splits[0].base_offset + SEGMENT
    ]


def test_an_aligned_start_shows_the_damage_that_stands_there(whole: Path, tmp_path: Path) -> None:
    log, offset = harmed(whole, tmp_path, 5000)
    for aligned, expected in ((False, []), (True, [offset])):
        reading = read_log(log, start=offset, aligned_start=aligned, on_corruption="skip")
        assert [first for first, _, _ in reading.damage] == expected


def test_without_crc_a_body_is_not_looked_at(whole: Path, tmp_path: Path) -> None:
    log = list_log(whole)
    with rocketstore.open(whole) as store:
        long = next(m for m in store.scan(start=SEGMENT) if len(m.body) == 3000)
    position = bytes(Path(log.segments[1].uri).read_bytes()).index(long.body) + 1500
    log, offset = harmed(whole, tmp_path, position)
    expected = oracle(list_log(whole))[0]
    assert offset in expected
    for seed in range(5):
        reading = Reading(
            split_at(plan_splits(log), [offset, *random_borders(log, seed)]), check_crc=False
        )
        assert reading.offsets == expected
    assert log_end(log) == log_end(list_log(whole))


def test_an_unknown_word_for_corruption_is_refused(whole: Path) -> None:
    split = plan_splits(list_log(whole))[0]
    with pytest.raises(ValueError, match="'ignore'"):
        walk(split, Records(), on_corruption="ignore")


# --- the log's end ------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [1, 7, 8, 60, 200])
def test_a_torn_record_at_the_end_is_no_damage(whole: Path, tmp_path: Path, nbytes: int) -> None:
    root = damaged_copy(whole, tmp_path / "store", lambda c, _: None, random.Random(0))
    log = list_log(root)
    offsets, _ = oracle(log)
    end = log_end(log)
    path = Path(log.segments[end // SEGMENT].uri)
    content = bytearray(path.read_bytes())
    last = offsets[-1] % SEGMENT
    content[last + nbytes :] = bytes(len(content) - last - nbytes)
    path.write_bytes(content)
    reading = read_log(log, split_bytes=2000)
    assert reading.offsets == offsets[:-1]
    assert reading.damage == []
    assert log_end(log) == offsets[-1]


def test_the_end_is_found_from_anywhere(whole: Path) -> None:
    log = list_log(whole)
    with rocketstore.open(whole) as store:
        end = store.max_physical_offset
    offsets, _ = oracle(log)
    for start in (None, 0, offsets[0], offsets[50], offsets[-1], end):
        assert log_end(log, start=start) == end


def test_segments_that_wait_for_their_first_record_do_not_matter(
    whole: Path, tmp_path: Path
) -> None:
    root = damaged_copy(whole, tmp_path / "store", lambda c, _: None, random.Random(0))
    log = list_log(root)
    expected, end = read_log(log).offsets, log_end(log)
    for nbytes in (0, SEGMENT):
        name = formats.offset_to_file_name(log.end_offset)
        (root / "commitlog" / name).write_bytes(bytes(nbytes))
        longer = list_log(root)
        assert len(longer.segments) == len(log.segments) + (nbytes > 0)
        assert (read_log(longer).offsets, log_end(longer)) == (expected, end)


def test_the_end_moves_as_records_are_put(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=4096) as store:
        end = log_end(list_log(root))
        assert end == 0
        seen: list[int] = []
        expected: list[int] = []
        for number in range(60):
            expected.append(store.put("T", bytes(number * 7)).physical_offset)
            log = list_log(root)
            following = log_end(log, start=end)
            assert following == store.max_physical_offset
            seen += read_log(log, start=end, stop=following, aligned_start=True).offsets
            end = following
        assert seen == expected


@pytest.mark.parametrize("harm", ["its magic", "its head is zeros"])
def test_damage_of_a_long_record_is_not_the_end(harm: str, tmp_path: Path) -> None:
    """The search for a log's end looked for good records only within 1 MiB after damage, and a
    record may be longer. A stream waited at the damage with any option for corruption, until the
    file was full.
    """
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=16 << 20) as store:
        offsets = [store.put("T", b"long" * 700_000).physical_offset for _ in range(3)]
        end = store.max_physical_offset
    (root / formats.STATE_FILE).unlink()  # its offsets would show the end, too
    with (root / "commitlog" / formats.offset_to_file_name(0)).open("r+b") as file:
        file.seek(offsets[1] + (4 if harm == "its magic" else 0))
        file.write(b"xxxx" if harm == "its magic" else bytes(4096))
    log = list_log(root)
    for start in (None, 0, offsets[1]):
        assert log_end(log, start=start) == end
    reading = read_log(log, stop=end, on_corruption="skip")
    assert reading.offsets == [offsets[0], offsets[2]]
    assert [(first, next_good) for first, next_good, _ in reading.damage] == [tuple(offsets[1:])]


# --- files that go ------------------------------------------------------------------------------


def test_a_file_that_was_shortened_is_named(whole: Path, tmp_path: Path) -> None:
    root = damaged_copy(whole, tmp_path / "store", lambda c, _: None, random.Random(0))
    splits = plan_splits(list_log(root))
    with open(splits[1].uri, "r+b") as file:
        file.truncate(3000)
    with pytest.raises(MappedFileError, match="was truncated") as caught:
        Reading(splits[1:2])
    assert splits[1].uri in str(caught.value)


def test_a_file_that_was_deleted_is_named(whole: Path, tmp_path: Path) -> None:
    root = damaged_copy(whole, tmp_path / "store", lambda c, _: None, random.Random(0))
    log = list_log(root)
    splits = plan_splits(log)
    for split in (splits[1], splits[-1]):
        Path(split.uri).unlink()
        with pytest.raises(MappedFileError, match="does not exist") as caught:
            Reading([split])
        assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(MappedFileError, match="does not exist"):
        log_end(log)


def test_an_empty_split_gives_nothing(whole: Path) -> None:
    split = plan_splits(list_log(whole))[0]
    assert Reading([replace(split, start=10, stop=10)]).records == []
    assert isinstance(split, Split)
