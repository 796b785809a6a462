"""Index files of which only some sectors reached the disk.

Zeros at a file's begin are entries of log offset 0, whose record a log has no more when its first
messages expired; and an entry may lie across the edge of what is there, with its hash and its
offset but without its time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from crash.abandoning import abandon
from rocketstore import formats
from rocketstore.testing import check_invariants

SECTOR_NBYTES = 512
SLOTS, ENTRIES = 30, 120
#: Of an index file.
NBYTES = formats.INDEX_HEADER.nbytes + SLOTS * 4 + ENTRIES * formats.INDEX_ENTRY.nbytes
SECTORS = range(-(-NBYTES // SECTOR_NBYTES))
OPTIONS = {
    "mapped_file_size_commit_log": 4096,
    "max_hash_slot_num": SLOTS,
    "max_index_num": ENTRIES,
    "file_reserved_time": 0,
}


@pytest.fixture(scope="module", params=["whole", "expired"])
def torn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nothing vouches for, with all or with the newest of its messages."""
    root = tmp_path_factory.mktemp("torn") / "store"
    times = iter(range(1_700_000_000_000, 1_800_000_000_000, 700))
    store = rocketstore.open(root, "x", start=False, clock=lambda: next(times), **OPTIONS)
    for number in range(100):
        store.put("T", bytes(number % 7), 0, "Tag", f"k{number} shared")
    assert store.wait_dispatched()
    if request.param == "expired":
        store.flush()
        store.clean_expired()
        assert store.min_physical_offset > 0
    store.flush()
    abandon(store)
    (root / "rocketstore.state").unlink()
    return root


def lose_one(content: bytearray, sector: int) -> None:
    """The sector did not reach the disk."""
    stop = min((sector + 1) * SECTOR_NBYTES, len(content))
    content[sector * SECTOR_NBYTES : stop] = bytes(stop - sector * SECTOR_NBYTES)


def lose_after(content: bytearray, sector: int) -> None:
    """Nothing from the sector on reached the disk."""
    content[sector * SECTOR_NBYTES :] = bytes(len(content) - sector * SECTOR_NBYTES)


def lose_before(content: bytearray, sector: int) -> None:
    """Of what is before the sector, only the header reached the disk."""
    start = formats.INDEX_HEADER.nbytes
    nbytes = max(sector * SECTOR_NBYTES - start, 0)
    content[start : start + nbytes] = bytes(nbytes)


@pytest.mark.parametrize("lose", [lose_one, lose_after, lose_before])
@pytest.mark.parametrize("sector", SECTORS)
def test_every_key_is_found_whatever_sectors_are_lost(
    torn: Path, lose: Callable[[bytearray, int], None], sector: int, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(torn, root)
    newest = max((root / "index").iterdir())
    content = bytearray(newest.read_bytes())
    assert len(content) == NBYTES
    lose(content, sector)
    newest.write_bytes(content)
    with rocketstore.open(root, "r+", start=False, **OPTIONS) as store:
        messages = list(store.scan())
        assert messages
        for message in messages:
            found = store.find(topic="T", key=message.keys.split()[0])
            assert [m.physical_offset for m in found] == [message.physical_offset]
            begin = message.store_timestamp
            found = store.find(topic="T", key="shared", begin=begin, end=begin + 1)
            assert [m.physical_offset for m in found] == [message.physical_offset]
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    check_invariants(root, acknowledged=messages).require()
