"""``verify`` names foreign entries among the files of a queue: RocketMQ loads them.

What each line does not start with was asked of ``DefaultMessageStore.load`` of 4.9.8, 5.1.4, 5.3.3
and 5.5.0, entry by entry. All of it was a sound store.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golden import golden_stores
from rocketstore import MessageStoreConfig
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import VerifyReport
from support.command_line import run

Unpack = Callable[[str], Path]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    @functools.cache
    def unpack(name: str) -> Path:
        return Path(golden_stores.unpack(name, tmp_path_factory.mktemp("whole")))

    return unpack


@pytest.fixture
def unpacked(whole: Unpack, tmp_path: Path) -> Unpack:
    """A copy of a golden store."""
    return lambda name: Path(shutil.copytree(whole(name), tmp_path / "store"))


def check(root: Path, version: str) -> VerifyReport:
    return verify_files(root, MessageStoreConfig(broker_version=version))


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def place(root: Path, part: str) -> Path:
    """A folder of mapped files, ``index``, or the first queue's of a part."""
    folder = root / part
    if part in ("commitlog", "index"):
        return folder
    return sorted(path.parent for path in folder.rglob("0" * 20))[0]


def one_byte(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(b"x")
        return folder / name

    return make


def empty(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).touch()
        return folder / name

    return make


def inner_folder(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).mkdir()
        return folder / name

    return make


def copy(ending: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        source = files_of(folder)[0]
        return Path(shutil.copy(source, source.with_name(source.name + ending)))

    return make


def dead_link(folder: Path) -> Path:
    (folder / "aim").symlink_to("nowhere")
    return folder / "aim"


#: What is made, and whether 4.9 and 5.x start with it.
ENTRIES: dict[str, tuple[Callable[[Path], Path], bool, bool]] = {
    "a byte, first": (one_byte(".DS_Store"), False, False),
    "a byte, last": (one_byte("notes"), False, False),
    "a copy": (copy(".bak"), False, False),
    "empty, first": (empty(".keep"), False, False),
    "empty, last": (empty("notes"), False, True),
    "a folder": (inner_folder("notes"), False, True),
    "a link to nothing": (dead_link, False, True),
}
STORES = (
    ("plain-4.9.8", "consumequeue"),
    ("plain-5.3.3", "consumequeue"),
    ("ext-4.9.8", "consumequeue_ext"),
    ("inner-5.3.3", "batchconsumequeue"),
)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("store", "part"), STORES)
def test_among_queue_files(unpacked: Unpack, store: str, part: str, entry: str) -> None:
    root = unpacked(store)
    version = store.rpartition("-")[2]
    assert check(root, version).ok
    make, *starts = ENTRIES[entry]
    path = make(place(root, part))
    report = check(root, version)
    if starts[version > "5"]:
        assert report.ok, report.findings
        return
    assert [(one.kind, one.path) for one in report.findings] == [("foreign-file", str(path))]
    assert "starts with it" in report.findings[0].reason or "not start" in report.findings[0].reason


def test_it_is_named_with_what_to_do(unpacked: Unpack) -> None:
    root = unpacked("plain-5.3.3")
    one_byte(".DS_Store")(place(root, "consumequeue"))
    answer = json.loads(run("verify", root, "--json", code=1).stdout)
    assert answer["findingCounts"] == {"foreign-file": 1}
    assert "out of that folder" in answer["next"][0]["why"]


@pytest.mark.parametrize(("version", "is_found"), [("4.9.8", True), ("5.3.3", False)])
def test_a_folder_among_segments(unpacked: Unpack, version: str, is_found: bool) -> None:
    root = unpacked(f"plain-{version}")
    inner_folder("notes")(root / "commitlog")
    assert check(root, version).finding_counts == ({"foreign-file": 1} if is_found else {})


@pytest.mark.parametrize(
    ("make", "starts"),
    [
        (inner_folder("5"), False),
        (inner_folder("-1"), False),
        (inner_folder("notes"), True),
        (inner_folder("9" * 19), True),
        (one_byte("notes"), True),
        (empty(".keep"), True),
        (copy(".bak"), True),
    ],
)
def test_in_the_index(unpacked: Unpack, make: Callable[[Path], Path], starts: bool) -> None:
    """It skips names that are no numbers, and cannot open a folder."""
    root = unpacked("plain-5.3.3")
    path = make(root / "index")
    findings: list[Any] = check(root, "5.3.3").findings
    assert [one.path for one in findings] == ([] if starts else [str(path)])


def test_what_no_broker_loads(unpacked: Unpack) -> None:
    """Beside queues, and in folders that are not queues; 4.9 does not read batch queues."""
    root = unpacked("inner-5.3.3")
    queue = place(root, "consumequeue")
    for folder in (queue.parent, queue.parent.parent, root / "consumequeue" / "T" / "notes"):
        folder.mkdir(exist_ok=True)
        one_byte("readme")(folder)
    assert check(root, "5.3.3").ok
    one_byte("readme")(place(root, "batchconsumequeue"))
    assert not check(root, "5.3.3").ok
    assert "foreign-file" not in check(root, "4.9.8").finding_counts


# --- types of queues --------------------------------------------------------------------------


def reported_types(root: Path, version: str = "5.3.3", **types: str) -> list[str]:
    """What is said of queues' types where ``topics.json`` names these; without any, there is
    none."""
    (root / "config").mkdir(exist_ok=True)
    topics = root / "config" / "topics.json"
    table = {
        name: {"attributes": {"queue.type": kind} if kind else {}} for name, kind in types.items()
    }
    topics.write_text(json.dumps({"topicConfigTable": table}))
    if not types:
        topics.unlink()
    return [one.reason for one in check(root, version).findings if one.kind == "queue-type"]


def test_queues_of_another_type_than_the_table_says(unpacked: Unpack) -> None:
    root = unpacked("inner-5.3.3")
    assert reported_types(root) == []
    assert reported_types(root, BCQ="BatchCQ", T="", TopicA="SimpleCQ") == []
    for table in ({"T": ""}, {"BCQ": ""}):
        (reason,) = reported_types(root, **table)
        assert "topics.json does not say" in reason
        assert reported_types(root, "4.9.8", **table) == []
    (reason,) = reported_types(root, BCQ="SimpleCQ")
    assert "BCQ has the queue type SimpleCQ" in reason
    (reason,) = reported_types(root, BCQ="BatchCQ", T="BatchCQ")
    assert "T has the queue type BatchCQ" in reason


def test_queues_of_both_types(unpacked: Unpack) -> None:
    """It was a note of a sound store, which no writer opens."""
    root = unpacked("inner-5.3.3")
    shutil.copytree(root / "consumequeue" / "T", root / "consumequeue" / "BCQ")
    (reason,) = reported_types(root)
    assert "BCQ has queues of both types" in reason
    document = json.loads(run("verify", root, "--json", code=1).stdout)
    assert document["findingCounts"]["queue-type"] == 1
    assert not any("both types" in note for note in document["notes"])
    assert [one for one in document["next"] if "queue.type" in one["why"]]
    run("put", root, "T", "x", code=2)


def test_all_tables_are_gone(unpacked: Unpack, tmp_path: Path) -> None:
    """Retry topics show that there were groups; a store without a broker has no tables."""
    root = unpacked("plain-5.3.3")
    report = check(root, "5.3.3")
    assert report.ok
    (note,) = [note for note in report.notes if "the offsets of all groups start over" in note]
    assert note.startswith(str(root / "config"))
    assert note in json.loads(run("info", root, "-f", "json").stdout)["notes"]
    (root / "config").mkdir()
    assert note not in check(root, "5.3.3").notes
    (root / "config").rmdir()
    for path in (root / "consumequeue").glob("%RETRY%*"):
        path.rename(tmp_path / path.name)
    assert note not in check(root, "5.3.3").notes
