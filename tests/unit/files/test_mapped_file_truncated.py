"""A truncated file does not show the size of its kind. Files that agree, the state file, the blank
of a segment, or RocketMQ's default do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from support.command_line import run


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def found_by_key(store: rocketstore.DefaultMessageStore) -> dict[tuple[str, str], list[int]]:
    """What each key of each message finds."""
    keys = {(m.topic, key) for m in store.scan() for key in (m.keys or "").split()}
    return {
        (topic, key): [m.physical_offset for m in store.find(topic=topic, key=key)]
        for topic, key in keys
    }


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("name", ["plain-5.3.3", "plain-4.9.8", "lag-5.3.3"])
def test_a_truncated_newest_index_file_is_no_hint(name: str, share: float, tmp_path: Path) -> None:
    """Its length decided, because it is the newest: two whole files were deleted, and six written
    that a broker of the true numbers cannot read; nothing went to ``quarantine``."""
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        found = found_by_key(store)
    good, pair = index_files(root)[:-1], golden_stores.geometry(name)
    before = {path: path.read_bytes() for path in good}
    newest = index_files(root)[-1]
    os.truncate(newest, int(newest.stat().st_size * share) // 20 * 20)
    length = newest.read_bytes()
    with rocketstore.open(root, "r+") as store:
        assert store.facts.index.pair == (pair.slots, pair.entries)
        assert any(str(newest) in note for note in store.recovery_report.notes)
        assert found_by_key(store) == found
    assert {path: path.read_bytes() for path in good} == before
    assert {path.stat().st_size for path in index_files(root)} == {len(before[good[0]])}
    assert (root / "quarantine" / f"index-{newest.name}").read_bytes() == length


@pytest.mark.parametrize("grown", [20, 400])
def test_an_index_file_that_grew_is_no_hint(grown: int, tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    newest = index_files(root)[-1]
    os.truncate(newest, newest.stat().st_size + grown)
    with rocketstore.open(root, "r") as store:
        assert store.facts.index.pair == (50, 200)


@pytest.mark.parametrize("name", ["plain-5.3.3", "inner-5.3.3"])
@pytest.mark.parametrize(
    "changes",
    [{0: 20}, {0: 4000}, {0: -20}, {1: 20}, {1: -400}, {0: 7}, {1: 60}, {1: 4}],
    ids=str,
)
def test_of_two_index_files_the_full_one_shows_the_length(
    name: str, changes: dict[int, int], tmp_path: Path
) -> None:
    """The longer one won in any case: the whole one went to ``quarantine``, and all new files had a
    length that no broker here uses. The older one is full, so it shows its own length."""
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        found = found_by_key(store)
    for path in index_files(root)[2:]:
        path.unlink()
    two = index_files(root)
    before = [path.read_bytes() for path in two]
    for number, grown in changes.items():
        os.truncate(two[number], len(before[number]) + grown)
    with rocketstore.open(root, "r+") as store:
        assert store.facts.index.pair == (50, 200)
        assert found_by_key(store) == found
    assert {path.stat().st_size for path in index_files(root)} == {len(before[0])}
    aside = {path.name for path in (root / "quarantine").iterdir()}
    assert aside == {f"index-{two[number].name}" for number in changes}


@pytest.mark.parametrize(
    "changes",
    [{0: 20}, {1: 400}, {2: 20}, {0: 20, 1: 20}, {0: 20, 1: 40, 2: 60}, {1: 20, 2: -20}],
    ids=str,
)
def test_of_three_index_files_the_full_ones_show_the_length(
    changes: dict[int, int], tmp_path: Path
) -> None:
    root = golden_stores.unpack("plain-4.9.8", tmp_path)
    for number, grown in changes.items():
        path = index_files(root)[number]
        os.truncate(path, path.stat().st_size + grown)
    with rocketstore.open(root, "r+") as store:
        assert store.facts.index.pair == (50, 200)
    assert {path.stat().st_size for path in index_files(root)} == {4240}


def test_a_wrong_count_in_a_full_index_file_shows_no_length(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    first, second, third = index_files(root)
    third.unlink()
    content = bytearray(first.read_bytes())
    content[39] = 150  # its header counted 200
    first.write_bytes(content)
    os.truncate(second, 4260)
    with rocketstore.open(root) as store:
        assert store.facts.index.pair in {(50, 200), (50, 201)}


@pytest.mark.parametrize("with_state", [True, False])
def test_a_lone_halved_index_file(with_state: bool, tmp_path: Path) -> None:
    """35 slots and 97 entries were read out of a half file that had 50 and 200."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    if with_state:
        rocketstore.open(root, "r+").close()
    for path in index_files(root)[:-1]:
        path.unlink()
    os.truncate(index_files(root)[0], 2120)
    with rocketstore.open(root) as store:
        wanted = (50, 200) if with_state else (5_000_000, 20_000_000)
        assert store.facts.index.pair == wanted
        source = "the state file" if with_state else "RocketMQ's default"
        assert any(source in note and "2120 bytes" in note for note in store.recovery_report.notes)


@pytest.mark.parametrize("length", [20_000, 40_001, 60_000])
@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize("name", ["broker-5.3.3", "plain-5.3.3", "crc-5.3.3"])
def test_a_lone_segment_that_was_truncated(
    name: str, with_state: bool, length: int, tmp_path: Path
) -> None:
    """Its length was the size of all segments from then on."""
    root = golden_stores.unpack(name, tmp_path)
    if with_state:
        rocketstore.open(root, "r+").close()
    size = golden_stores.geometry(name).commit_log_nbytes
    first, *others = sorted((root / "commitlog").iterdir())
    for path in others:
        path.unlink()
    os.truncate(first, length)
    wanted = size if with_state else 1 << 30
    with rocketstore.open(root) as store:
        assert store.facts.commit_log_file_size == wanted
        kept = [m.physical_offset for m in store.scan(on_corruption="skip")]
        source = "the state file" if with_state else "RocketMQ's default"
        assert any(source in note for note in store.recovery_report.notes)
    with pytest.raises(rocketstore.MappedFileError, match=f"has {length} bytes"):
        rocketstore.open(root, "r+")
    with rocketstore.open(root, mapped_file_size_commit_log=size) as store:
        assert store.facts.commit_log_file_size == size
    report = rocketstore.salvage(root, mapped_file_size_commit_log=size)
    assert report.was_needed
    assert first.stat().st_size == size
    with rocketstore.open(root, "r+") as store:
        assert {*kept} <= {m.physical_offset for m in store.scan()}


@pytest.mark.parametrize("missing", [1, 4, 8, 20])
def test_the_blank_at_its_end_shows_a_segments_size(missing: int, tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    first, *others = sorted((root / "commitlog").iterdir())
    for path in others:
        path.unlink()
    os.truncate(first, 65536 - missing)
    with rocketstore.open(root) as store:
        assert store.facts.commit_log_file_size == 65536
        assert any("by the marker" in note for note in store.recovery_report.notes)


@pytest.mark.parametrize(
    ("folder", "name"),
    [("consumequeue", "plain-5.3.3"), ("consumequeue_ext", "ext-4.9.8"),
     ("batchconsumequeue", "inner-5.3.3"), ("consumequeue", "lmq-5.3.3")],
)  # fmt: skip
def test_one_queue_file_that_was_truncated(folder: str, name: str, tmp_path: Path) -> None:
    """The others show the size; the file goes to quarantine, and recovery rebuilds it."""
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        sizes = store.facts
    files = sorted(path for path in (root / folder).rglob("0" * 20) if path.is_file())
    before = files[0].read_bytes()
    os.truncate(files[0], len(before) // 2 // 46 * 46)
    with rocketstore.open(root, "r+") as store:
        facts = store.facts
        assert (facts.consume_queue_file_size, facts.batch_queue_file_size) == (
            sizes.consume_queue_file_size,
            sizes.batch_queue_file_size,
        )
        assert facts.ext_file_size == sizes.ext_file_size
        relative = str(files[0].relative_to(root))
        text = "\n".join(store.recovery_report.notes)
        assert relative.replace("/", "-") in text or relative in text
    assert files[0].stat().st_size == len(before)


#: Bytes that are left of each of three segments (``None``: it is gone), and what their size is
#: found to be (``None``: nothing shows it).
CUT_LOGS: dict[str, tuple[list[int | None], int | None]] = {
    "empty, truncated, gone": ([0, 40_059, None], 65_536),
    "truncated, truncated, empty": ([50_000, 40_059, 0], 65_536),
    "truncated, empty, empty": ([40_059, 0, 0], 65_536),
    "all truncated": ([40_059, 40_059, 40_059], 65_536),
    "all halved": ([32_768, 32_768, 32_768], 65_536),
    "only the second, truncated": ([None, 40_059, None], 65_536),
    "only the second, halved": ([None, 32_768, None], 65_536),
    "only the second, a page": ([None, 4096, None], 65_536),
    "whole, gone, truncated": ([65_536, None, 40_059], 65_536),
    "truncated, gone, whole": ([40_059, None, 65_536], 65_536),
    "empty, whole, empty": ([0, 65_536, 0], 65_536),
    "only the third, truncated": ([None, None, 40_059], None),
    "halved, gone, halved": ([32_768, None, 32_768], None),
}


@pytest.mark.parametrize("name", CUT_LOGS)
def test_a_size_that_names_and_units_exclude_is_not_taken(name: str, tmp_path: Path) -> None:
    """The length of a truncated segment counted as the size of all, although their names were no
    multiples of it: no record was found in it, and ``salvage`` refused the log."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    left, wanted = CUT_LOGS[name]
    paths = sorted((root / "commitlog").iterdir())
    for path, nbytes in zip(paths, left, strict=True):
        if nbytes is None:
            path.unlink()
        else:
            os.truncate(path, nbytes)
    with rocketstore.open(root, mapped_file_size_commit_log=65_536) as store:
        assert store.facts.commit_log_file_size == 65_536
        readable = [m.physical_offset for m in store.scan(on_corruption="skip")]
        assert readable
    if wanted is None:
        for command in (("scan", root), ("salvage", root, "--what-if"), ("put", root, "T", "x")):
            stderr = run(*command, code=3).stderr
            assert "mapped_file_size_commit_log" in stderr
            assert "--config" in stderr
        config = tmp_path / "broker.conf"
        config.write_text("mappedFileSizeCommitLog=65536\n", encoding="utf-8")
        run("scan", root, "--on-corruption", "skip", "--config", config)
        return
    with rocketstore.open(root) as store:
        assert store.facts.commit_log_file_size == wanted
        assert [m.physical_offset for m in store.scan(on_corruption="skip")] == readable
    with pytest.raises(rocketstore.MappedFileError):
        rocketstore.open(root, "r+")
    report = rocketstore.salvage(root)
    assert report.was_needed
    with rocketstore.open(root, "r+") as store:
        assert {*readable} <= {m.physical_offset for m in store.scan()}


def test_a_damaged_record_does_not_make_a_segment_longer(tmp_path: Path) -> None:
    """A record that runs beyond the end of its file looks like a truncated one."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    *others, last = sorted((root / "commitlog").iterdir())
    for path in others:
        path.unlink()
    with rocketstore.open(root) as store:
        place = [m.physical_offset for m in store.scan()][3] - int(last.name)
    with last.open("r+b") as log:
        log.seek(place)
        log.write((1 << 20).to_bytes(4, "big"))
    with rocketstore.open(root) as store:
        assert store.facts.commit_log_file_size == 65_536


def test_a_misnamed_segment_shows_no_size(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    *others, last = sorted((root / "commitlog").iterdir())
    for path in others:
        path.unlink()
    last.rename(last.with_name(f"{131_080:020d}"))
    with pytest.raises(rocketstore.MappedFileError, match="not a multiple of the file size 65536"):
        rocketstore.open(root)
