"""What the fuzzer of store directories (``fuzz/store_fuzz``) found, each with its story."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import Crafted, snapshot
from golden import golden_stores
from rocketstore import CorruptMessageError, MappedFileError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


@pytest.mark.parametrize("aborted", [True, False])
def test_the_log_is_not_truncated_at_nuls_before_durable_damage(
    store: Crafted, aborted: bool
) -> None:
    """A log of three segments, closed in order and without a state file (as RocketMQ leaves it),
    had a NUL in the properties of one record and the head of the next one overwritten. Mode "r"
    showed all but the second. Mode "r+" ended its check at the damage, because it would refuse the
    store anyway. So it had not read the newest records, took the checkpoint's time for one in the
    future, treated nothing as durable, and truncated the log at the first of the two records.
    If later records prove that damage was durable, everything before the damage was, too."""
    (store.root / "rocketstore.state").unlink()
    if aborted:
        store.crashed()
    number = next(n for n, r in enumerate(store.records) if n > 10 and r.key == "k18")
    record, following = store.records[number : number + 2]
    store.write(record.offset, record.with_bytes(record.properties_at + 3, b"\0"))
    store.write(following.offset, following.with_number("magic", 7))
    before = snapshot(store.root)
    with pytest.raises(CorruptMessageError) as caught:
        rocketstore.open(store.root, "r+")
    assert caught.value.position == following.offset % store.segment_size
    assert snapshot(store.root) == before
    with rocketstore.open(store.root, "r") as reader:
        shown = [m.physical_offset for m in reader.scan(on_corruption="skip")]
        assert shown == [r.offset for r in store.records if r is not following]
        assert reader.recovery_report.nul_properties == [record.offset]


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "symbolic": lambda name, target: name.symlink_to(target.name),
    "hard": lambda name, target: os.link(target, name),
}


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
def test_two_segments_that_are_one_file_are_refused(
    store: Crafted, link: Callable[[Path, Path], None]
) -> None:
    """A link with the name of the next segment led to the one before. Its content did not belong to
    that place of the log. Recovery took it for a torn tail and zeroed it: the records of the
    segment that the link led to."""
    last = store.segments()[-1]
    path = last.with_name(f"{store.files_end():020d}")
    link(path, last)
    before = snapshot(store.root)
    with pytest.raises(MappedFileError, match="one file") as caught:
        rocketstore.open(store.root, "r+")
    assert str(path) in str(caught.value)
    assert str(last) in str(caught.value)
    assert snapshot(store.root) == before
    with rocketstore.open(store.root, "r") as reader:
        shown = [bytes(m.raw) for m in reader.scan(on_corruption="skip")]
    assert shown == [r.raw for r in store.records]
    assert snapshot(store.root) == before


@pytest.mark.parametrize("name", ["plain-4.9.8", "plain-5.3.3"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_older_index_file_is_rebuilt(tmp_path: Path, name: str, number: int) -> None:
    """A lost index file before others stayed lost in a store that RocketMQ wrote. Keys are only
    appended after the newest entry, and without a state file nothing showed how many files there
    had been. No query found the keys of its records."""
    root = golden_stores.unpack(name, tmp_path)
    sorted((root / "index").iterdir())[number].unlink()
    with rocketstore.open(root, "r+") as opened:
        notes = [note for note in opened.recovery_report.notes if "is missing" in note]
        assert len(notes) == 1
        keyed = [m for m in opened.scan() if m.keys and not m.sys_flag & 12]
        assert len(keyed) > 50
        for message in keyed:
            found = opened.find(topic=message.topic, key=message.keys.split(" ")[0])
            assert message.physical_offset in [m.physical_offset for m in found]
        assert opened.verify().ok
    with rocketstore.open(root, "r+") as opened:
        assert not [note for note in opened.recovery_report.notes if "is missing" in note]
