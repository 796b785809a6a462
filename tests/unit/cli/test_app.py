"""The commands through Typer's runner: answers, forms, exit codes, what is never printed."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore.cli.command_list import SECTIONS
from rocketstore.cli.spark import app as spark
from support.command_line import NASTY_BODY, NASTY_TOPIC, lines, make_store, run


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("cli") / "store")


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "store")
    return tmp_path / "store"


# --- get --------------------------------------------------------------------------------------


def test_get_writes_the_vocabulary_of_records(pristine: Path) -> None:
    (row,) = lines(run("get", pristine, "TopicA", 1, "--offset", 3, "--count", 1))
    with rocketstore.open(pristine) as store:
        message = store.get_message("g", "TopicA", 1, 3, 1).messages[0]
    assert row == {
        "topic": "TopicA",
        "queueId": 1,
        "queueOffset": 3,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "flag": 0,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
        "bodyCRC": message.body_crc,
        "offsetMsgId": message.msg_id,
        "uniqKey": None,
        "tags": "Tag1",
        "keys": "k7",
        "properties": {"TAGS": "Tag1", "KEYS": "k7"},
        "bodySize": 6,
        "body": "body 7",
    }


def test_get_goes_on_until_enough_messages_have_come(pristine: Path) -> None:
    rows = lines(run("get", pristine, "TopicA", 0, "--count", 100))
    assert [row["queueOffset"] for row in rows] == list(range(20))
    tagged = lines(run("get", pristine, "TopicA", 0, "--tags", "Tag0 || Tag2", "--count", 5))
    assert len(tagged) == 5
    assert {row["tags"] for row in tagged} == {"Tag0", "Tag2"}


def test_get_by_time(pristine: Path) -> None:
    (row,) = lines(run("get", pristine, "TopicA", 0, "--count", 1, "--offset", 6))
    time = row["storeTimestamp"]
    (same,) = lines(run("get", pristine, "TopicA", 0, "--count", 1, "--time", time))
    (later,) = lines(run("get", pristine, "TopicA", 0, "--count", 1, "--time", time + 1))
    assert (same["queueOffset"], later["queueOffset"]) == (6, 7)


def test_get_forms(pristine: Path) -> None:
    arguments = ("get", pristine, "TopicA", 0, "--count", 2)
    assert len(json.loads(run(*arguments, "--format", "json").stdout)) == 2
    table = run(*arguments, "--format", "table").stdout
    assert table.split()[:3] == ["topic", "queue", "offset"]
    assert "body 0" in table
    assert "2023-11-1" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Nowhere", 0), "there is no topic 'Nowhere'"),
        (("TopicA", 7), "has no queue 7, only 0, 1"),
        (("TopicA", 0, "--offset", 999), "holds the offsets 0 to 19"),
        (("TopicA", 0, "--tags", "TagX"), "NO_MATCHED_MESSAGE"),
    ],
)
def test_get_without_a_hit(pristine: Path, arguments: tuple[Any, ...], message: str) -> None:
    result = run("get", pristine, *arguments, code=1)
    assert result.stdout == ""
    assert message in result.stderr
    assert run("get", pristine, *arguments, "--quiet", code=1).stderr == ""


# --- find and show ----------------------------------------------------------------------------


def test_find(pristine: Path) -> None:
    (row,) = lines(run("find", pristine, "--topic", "TopicA", "--key", "k17"))
    assert row["body"] == "body 17"
    (row,) = lines(run("find", pristine, "--unique-key", "00AA"))
    assert base64.b64decode(row["bodyBase64"]) == b"\xff\xfe\x00binary"
    assert "body" not in row
    rows = lines(run("find", pristine, "--topic", "TopicA", "--tags", "Tag1", "--limit", 3))
    assert [row["keys"] for row in rows] == ["k1", "k4", "k7"]
    begin, end = rows[1]["storeTimestamp"], rows[2]["storeTimestamp"]
    found = lines(run("find", pristine, "--tags", "Tag1", "--begin", begin, "--end", end))
    assert [row["keys"] for row in found] == ["k4"]


def test_find_without_a_hit_or_a_condition(pristine: Path) -> None:
    assert "no message meets" in run("find", pristine, "--key", "k999", code=1).stderr
    assert "at least one condition" in run("find", pristine, code=2).stderr


def test_show_by_offset_and_by_id(pristine: Path) -> None:
    (row,) = lines(run("find", pristine, "--topic", "TopicA", "--key", "k17"))
    assert lines(run("show", pristine, row["physicalOffset"])) == [row]
    assert json.loads(run("show", pristine, row["offsetMsgId"], "-f", "json").stdout) == row
    table = run("show", pristine, row["offsetMsgId"].lower(), "-f", "table").stdout
    fields = dict(line.split(None, 1) for line in table.splitlines() if line[:1].strip())
    assert fields["queueOffset"] == str(row["queueOffset"])
    assert fields["body"] == "body 17"
    assert "KEYS=k17" in table


def test_show_of_a_binary_body_is_a_hex_dump(pristine: Path) -> None:
    (row,) = lines(run("find", pristine, "--topic", "TopicB", "--limit", 1))
    table = run("show", pristine, row["physicalOffset"], "-f", "table").stdout
    assert "00000000  ff fe 00 62 69 6e 61 72 79" in table
    assert "...binary" in table


def test_show_without_a_hit(pristine: Path) -> None:
    assert "no record starts there" in run("show", pristine, 3, code=1).stderr
    assert "no record starts there" in run("show", pristine, 2**70, code=1).stderr
    assert "neither a log offset nor a message id" in run("show", pristine, "x1", code=2).stderr


# --- what a store holds must not reach the terminal -------------------------------------------


@pytest.mark.parametrize("form", ["table", "json", "ndjson"])
@pytest.mark.parametrize("command", ["get", "find", "show"])
def test_no_control_character_is_printed(pristine: Path, command: str, form: str) -> None:
    (row,) = lines(run("find", pristine, "--topic", NASTY_TOPIC, "--key", "key"))
    assert row["body"] == NASTY_BODY
    what = {
        "get": (NASTY_TOPIC, 0),
        "find": ("--topic", NASTY_TOPIC),
        "show": (row["physicalOffset"],),
    }
    result = run(command, pristine, *what[command], "--format", form)
    text = result.stdout.replace("\n", "")
    assert not [c for c in text if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c == "\u202e"]
    assert "[red]tag[/red]" in text
    if form == "table":
        assert "\\x1b[31m" in text
    else:
        assert "[bold]markup[/bold] :smile:" in text


def test_errors_print_no_control_character(tmp_path: Path) -> None:
    result = run("get", tmp_path / "no\x1b[31mwhere", "T", 0, code=3)
    assert "\x1b" not in result.stderr
    assert "\\x1b[31m" in result.stderr


# --- put --------------------------------------------------------------------------------------


def test_put_creates_and_appends(tmp_path: Path) -> None:
    root = tmp_path / "new"
    (first,) = lines(run("put", root, "T", "hello", "--create", "--segment-size", "1MiB"))
    assert first["status"] == "PUT_OK"
    assert (first["physicalOffset"], first["queueOffset"]) == (0, 0)
    assert (root / "commitlog" / ("0" * 20)).stat().st_size == 1 << 20
    result = run(
        "put", root, "T", "-", "--tags", "A", "-k", "k1", "-k", "k2", "--property", "a=b=c",
        "--format", "table", stdin=b"\x00\xffraw",
    )  # fmt: skip
    assert result.stdout.startswith("PUT_OK: queue offset 1, log offset")
    (row,) = lines(run("find", root, "--topic", "T", "--key", "k2"))
    assert base64.b64decode(row["bodyBase64"]) == b"\x00\xffraw"
    assert row["properties"] == {"a": "b=c", "TAGS": "A", "KEYS": "k1 k2"}
    run("verify", root)


def test_put_refusals(root: Path, tmp_path: Path) -> None:
    assert "there is no store" in run("put", tmp_path / "none", "T", "b", code=3).stderr
    assert not (tmp_path / "none").exists()
    run("put", root, "a/b", "body", code=2)
    run("put", root, "T", "body", "--property", "novalue", code=2)
    run("put", root, "T", "body", "--property", "a=1", "--property", "a=2", code=2)
    with rocketstore.open(root, "r+"):
        assert "open for writing" in run("put", root, "T", "body", code=4).stderr
    refused = run("put", root, "T" * 128, "body", code=1)
    assert lines(refused)[0]["status"] == "MESSAGE_ILLEGAL"


def test_put_into_a_damaged_store_is_refused(root: Path) -> None:
    segment = root / "commitlog" / ("0" * 20)
    with open(segment, "r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 50)
    before = segment.read_bytes()
    (root / "consumequeue").rename(root / "gone")
    result = run("put", root, "T", "body", code=3)
    assert "nothing was written" in result.stderr
    assert str(segment) in result.stderr
    assert segment.read_bytes() == before


# --- verify -----------------------------------------------------------------------------------


def test_verify_forms_and_exit_codes(root: Path) -> None:
    (summary,) = lines(run("verify", root))
    assert summary["kind"] == "summary"
    assert summary["ok"] is True
    assert (summary["records"], summary["units"]) == (42, 42)
    assert "No findings." in run("verify", root, "-f", "table").stdout
    path = root / "consumequeue" / "TopicA" / "0" / ("0" * 20)
    with open(path, "r+b") as file:
        file.seek(28)
        file.write(b"\x7f")
    finding, summary = lines(run("verify", root, code=1))
    assert (finding["kind"], finding["path"], finding["position"]) == ("unit", str(path), 20)
    assert summary["findingCounts"] == {"unit": 1}
    document = json.loads(run("verify", root, "-f", "json", code=1).stdout)
    assert document["findings"] == [finding]
    table = run("verify", root, "-f", "table", code=1).stdout
    assert "1 finding: 1 unit." in table
    assert str(path) in table
    assert run("verify", root, "--level", "structure", "--limit", 1, code=1)
    run("verify", root, "--level", "nonsense", code=2)
    run("verify", root / "none", code=3)


def test_the_schema_of_verify_is_stable(root: Path) -> None:
    """What programs rely on: further names may come, these stay while the version is 1."""
    path = root / "consumequeue" / "TopicA" / "0" / ("0" * 20)
    with open(path, "r+b") as file:
        file.seek(28)
        file.write(b"\x7f")
    document = json.loads(run("verify", root, "--json", code=1).stdout)
    types = {
        "kind": str, "schemaVersion": int, "ok": bool, "findingCounts": dict, "level": str,
        "logStart": int, "logEnd": int, "records": int, "bytes": int, "queues": int, "units": int,
        "indexFiles": int, "keys": int, "notes": list, "durationSeconds": float, "findings": list,
    }  # fmt: skip
    assert document["schemaVersion"] == 1
    assert {name: type(document[name]) for name in types} == types
    finding = document["findings"][0]
    names = {"kind": str, "path": str, "position": int, "physicalOffset": int, "reason": str}
    assert {name: type(finding[name]) for name in names} == names
    page = (Path(__file__).parents[3] / "docs" / "command-line-care.md").read_text(encoding="utf-8")
    assert not [name for name in {**types, **names} if f"`{name}`" not in page]
    assert not [name for name in document if f"`{name}`" not in page]


# --- info -------------------------------------------------------------------------------------


def test_info_of_a_store_of_rocketmq(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (facts,) = lines(run("info", root))
    assert facts["rocketmq"]["version"] == "5.3.3"
    assert facts["lastExit"] == "orderly"
    assert facts["inUse"] is False
    assert facts["geometry"] == {
        "commitLogFileSize": 65536,
        "consumeQueueFileSize": 320,
        "hashSlots": 50,
        "indexEntries": 200,
    }
    assert (facts["log"]["minOffset"], facts["log"]["maxOffset"]) == (0, 150372)
    assert facts["log"]["firstTimestamp"] < facts["log"]["lastTimestamp"]
    assert facts["messages"] == 285
    assert "TopicA" in [topic["topic"] for topic in facts["topics"]]
    table = run("info", root, "--format", "table").stdout
    assert "likely RocketMQ  5.3.3" in table
    assert "50 slots, 200 entries" in table


def test_info_changes_nothing_and_names_what_it_does_not_read(root: Path) -> None:
    for name in ("consumequeue_ext", "timerlog", "dledger-n0", "compaction", "strange"):
        (root / name).mkdir()
    (root / "timerwheel").write_bytes(b"")
    (root / "commitlog" / "notes.txt").write_text("x")
    (root / "abort").write_text("4711")
    before = {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}
    (facts,) = lines(run("info", root))
    assert {str(path): path.stat().st_mtime_ns for path in root.rglob("*")} == before
    named = {row["name"]: row for row in facts["parts"]}
    for name in ("dledger-n0", "compaction", "strange"):
        assert named[name]["treatment"] == "ignored"
    for name in ("timerlog", "timerwheel"):
        assert named[name]["treatment"] == "read, never written"
    assert named["consumequeue_ext"]["treatment"] == "read and written"
    assert named["strange"]["what"] == "not part of a store"
    assert named[os.path.join("commitlog", "notes.txt")]["kind"] == "foreign"
    table = run("info", root, "-f", "table").stdout
    assert "timerwheel: timer wheel; read, never written" in table
    assert "commitLog" not in table
    assert "process 4711" in facts["lastExit"]


def test_info_sees_a_writer(root: Path) -> None:
    import subprocess
    import sys

    script = (
        "import sys, rocketstore\n"
        "with rocketstore.open(sys.argv[1], 'r+'):\n"
        "    print(1, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(rocketstore.__file__).parent.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        assert lines(run("info", root))[0]["inUse"] is True
        child.communicate(b"")
    assert lines(run("info", root))[0]["inUse"] is False


def test_info_of_broken_directories(root: Path, tmp_path: Path) -> None:
    (root / "commitlog" / "00000000000000163840").mkdir()
    (facts,) = lines(run("info", root, code=1))
    assert any("is a directory" in text for text in facts["refusals"])
    assert facts["log"]["files"] >= 1
    assert "TopicA" in {one["topic"] for one in facts["topics"]}
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "not a RocketMQ store" in run("info", empty, "-f", "table", code=3).stdout
    run("info", tmp_path / "none", code=3)
    file = tmp_path / "file"
    file.write_bytes(b"")
    run("info", file, code=3)


def test_a_link_out_of_the_store_is_refused_as_unsafe(root: Path, tmp_path: Path) -> None:
    (root / "consumequeue").rename(tmp_path / "elsewhere")
    (root / "consumequeue").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in run("get", root, "TopicA", 0, code=4).stderr
    (facts,) = lines(run("info", root, code=4))
    assert "symbolic link" in facts["refusals"][0]


# --- the program itself -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [name for of in SECTIONS.values() for name in of if name not in ("config", "spark")]
)
def test_every_help_has_an_example(command: str) -> None:
    text = run(command, "--help").stdout
    assert f"\n    rocketstore {command}" in text
    assert "Examples:" in text


@pytest.mark.parametrize("command", [command.name for command in spark.app.registered_commands])
def test_every_help_of_spark_has_an_example(command: str) -> None:
    text = run("spark", command, "--help").stdout
    assert f"\n    rocketstore spark {command}" in text
    assert re.search("Examples?:", text)


def test_version_and_usage() -> None:
    assert run("--version").stdout.startswith(f"rocketstore {rocketstore.__version__} (")
    assert "Exit status: 0 fine" in run("--help").stdout
    run("nonsense", code=2)
    run("get", "somewhere", code=2)


def test_an_unexpected_error_is_code_70(pristine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(rocketstore.DefaultMessageStore, "find", explode)
    monkeypatch.delenv("ROCKETSTORE_DEBUG", raising=False)
    plain = run("find", pristine, "-t", "T", "--key", "k", code=70).stderr
    assert "unexpected ZeroDivisionError: by nought" in plain
    assert "Traceback" not in plain
    monkeypatch.setenv("ROCKETSTORE_DEBUG", "1")
    assert "Traceback" in run("find", pristine, "-t", "T", "--key", "k", code=70).stderr


def test_an_interrupt_is_code_130(pristine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rocketstore.DefaultMessageStore, "find", interrupt)
    assert "interrupted" in run("find", pristine, "-t", "T", "--key", "k", code=130).stderr


def test_info_knows_an_index_file_of_a_wrong_length(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    short, empty, whole = sorted((root / "index").iterdir())
    os.truncate(short, 2120)
    os.truncate(empty, 0)
    (facts,) = lines(run("info", root))
    named = {row["name"]: row for row in facts["parts"]}
    for path in (short, empty):
        part = named[os.path.join("index", path.name)]
        assert part["kind"] == "indexFile"
        assert part["what"] == "an index file of a wrong length"
        assert "quarantine" in part["treatment"]
    assert os.path.join("index", whole.name) not in named
