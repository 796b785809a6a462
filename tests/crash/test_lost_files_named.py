"""Reports name each lost file that is rebuilt: the engineer on call needs to know."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores


def files_of(root: Path, folder: str) -> list[Path]:
    """Files of queues that have more than one first, in order."""
    files = sorted(path for path in (root / folder).rglob("0" * 10 + "*") if path.is_file())
    return sorted(files, key=lambda path: (-len(list(path.parent.iterdir())), path))


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("with_state", [True, False], ids=["state", "broker"])
@pytest.mark.parametrize(
    ("folder", "name"),
    [("consumequeue", "plain-5.3.3"), ("consumequeue", "plain-4.9.8"),
     ("batchconsumequeue", "inner-5.3.3"), ("consumequeue_ext", "ext-4.9.8"),
     ("consumequeue", "lmq-5.3.3")],
)  # fmt: skip
def test_a_lost_queue_file_is_named(
    folder: str, name: str, with_state: bool, which: int, tmp_path: Path
) -> None:
    """ "queue files are missing or short" was all that the report said, and often nothing."""
    root = golden_stores.unpack(name, tmp_path)
    if with_state:
        rocketstore.open(root, "r+").close()
    lost = files_of(root, folder)[which]
    before = lost.read_bytes()
    lost.unlink()
    with rocketstore.open(root, "r+") as store:
        notes = store.recovery_report.notes
    assert lost.read_bytes() == before
    topic, queue_id = lost.parts[-3:-1]
    assert [note for note in notes if f"{topic} queue {queue_id}: {lost}" in note], notes
    with rocketstore.open(root, "r+") as store:
        assert not [note for note in store.recovery_report.notes if "missing" in note]


def test_a_lost_queue_folder_is_named(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    shutil.rmtree(root / "consumequeue" / "TopicA" / "1")
    with rocketstore.open(root, "r+") as store:
        text = "\n".join(store.recovery_report.notes)
    assert f"TopicA queue 1: {root}/consumequeue/TopicA/1/{'0' * 20} and its whole folder" in text


@pytest.mark.parametrize("with_state", [True, False], ids=["state", "broker"])
def test_lost_folders_are_named_once(with_state: bool, tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    if with_state:
        rocketstore.open(root, "r+").close()
    shutil.rmtree(root / "index")
    with rocketstore.open(root, "r+") as store:
        notes = [note for note in store.recovery_report.notes if str(root / "index") in note]
    assert 1 <= len(notes) <= 2
    rocketstore.open(root, "r+").close()
    shutil.rmtree(root / "consumequeue")
    with rocketstore.open(root, "r+") as store:
        notes = [n for n in store.recovery_report.notes if str(root / "consumequeue") in n]
    assert len(notes) == 1


def test_new_files_are_no_lost_ones(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rocketstore.open(root, "x", mapped_file_size_consume_queue=100) as store:
        for number in range(17):
            store.put("T", b"%d" % number, number % 2)
        assert not store.recovery_report.notes
    with rocketstore.open(root, "r+") as store:
        assert not store.recovery_report.notes
