"""A log that begins later than queues and index say: expired, or a segment was taken away."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from golden import golden_stores
from rocketstore import MessageStoreConfig
from rocketstore.store.verifying import verify_files
from support.command_line import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# The first segment of a store was deleted: verify and info had no word about it, as the messages of
# an expired segment look the same.


def unpacked(name: str, folder: Path) -> Path:
    return golden_stores.unpack(name, folder)


@pytest.mark.parametrize("kept", ["all", "queues", "index"])
@pytest.mark.parametrize(
    "name", ["plain-4.9.8", "plain-5.3.3", "inner-5.3.3", "ext-4.9.8", "lmq-5.3.3", "expire-4.9.8"]
)
def test_verify_and_info_show_what_names_it(tmp_path: Path, name: str, kept: str) -> None:
    root = unpacked(name, tmp_path)
    if name != "expire-4.9.8":
        sorted((root / "commitlog").iterdir())[0].unlink()
    start = int(min(path.name for path in (root / "commitlog").iterdir()))
    if kept == "queues":
        for path in (root / "index").iterdir():
            path.unlink()
    if kept == "index":
        for folder in (root / "consumequeue").glob("*/*"):
            for path in folder.iterdir():
                path.unlink()
    report = verify_files(root, MessageStoreConfig())
    if kept == "all":
        assert report.ok
    (note,) = [one for one in report.notes if "before the log's beginning" in one]
    assert note.endswith(
        f"before the log's beginning {start}: those messages expired, or their segment was removed"
    )
    assert ("index file" in note) == (kept != "queues")
    if kept != "index":
        assert " of " in note.split("name")[0]
    low, high = (int(word.strip(",")) for word in note.split("offsets ")[1].split()[:3:2])
    assert 0 <= low <= high < start
    document = json.loads(run("info", root, "--format", "json").stdout)
    (reported,) = [one for one in document["notes"] if "before the log's beginning" in one]
    assert reported.split(" and ")[0] == note.split(" and ")[0]


@pytest.mark.parametrize("name", ["plain-5.3.3", "inner-5.3.3", "lag-5.3.3", "broker-5.5.0"])
def test_a_whole_log_has_no_such_note(tmp_path: Path, name: str) -> None:
    root = unpacked(name, tmp_path)
    notes = verify_files(root, MessageStoreConfig()).notes
    notes += json.loads(run("info", root, "--format", "json").stdout).get("notes", [])
    assert not any("before the log's beginning" in note for note in notes)
