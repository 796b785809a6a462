"""Segments whose files bear wrong names: complete records, none at its own offset."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from corruption import crafted
from corruption.crafted import SEGMENT, Crafted, snapshot
from golden import golden_stores
from rocketstore import CorruptionError, formats
from rocketstore.errors import RepairRefusedError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# A restore script numbers the segments wrongly, a person renames one: mode "r" showed an empty
# store and said nothing, opening for writing filled the files with zeros and kept no copy.


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores of several segments and of one, and one of RocketMQ."""
    folder = tmp_path_factory.mktemp("template")
    crafted.build(folder / "several")
    crafted.build(folder / "one", count=20, mapped_file_size_commit_log=1 << 20)
    crafted.build(folder / "single", count=1)
    golden_stores.unpack("plain-5.3.3", folder / "golden")
    return {
        "several": folder / "several",
        "one": folder / "one",
        "single": folder / "single",
        "golden": next((folder / "golden").rglob("commitlog")).parent,
    }


def rename(store: Crafted, number: int, start: int) -> Path:
    path = store.segments()[number]
    return path.rename(path.with_name(formats.offset_to_file_name(start)))


def one_too_high(store: Crafted) -> dict[str, int]:
    found = {}
    for number in reversed(range(len(store.segments()))):
        start = int(store.segments()[number].name)
        found[str(rename(store, number, start + store.segment_size))] = start
    return found


def two_too_high(store: Crafted) -> dict[str, int]:
    found = {}
    for number in reversed(range(len(store.segments()))):
        start = int(store.segments()[number].name)
        found[str(rename(store, number, start + 2 * store.segment_size))] = start
    return found


def exchanged(store: Crafted) -> dict[str, int]:
    first, second = store.segments()[:2]
    aside = first.rename(first.with_name("aside"))
    second.rename(first)
    aside.rename(second)
    return {str(first): int(second.name), str(second): int(first.name)}


def exchanged_at_the_end(store: Crafted) -> dict[str, int]:
    first, second = store.segments()[-2:]
    aside = first.rename(first.with_name("aside"))
    second.rename(first)
    aside.rename(second)
    return {str(first): int(second.name), str(second): int(first.name)}


def first_after_the_last(store: Crafted) -> dict[str, int]:
    return {str(rename(store, 0, store.files_end())): 0}


def far_away(store: Crafted) -> dict[str, int]:
    return {str(rename(store, 0, 1000 * store.segment_size)): 0}


def lower(store: Crafted) -> dict[str, int]:
    """The first segments have expired, and the first one left was renamed to their place."""
    for path in store.segments()[:2]:
        path.unlink()
    start = int(store.segments()[0].name)
    found = {str(rename(store, 0, 0)): start}
    for path in store.segments()[1:]:
        path.unlink()
    return found


def with_a_damaged_record(store: Crafted) -> dict[str, int]:
    store.write(0, b"\0\0\0\x99 no record")
    return one_too_high(store)


WAYS: list[tuple[str, Callable[[Crafted], dict[str, int]]]] = [
    *(("several", way) for way in (one_too_high, exchanged, exchanged_at_the_end, lower)),
    *(("several", way) for way in (first_after_the_last, with_a_damaged_record)),
    *(("one", way) for way in (one_too_high, far_away, with_a_damaged_record)),
    *(("single", way) for way in (one_too_high, far_away)),
    *((kind, two_too_high) for kind in ("several", "one", "golden")),
    *(("golden", way) for way in (one_too_high, exchanged, exchanged_at_the_end)),
]


@pytest.mark.parametrize("left", ["as it was", "no state", "aborted", "aborted, no state"])
@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_its_right_name_is_reported(
    templates: dict[str, Path],
    tmp_path: Path,
    kind: str,
    way: Callable[[Crafted], dict[str, int]],
    left: str,
) -> None:
    store = Crafted(templates[kind], tmp_path / "store")
    wrong = way(store)
    if "no state" in left:
        (store.root / "rocketstore.state").unlink(missing_ok=True)
    if "aborted" in left:
        store.crashed()
    before = snapshot(store.root)
    with rocketstore.open(store.root) as reader:
        damaged = {damage.path: damage for damage in reader.recovery_report.damaged}
        for path, start in wrong.items():
            assert formats.offset_to_file_name(start) in damaged[path].reason
            assert damaged[path].start == int(Path(path).name)
        with pytest.raises(CorruptionError):
            list(reader.scan())
        # Verify took records that carry lower offsets for those that a broker leaves, and was fine.
        findings = reader.verify().findings
        reported = {finding.path for finding in findings if finding.kind == "misnamed-segment"}
        assert reported & set(wrong)
    for mode in ("r+", "a"):
        with pytest.raises(rocketstore.RocketStoreError) as caught:
            rocketstore.open(store.root, mode)
        if way is not far_away or kind != "several":
            assert isinstance(caught.value, (CorruptionError, rocketstore.MappedFileError))
    with pytest.raises(CorruptionError, match="wrong name"):
        rocketstore.salvage(store.root)
    assert snapshot(store.root) == before


def test_renaming_gives_all_back(templates: dict[str, Path], tmp_path: Path) -> None:
    store = Crafted(templates["several"], tmp_path / "store")
    (path,) = first_after_the_last(store)
    Path(path).rename(Path(path).with_name(formats.offset_to_file_name(0)))
    with rocketstore.open(store.root, "r+") as writer:
        assert [bytes(message.raw) for message in writer.scan()] == [r.raw for r in store.records]
        assert writer.verify().ok


def three_round(store: Crafted) -> None:
    first, second, third = store.segments()[:3]
    aside = third.rename(third.with_name("third"))
    second.rename(third)
    first.rename(second)
    aside.rename(first)


MIX: list[Callable[[Crafted], object]] = [
    *(one_too_high, two_too_high, exchanged, exchanged_at_the_end, first_after_the_last),
    three_round,
]


@pytest.mark.parametrize("kind", ["several", "golden"])
@pytest.mark.parametrize("way", MIX)
def test_the_reported_commands_restore_everything(
    templates: dict[str, Path], tmp_path: Path, kind: str, way: Callable[[Crafted], object]
) -> None:
    store = Crafted(templates[kind], tmp_path / "store")
    before = snapshot(store.root)
    way(store)
    with pytest.raises(rocketstore.RocketStoreError, match="All together") as refused:
        rocketstore.salvage(store.root)
    for mode in ("r+", "r"):
        with contextlib.suppress(rocketstore.RocketStoreError):
            rocketstore.open(store.root, mode).close()
    reported = str(refused.value).split("All together, in ")[1]
    folder, commands = reported.split(": ", 1)
    for command in commands.split(";"):
        words = command.split()
        if words[:2] == ["mv", "-n"]:
            assert not (Path(folder) / words[3]).exists()
            (Path(folder) / words[2]).rename(Path(folder) / words[3])
    assert snapshot(store.root) == before


@pytest.mark.parametrize("shift", [8, 100, SEGMENT // 2])
@pytest.mark.parametrize("count", [1, 3])
def test_everything_truncated_is_kept(
    templates: dict[str, Path], tmp_path: Path, shift: int, count: int
) -> None:
    """Recovery zeroed complete records at a wrong offset, and other bytes, without a copy."""
    store = Crafted(templates["several"], tmp_path / "store")
    end = store.records[-1].end
    records = b"".join(
        record.moved_to(record.offset + shift) for record in store.records[: 8 * count : 8]
    )
    store.write(end, records + b"and half a rec")
    store.crashed()
    with rocketstore.open(store.root, "r+") as writer:
        (part,) = writer.recovery_report.cut
        assert writer.max_physical_offset == end
    assert part.quarantined is not None
    assert Path(part.quarantined).read_bytes() == records + b"and half a rec"


def test_a_copy_of_what_is_far_past_the_end_is_sparse(tmp_path: Path) -> None:
    root = tmp_path / "store"
    crafted.build(root, count=4, mapped_file_size_commit_log=256 << 20)
    store = Crafted(root, tmp_path / "copy")
    store.write(200 << 20, b"something")
    store.crashed()
    with rocketstore.open(store.root, "r+") as writer:
        (part,) = writer.recovery_report.cut
    assert part.quarantined is not None
    about = Path(part.quarantined).stat()
    assert about.st_size > 199 << 20
    assert about.st_blocks * 512 < 8 << 20
    assert Path(part.quarantined).read_bytes().endswith(b"something")


@pytest.mark.parametrize("name", ["00000000000000000000.bak", "0", "old", "-1", "x.tmp"])
@pytest.mark.parametrize("kind", ["several", "golden"])
def test_a_segment_whose_name_is_no_offset_is_reported(
    templates: dict[str, Path], tmp_path: Path, kind: str, name: str
) -> None:
    """A first segment that was renamed looked like one that has expired, and nothing said more."""
    store = Crafted(templates[kind], tmp_path / "store")
    first = store.segments()[0]
    copy = first.with_name("copy")
    copy.write_bytes(store.segments()[1].read_bytes())  # of a segment that is there
    hidden = first.rename(first.with_name(name))
    for mode in ("r", "r+"):
        with rocketstore.open(store.root, mode) as opened:
            notes = [note for note in opened.recovery_report.notes if "holds records" in note]
            assert len(notes) == 1, mode
            assert notes[0].startswith(f"{hidden} holds records of the log from offset 0 on")
            assert f"rename the file to {first.name}" in notes[0]
    hidden.rename(first)
    with rocketstore.open(store.root) as opened:
        assert not any("holds records" in note for note in opened.recovery_report.notes)


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2", "zst", "lz4"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_packed_segment_is_no_lost_one(
    templates: dict[str, Path], tmp_path: Path, suffix: str, which: int
) -> None:
    """A plan set it aside as foreign, and named no loss, or put empty messages into its place."""
    store = Crafted(templates["several"], tmp_path / "store")
    path = store.segments()[which]
    packed = path.with_name(f"{path.name}.{suffix}")
    content = path.read_bytes()
    packers = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}
    heads = {"zst": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}
    pack = packers.get(suffix)
    packed.write_bytes(pack(content) if pack else heads[suffix] + bytes(100))
    rocketstore.plan(store.root)  # the segment is there
    path.unlink()
    with pytest.raises(
        RepairRefusedError, match=f"unpack the file with .* -d, and name it {path.name}"
    ):
        rocketstore.plan(store.root)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"\xfd7zXZ\0 and no more", b"BZh9 text"])
def test_what_only_looks_packed_is_foreign(
    templates: dict[str, Path], tmp_path: Path, content: bytes
) -> None:
    store = Crafted(templates["several"], tmp_path / "store")
    (store.root / "commitlog" / "00000000000000000000.gz").write_bytes(content)
    steps = rocketstore.plan(store.root).steps
    assert "foreign.aside" in {step.kind for step in steps}
