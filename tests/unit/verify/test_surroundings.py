"""What ``verify`` and ``info`` report on unreadable files, missing folders, tables, the checkpoint
and former salvages; none of it may count as fine.

Before, units of an unreadable log file were "expired", a missing folder of queues was lagging
dispatch, broken tables and a checkpoint of the year 36,000,000 were not reported, a store of 121
placeholders had no fault, and ``info`` counted messages that were gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import Message, MessageStoreConfig, formats
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import VerifyReport
from support.command_line import lines, run
from support.other_user import reachable_folder

CONFIG = MessageStoreConfig()
SEGMENT = 16384
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


def check(root: Path) -> VerifyReport:
    return verify_files(root, CONFIG)


def reasons(report: VerifyReport, kind: str) -> list[str]:
    return [one.reason for one in report.findings if one.kind == kind]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments, two topics with two queues each, keys."""
    root = tmp_path_factory.mktemp("pristine") / "store"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        for i in range(200):
            body, tags = b"x" * 60, f"T{i % 3}"
            assert store.put("AB"[i % 2], body, i // 2 % 2, tags, f"k{i}").ok
    return root


@pytest.fixture
def root(pristine: Path) -> Iterator[Path]:
    """A copy that another user can reach."""
    with reachable_folder() as folder:
        shutil.copytree(pristine, folder / "store")
        for path in (folder / "store", *(folder / "store").rglob("*")):
            path.chmod(0o755)
        yield folder / "store"


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    return golden_stores.unpack("broker-5.3.3", tmp_path)


@contextlib.contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Be a user whom permissions bind."""
    if os.geteuid() != 0:
        yield
        return
    # Import everything while it may be read: the interpreter may be some user's own.
    with tempfile.TemporaryDirectory() as folder:
        with rocketstore.open(f"{folder}/s", "x") as store:
            store.put("T", b"")
        for command, code in (("info", 0), ("verify", 0)):
            run(command, f"{folder}/s", "-f", "table", code=code)
        segments(Path(folder) / "s")[0].unlink()
        for command, code in (("info", 3), ("verify", 3)):
            run(command, f"{folder}/s", "-f", "json", code=code)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


# --- what may not be read ---------------------------------------------------------------------

PLACES: dict[str, Callable[[Path], Path]] = {
    "first segment": lambda root: segments(root)[0],
    "middle segment": lambda root: segments(root)[1],
    "newest segment": lambda root: segments(root)[-1],
    "queue file": lambda root: root / "consumequeue" / "A" / "0" / f"{200:020}",
    "queue": lambda root: root / "consumequeue" / "A" / "1",
    "topic": lambda root: root / "consumequeue" / "B",
    "index file": lambda root: sorted((root / "index").iterdir())[-1],
    "config": lambda root: root / "config",
    "table": lambda root: root / "config" / "topics.json",
}


@pytest.mark.parametrize("place", PLACES)
def test_what_may_not_be_read_is_never_sound(root: Path, place: str) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    assert check(root).ok  # imports everything, too
    path = PLACES[place](root)
    path.chmod(0)
    with bound_by_permissions():
        report = check(root)
        with rocketstore.open(root) as store:
            assert store.verify().finding_counts == report.finding_counts
        table = run("verify", root, "-f", "table", "-q", code=1).stdout
        facts = json.loads(run("info", root, "-f", "json", "-q", code=1).stdout)
    assert not report.ok
    reported = [one for one in report.findings if one.kind == "unreadable"]
    assert [one.path for one in reported] == [str(path)]
    assert "Permission denied" in reported[0].reason
    # It explains all that it hides, so nothing else is wrong.
    assert {one.kind for one in report.findings} <= {"unreadable", "config-table"}
    assert not any("expired" in note or "newer" in note for note in report.notes)
    assert "give this user read access" in table
    assert any(str(path) in refusal for refusal in facts["refusals"])


def test_a_segment_that_is_hidden_is_counted_once(root: Path) -> None:
    with rocketstore.open(root) as store:
        hidden = sum(SEGMENT <= m.physical_offset < 2 * SEGMENT for m in store.scan())
    segments(root)[1].chmod(0)
    with bound_by_permissions():
        report = check(root)
        facts = json.loads(run("info", root, "-f", "json", "-q", code=1).stdout)
    assert report.records == 200 - hidden
    assert any(note.endswith(f"not checked: {hidden}") for note in report.notes)
    assert (facts["messages"], facts["lostMessages"]) == (200 - hidden, hidden)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


ODD_PLACES = (
    "abort",
    "checkpoint",
    "rocketstore.state",
    "lock",
    "config/topics.json",
    "config/timercheck",
    f"commitlog/{0:020}",
    f"consumequeue/A/0/{0:020}",
    "index/20261126131932046",
    "timerlog/00000000000000000000",
)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (name, make)
        for number, name in enumerate(ODD_PLACES)
        for make in (make_fifo, (make_socket, Path.mkdir)[number % 2])
    ],
)
def test_no_file_is_opened_before_its_kind_is_known(
    root: Path, name: str, make: Callable[[Path], None]
) -> None:
    """``info`` waited for ever for the writer of a FIFO in the place of ``abort``."""
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    commands = (("info",), ("verify",), ("ls",), ("scan",), ("get", "A", "0"))
    for command, *words in commands:
        result = run_any(command, str(root), *words, "-q")
        assert result[0] in (0, 1, 3, 4), (command, result)
        if command == "verify" and name not in ("lock", "timerlog/00000000000000000000"):
            assert result[0] != 0 or name == "timerlog/00000000000000000000"
            assert str(path) in "".join(result[1:])


def run_any(*words: str) -> tuple[int, str, str]:
    from rocketstore.cli.app import app
    from support.command_line import CliRunner

    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


# --- folders that are missing -----------------------------------------------------------------


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize(
    ("store", "folder", "count"),
    [
        ("plain-5.3.3", "consumequeue", "285 units"),
        ("plain-5.3.3", "index", "273 records' keys"),
        ("plain-4.9.8", "consumequeue", "286 units"),
        ("ext-4.9.8", "consumequeue_ext", "115 units"),
        ("inner-5.3.3", "batchconsumequeue", "11 units"),
    ],
)
def test_a_missing_folder_is_one_finding(
    tmp_path: Path, store: str, folder: str, count: str, aborted: bool
) -> None:
    root = golden_stores.unpack(store, tmp_path)
    shutil.rmtree(root / folder)
    if aborted:
        (root / "abort").touch()
    report = check(root)
    assert report.finding_counts == {"missing-folder": 1}
    (one,) = report.findings
    assert one.path == str(root / folder)
    assert f"the folder {folder} is missing; {count} will be rebuilt" in one.reason
    assert not any("dispatch lags" in note for note in report.notes)
    assert f"rocketstore plan {root} -o plan.json" in run(
        "verify", root, "-f", "table", code=1
    ).stdout.replace("\n", "")


def test_assumed_sizes_are_marked(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (facts,) = lines(run("info", root))
    assert "assumed" not in facts["geometry"]
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    (facts,) = lines(run("info", root))
    assert facts["geometry"]["assumed"] == ["consumeQueueFileSize", "hashSlots", "indexEntries"]
    assert [note for note in facts["notes"] if "the folder consumequeue is missing" in note]
    assert [note for note in facts["notes"] if "the folder index is missing" in note]
    table = run("info", root, "-f", "table").stdout
    assert "queue 5.7 MiB (assumed" in table
    assert "20,000,000 entries (assumed" in table


def test_a_deleted_topic_is_reported(broker: Path) -> None:
    shutil.rmtree(broker / "consumequeue" / "Mix1")
    report = check(broker)
    assert report.finding_counts == {"missing-unit": 4}  # the table has it: its queues are lost
    for name in ("topics.json", "topics.json.bak"):
        path = broker / "config" / name
        table = json.loads(path.read_text())
        del table["topicConfigTable"]["Mix1"]
        path.write_text(json.dumps(table))
    report = check(broker)
    assert report.ok
    assert [note for note in report.notes if "they were deleted" in note and "Mix1" in note]
    with rocketstore.open(broker, "r+") as store:
        notes = store.recovery_report.notes
    assert [note for note in notes if "their queues were rebuilt: Mix1" in note]


def test_one_entry_has_one_treatment(root: Path) -> None:
    """A file in the place of a topic's folder was "ignored" and "moved to quarantine"."""
    place = root / "consumequeue" / "A"
    shutil.rmtree(place)
    place.write_bytes(b"junk")
    (root / "consumequeue" / "B" / "note").write_bytes(b"n")
    (facts,) = lines(run("info", root))
    reported = {part["name"]: part["treatment"] for part in facts["parts"]}
    assert reported["consumequeue/B/note"] == "ignored"
    assert "moved to quarantine" in reported["consumequeue/A"]
    with rocketstore.open(root, "r+") as store:
        report = store.recovery_report
    assert report.skipped == [str(root / "consumequeue" / "B" / "note")]
    assert [note for note in report.notes if note.startswith("moved to ")]


# --- tables -----------------------------------------------------------------------------------

NEEDED = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "delayOffset.json",
    "consumerFilter.json",
    "consumerOrderInfo.json",
)


@pytest.mark.parametrize("name", NEEDED)
def test_a_broker_with_two_broken_files_will_not_start(broker: Path, name: str) -> None:
    path = broker / "config" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    backup = path.with_name(path.name + ".bak")
    backup.write_bytes(backup.read_bytes()[:3])
    report = check(broker)
    assert report.finding_counts == {"config-table": 1}
    assert report.findings[0].path == str(path)
    assert "will not start" in report.findings[0].reason
    run("verify", broker, code=1)
    facts = json.loads(run("info", broker, "-f", "json", code=1).stdout)
    assert [text for text in facts["findings"] if str(path) in text and "will not start" in text]


@pytest.mark.parametrize("backup", [None, b""])
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b" \n", b"null", b"[]", b'"3"', bytes(4096), b"\xff\xfe{}", b"{" * 200_000),
        *(b'{"offsetTable":null}', b'{"offsetTable":[1]}', b'{"offsetTable":{"a@b":{"0":null}}}'),
        *(b'{"offsetTable":{"a@b":{"0":"x"}}}', b'{"offsetTable":{"a@b":7}}', b'{"offsetTable":'),
        *(b'{"dataVersion":null}', b'{"offsetTable":{"a@b":{"0":9223372036854775808}}}'),
    ],
)
def test_an_invalid_table_means_that_offsets_start_again(
    broker: Path, content: bytes, backup: bytes | None
) -> None:
    path = broker / "config" / "consumerOffset.json"
    path.write_bytes(content)
    beside = path.with_name(path.name + ".bak")
    beside.unlink()
    if backup is not None:
        beside.write_bytes(backup)
    (reason,) = reasons(check(broker), "config-table")
    assert "the offsets of all consumer groups start over" in reason


@pytest.mark.parametrize(
    "content",
    [
        b'\xef\xbb\xbf{"offsetTable":{}}',
        b'{"offsetTable":{"Mix0@g":{0:"7"}}}',
        b'{"offsetTable":{},"dataVersion":{"counter":"3"}}',
        b"{}",
    ],
)
def test_what_rocketmq_reads_is_no_finding(broker: Path, content: bytes) -> None:
    (broker / "config" / "consumerOffset.json").write_bytes(content)
    assert check(broker).ok


@pytest.mark.parametrize("name", [*NEEDED, "transactionMetrics"])
@pytest.mark.parametrize("content", [b"", b"{", None])
def test_a_good_backup_makes_a_note(broker: Path, name: str, content: bytes | None) -> None:
    path = broker / "config" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    report = check(broker)
    assert report.ok
    notes = [note for note in report.notes if note.startswith(f"{path}: ")]
    assert len(notes) == 1
    assert f"{name}.bak" in notes[0]
    assert ("5.4 and later delete" in notes[0]) == (content is not None)


def test_an_unknown_table_that_is_broken_is_named(broker: Path) -> None:
    (broker / "config" / "plugin.json").write_bytes(b"{")
    (reason,) = reasons(check(broker), "config-table")
    assert "is unknown" in reason


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("delayOffset.json", '{"offsetTable":{1:25472423}}', "a broker starts at"),
        ("delayOffset.json", '{"offsetTable":{1:-5}}', "a broker starts at 0"),
        ("consumerOffset.json", '{"offsetTable":{"Mix0@g":{1:999999}}}', "past the queue's end 12"),
        ("consumerOffset.json", '{"offsetTable":{"Mix0@g":{1:-5}}}', "offset -5 is negative"),
        ("consumerOffset.json", '{"pullOffsetTable":{"Mix0@g":{1:13}}}', "the next 1 messages"),
    ],
)
def test_offsets_outside_their_queue_are_found(
    broker: Path, name: str, content: str, words: str
) -> None:
    (broker / "config" / name).write_text(content)
    (reason,) = reasons(check(broker), "config-offset")
    assert words in reason
    facts = json.loads(run("info", broker, "-f", "json", code=1).stdout)
    assert [text for text in facts["findings"] if words in text]


def test_timer_files_are_named_and_compared_with_the_log(broker: Path) -> None:
    """They point past a log that was truncated (apache/rocketmq#7480)."""
    (broker / "config" / "timercheck").write_bytes(struct.pack(">4q", 1, 52, 44, 44).ljust(4096))
    (broker / "timerlog").mkdir()
    unit = struct.pack(">iqiqiqiiq", 52, 0, 0, 0, 0, 97_600, 200, 0, 0)
    (broker / "timerlog" / f"{0:020}").write_bytes(unit.ljust(5200, b"\0"))
    report = check(broker)
    assert report.ok
    assert [note for note in report.notes if "timercheck" in note and "up to 44" in note]
    assert [note for note in report.notes if "1 units point past the log's end 97644" in note]
    table = run("info", broker, "-f", "table").stdout
    assert "config/timercheck: how far the timer wheel" in table
    assert "1 units point past the log's end" in table


# --- the checkpoint ---------------------------------------------------------------------------

FUTURE = 2**60


def stamped(*values: int, nbytes: int = 4096) -> bytes:
    return struct.pack(">6q", *values, *[0] * (6 - len(values))).ljust(nbytes, b"\0")[:nbytes]


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (stamped(FUTURE, FUTURE, FUTURE), "the newest log file only"),
        (stamped(1_795_261_763_314, 1_795_261_763_313, 0), "0.0 s past the newest record"),
        (stamped(0, 0, 2**61), "keeps an index file"),
        (stamped(-1, -5, -(2**63)), "counts as 0"),
        (b"", "0 bytes instead of 4096"),
        (b"\x12\x34" * 10, "20 bytes instead of 4096"),
        (b"\x7f" * 4096, "past the newest record"),
        (b"\xff" * 4096, "counts as 0"),
        (stamped(1, 1, 1, 0, 0, 77), "where no record starts"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_found(
    tmp_path: Path, content: bytes, words: str, aborted: bool
) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (root / "checkpoint").write_bytes(content)
    if aborted:
        (root / "abort").touch()
    report = check(root)
    assert [reason for reason in reasons(report, "checkpoint") if words in reason]
    assert set(report.finding_counts) == {"checkpoint"}
    when = "at its next start" if aborted else "after an unclean stop"
    if "broker " in report.findings[0].reason and words not in ("counts as 0",):
        assert when in report.findings[0].reason
    (facts,) = lines(run("info", root, code=1 if words != "where no record starts" else 0))
    assert facts["findings"] or words == "where no record starts"


@pytest.mark.parametrize("content", [stamped(), None, stamped(1, 1, 0, nbytes=8192)])
def test_a_checkpoint_that_only_costs_time_is_a_note(tmp_path: Path, content: bytes | None) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    path = root / "checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    report = check(root)
    assert report.ok
    assert [note for note in report.notes if note.startswith(f"{path}: ")]


def test_a_store_beside_its_writer_has_no_finding(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        for number in range(300):
            assert store.put("T", b"x" * 50, 0, None, f"k{number}").ok
            if number % 50 == 0:
                # Dispatch makes an index file, or changes its header, while it is read.
                assert check(tmp_path / "s").findings == []
        store.wait_dispatched()
        assert check(tmp_path / "s").findings == []
        assert store.verify().findings == []
    assert check(tmp_path / "s").findings == []


# --- what is lost -----------------------------------------------------------------------------


def test_info_counts_what_can_be_read(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (root / "commitlog" / f"{65536:020}").unlink()
    (facts,) = lines(run("info", root, code=1))
    assert (facts["messages"], facts["lostMessages"]) == (159, 126)
    assert (facts["log"]["bytes"], facts["log"]["lostBytes"]) == (150372 - 65536, 65536)
    topics = {row["topic"]: (row["messages"], row["lostMessages"]) for row in facts["topics"]}
    assert topics["T"] == (35, 31)
    table = run("info", root, "-f", "table", code=1).stdout
    assert "159 of 285 (126 lost)" in table
    assert "64.0 KiB lost" in table
    report = check(root)
    assert report.finding_counts == {"record": 1}
    assert report.findings[0].path == str(root / "commitlog" / f"{65536:020}")


def zero_a_page(root: Path) -> None:
    with (root / "commitlog" / f"{65536:020}").open("r+b") as file:
        file.seek(8192)
        file.write(bytes(4096))


def lose_the_first_page(root: Path) -> None:
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.write(bytes(4096))


def lose_queues_too(root: Path) -> None:
    zero_a_page(root)
    shutil.rmtree(root / "consumequeue")


@pytest.mark.parametrize("harm", [zero_a_page, lose_the_first_page, lose_queues_too])
@pytest.mark.parametrize("name", ["plain-5.3.3", "plain-5.1.4", "inner-5.3.3"])
def test_readable_and_lost_add_up(tmp_path: Path, name: str, harm: Callable[[Path], None]) -> None:
    root = golden_stores.unpack(name, tmp_path)
    (facts,) = lines(run("info", root))
    whole, log = facts["messages"], facts["log"]["bytes"]
    if not (root / "commitlog" / f"{65536:020}").exists():
        pytest.skip("of one segment")
    harm(root)
    (facts,) = lines(run("info", root, code=1))
    named = facts["messages"] + facts["lostMessages"]
    # Without queue files nothing names the last ones of a queue.
    assert named == whole if (root / "consumequeue").is_dir() else named >= whole - 2
    assert facts["lostMessages"] > 0
    assert facts["log"]["bytes"] + facts["log"]["lostBytes"] == log
    found = 0
    with rocketstore.open(root) as store:
        for topic in store.topics():
            for queue in store.queues(topic):
                for offset in range(store.max_offset_in_queue(topic, queue)):
                    with contextlib.suppress(rocketstore.CorruptMessageError):
                        result = store.get_message("g", topic, queue, offset, 1)
                        found += [m.queue_offset for m in result.messages] == [offset]
    if name.startswith("plain"):
        assert facts["messages"] == found


@pytest.mark.parametrize("name", ["plain-5.3.3", "plain-4.9.8", "broker-5.3.3", "inner-5.3.3"])
def test_a_log_that_is_not_there_is_named_once(tmp_path: Path, name: str) -> None:
    """``info`` said "last exit never used" and 0 messages, ``verify`` one for each unit."""
    root = golden_stores.unpack(name, tmp_path)
    shutil.rmtree(root / "commitlog")
    result = run("info", root, "-f", "table", code=3)
    assert result.stdout.count(str(root / "commitlog")) == 1
    assert "never used" not in result.stdout
    assert str(root / "commitlog") in run("verify", root, code=3).stderr


@pytest.mark.parametrize("name", ["plain-5.3.3", "plain-4.9.8", "crc-5.3.3", "lmq-5.3.3"])
def test_an_end_that_is_missing_is_one_finding(tmp_path: Path, name: str) -> None:
    root = golden_stores.unpack(name, tmp_path)
    (facts,) = lines(run("info", root))
    whole = facts["messages"]
    path = segments(root)[-1]
    path.unlink()
    report = check(root)
    assert report.finding_counts == {"record": 1}
    assert report.findings[0].path == str(path)
    (facts,) = lines(run("info", root, code=1))
    assert facts["messages"] + facts["lostMessages"] == whole
    assert facts["lostMessages"] > 0
    assert facts["log"]["lostBytes"] > 0


def test_what_a_salvage_left_is_reported(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    zero_a_page(root)
    rocketstore.salvage(root)
    report = check(root)
    assert report.ok
    assert [note for note in report.notes if "empty placeholders in place of lost" in note]
    kept = [note for note in report.notes if "quarantine/" in note]
    assert len(kept) == 1
    assert f"{65536:020}" in kept[0]
    (facts,) = lines(run("info", root))
    assert [note for note in facts["notes"] if "empty placeholders" in note]
    assert [note for note in facts["notes"] if "quarantine/" in note]
    shutil.rmtree(root / "quarantine")
    assert [note for note in check(root).notes if "empty placeholders" in note]


# --- no store ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["info", "verify", "ls", "scan"])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("store/commitlog", "the folder commitlog of the store"),
        ("store/consumequeue", "the folder consumequeue of the store"),
        ("store/consumequeue/A/0", "it is inside the folder consumequeue of the store"),
        ("store/index", "the folder index of the store"),
        (".", "there is a store in"),
    ],
)
def test_what_is_no_store_says_where_one_is(
    root: Path, command: str, place: str, words: str
) -> None:
    result = run(command, root.parent / place, "-q", code=3)
    assert words in result.stderr
    assert str(root) in result.stderr


# --- what mends it ----------------------------------------------------------------------------

FAR = stamped(FUTURE, FUTURE, FUTURE)


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("plain-5.3.3", lambda root: (root / "checkpoint").write_bytes(FAR)),
        ("plain-5.3.3", lambda root: (root / "checkpoint").write_bytes(b"")),
        ("plain-4.9.8", lambda root: shutil.rmtree(root / "consumequeue")),
        ("plain-5.3.3", lambda root: shutil.rmtree(root / "index")),
        ("ext-4.9.8", lambda root: shutil.rmtree(root / "consumequeue_ext")),
        ("inner-5.3.3", lambda root: shutil.rmtree(root / "batchconsumequeue")),
    ],
)
def test_recover_and_a_plan_mend_what_they_are_named_for(
    tmp_path: Path, name: str, harm: Callable[[Path], None], aborted: bool
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    harm(root)
    if aborted:
        (root / "abort").touch()
    document = json.loads(run("verify", root, "--json", code=1).stdout)
    (step,) = document["next"]
    assert step["command"] == ["rocketstore", "plan", str(root), "-o", "plan.json"]
    planned = shutil.copytree(root, tmp_path / "planned")
    rocketstore.repair(planned, rocketstore.plan(planned))
    assert check(planned).findings == []
    rocketstore.recover(root)
    assert check(root).findings == []


# --- the log's files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "more"),
    [(0, "itself"), (1, "zeros"), (1, "one byte"), (-1, "zeros"), (-1, "itself")],
)
def test_a_segment_that_is_too_long_is_found(root: Path, number: int, more: str) -> None:
    """A segment that a copy made longer was a note of a sound store, and ``recover --what-if``
    had nothing to do; but no broker starts on it, and every opening for writing refuses it."""
    path = segments(root)[number]
    content = path.read_bytes()
    extra = {"zeros": bytes(SEGMENT), "one byte": b"\1", "itself": content}[more]
    path.write_bytes(content + extra)

    report = check(root)
    assert report.finding_counts == {"log-file": 1}
    assert report.findings[0].path == str(path)
    assert report.findings[0].position == SEGMENT
    assert f"{SEGMENT + len(extra)} bytes instead of {SEGMENT}" in report.findings[0].reason
    code, out, _ = run_any("verify", str(root))
    assert code == 1
    assert "plan" in json.loads(out.splitlines()[-1])["next"][0]["command"]

    for what_if in ([], ["--what-if"]):
        code, _, err = run_any("recover", str(root), *what_if)
        assert code == 3
        assert str(path) in err
    assert path.read_bytes() == content + extra

    assert run_any("salvage", str(root))[0] == 0
    assert check(root).ok


@pytest.mark.parametrize(
    ("number", "ending", "copied"),
    [(0, ".gz", False), (0, ".bak", True), (1, ".gz", True), (-1, ".bak", False), (-1, "~", True)],
)
def test_a_file_that_is_no_segment_is_reported(
    root: Path, number: int, ending: str, copied: bool
) -> None:
    """The first segment, compressed or renamed, was an expired one of a sound store; the file
    beside it, with which no broker starts, was named nowhere."""
    path = segments(root)[number]
    other = path.with_name(path.name + ending)
    (shutil.copy if copied else os.rename)(path, other)

    report = check(root)
    assert not report.ok
    assert [one.path for one in report.findings if one.kind == "foreign-file"] == [str(other)]
    code, out, _ = run_any("verify", str(root))
    assert code == 1
    assert any("its name back" in step["why"] for step in json.loads(out.splitlines()[-1])["next"])


# --- what no writer gets past --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lock", "abort"])
@pytest.mark.parametrize("make", [Path.mkdir, make_fifo, make_socket])
def test_what_stands_in_a_mark_s_place(root: Path, name: str, make: Callable[[Path], Any]) -> None:
    """Every writer refuses them, so that nothing is fine with them."""
    (root / name).unlink(missing_ok=True)
    make(root / name)
    assert [one.path for one in check(root).findings] == [os.fspath(root / name)]
    for command in ("verify", "info"):
        run(command, root, code=1)
    run("put", root, "A", "x", code=3)


@pytest.mark.parametrize("offset", [1, SEGMENT - 1, 5 * SEGMENT + 512, 9_999_999])
@pytest.mark.parametrize("nbytes", [100, SEGMENT])
def test_a_segment_that_begins_nowhere(root: Path, offset: int, nbytes: int) -> None:
    """Reading skips it, and every writer refuses it."""
    path = root / "commitlog" / f"{offset:020}"
    path.write_bytes(bytes(nbytes))
    findings = check(root).findings
    assert [(one.kind, one.path) for one in findings] == [("foreign-file", os.fspath(path))]
    assert f"not a multiple of {SEGMENT}" in findings[0].reason
    run("put", root, "A", "x", code=3)


HALF, ROLLBACK = formats.SYS_FLAG_TRANSACTION_PREPARED, formats.SYS_FLAG_TRANSACTION_ROLLBACK
BATCHES = {"topic_attributes": {"B": {"queue.type": "BatchCQ"}}, "broker_version": "5.3.3"}
#: What was dispatched before, none of which needs the folder ``consumequeue``.
WITHOUT_QUEUES: dict[str, tuple[dict[str, Any], list[Message]]] = {
    "nothing": ({}, []),
    "a half message": ({}, [Message("T", b"x", sys_flag=HALF)]),
    "a half message of 4.9": (
        {"broker_version": "4.9.8"},
        [Message("T", b"", sys_flag=HALF)],
    ),
    "a rolled back message": ({}, [Message("T", b"x", sys_flag=ROLLBACK)]),
    "half messages with keys": ({}, [Message("T", b"x", keys="k", sys_flag=HALF)] * 3),
    "a batch queue": (BATCHES, [Message("B", b"x")]),
    "batch queues": (BATCHES, [Message("B", b"x", queue_id=i) for i in range(3)]),
}


@pytest.mark.parametrize("before", WITHOUT_QUEUES)
def test_a_folder_that_no_record_needed_is_not_missing(tmp_path: Path, before: str) -> None:
    """After a kill, the first message of a queue may not be dispatched yet; a store that had
    nothing but half messages, or batch queues, was said to lack the folder of the others."""
    options, messages = WITHOUT_QUEUES[before]
    root, killed = tmp_path / "store", tmp_path / "killed"
    with rocketstore.open(root, "x", **OPTIONS, **options) as store:
        for message in messages:
            assert store.put_message(message).ok
    assert not (root / "consumequeue").exists()
    with rocketstore.open(root, "r+", start=False, **options) as store:
        assert store.put("T", b"new").ok
        shutil.copytree(root, killed, ignore=shutil.ignore_patterns("lock"))
    assert (killed / "abort").exists()
    report = verify_files(killed, MessageStoreConfig(**options))
    assert report.ok, report.findings
    with rocketstore.open(killed, "r+", **options) as store:
        assert store.max_offset_in_queue("T", 0) == 1
        assert store.verify().ok


@pytest.mark.parametrize("batches", [False, True])
def test_a_folder_of_a_killed_store_that_is_gone_is_missing(tmp_path: Path, batches: bool) -> None:
    root, killed = tmp_path / "store", tmp_path / "killed"
    with rocketstore.open(root, "x", **OPTIONS, **BATCHES) as store:
        for topic in "TB" if batches else "T":
            assert store.put(topic, b"x").ok
        assert store.wait_dispatched()
        store.flush()
        shutil.copytree(root, killed, ignore=shutil.ignore_patterns("lock"))
    shutil.rmtree(killed / "consumequeue")
    report = verify_files(killed, MessageStoreConfig(**BATCHES))
    assert report.finding_counts == {"missing-folder": 1}
