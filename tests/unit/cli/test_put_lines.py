"""``put --lines``: messages in the vocabulary in which they are written, and going on later."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore.cli.commands import put_lines
from support.command_line import lines, make_store, run

#: What the store computes again.
ANEW = {"physicalOffset", "queueOffset", "storeSize", "storeTimestamp", "offsetMsgId"}


def ndjson(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def kept(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ANEW}


def create(path: Path, *arguments: Any, **options: Any) -> Any:
    return run("put", path, "--create", "--segment-size", "1MiB", *arguments, **options)


@pytest.mark.parametrize("name", ["plain-5.3.3", "plain-4.9.8"])
def test_what_was_scanned_can_be_put(name: str, tmp_path: Path) -> None:
    """Tags, keys, hosts of both families, half messages, batches, odd properties: all come back."""
    root = golden_stores.unpack(name, tmp_path)
    text = run("scan", root).stdout
    version = ("--broker-version", name.partition("-")[2])
    summary = lines(create(tmp_path / "new", "--lines", "-", *version, stdin=text.encode()))[0]
    again = run("scan", tmp_path / "new").stdout
    before = [kept(json.loads(line)) for line in text.splitlines()]
    after = [kept(json.loads(line)) for line in again.splitlines()]
    assert (summary["lines"], summary["stored"]) == (len(before), len(before))
    assert after == before
    run("verify", tmp_path / "new")


def test_a_record_crc_is_not_copied(tmp_path: Path) -> None:
    root = golden_stores.unpack("crc-5.3.3", tmp_path)
    text = run("scan", root, "--limit", 5).stdout
    assert "__CRC32#" in text
    create(tmp_path / "new", "--lines", "-", stdin=text.encode())
    assert "__CRC32#" not in run("scan", tmp_path / "new").stdout


def test_delivered_messages_are_not_delayed_again(tmp_path: Path) -> None:
    """A broker leaves the delay level in what it delivers, and the topic it was put to."""
    delivered = {"topic": "T", "properties": {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "0"}}
    waiting = {"topic": "T", "properties": {"DELAY": "2"}}
    create(tmp_path / "new", "--lines", "-", stdin=ndjson(delivered, waiting))
    first, second = lines(run("scan", tmp_path / "new"))
    assert (first["topic"], first["properties"]) == ("T", {"REAL_TOPIC": "T", "REAL_QID": "0"})
    assert second["topic"] == "SCHEDULE_TOPIC_XXXX"


def test_lines_by_hand(tmp_path: Path) -> None:
    rows = (
        {"topic": "T", "body": "text é"},
        {"topic": "T", "queueId": 3, "tags": "A", "keys": "k1 k2", "bodyBase64": "/wA="},
        {"topic": "T", "properties": {"p": "v"}, "uniqKey": "00AA", "body": None, "tags": None},
    )
    source = tmp_path / "lines"
    source.write_bytes(ndjson(rows[0]) + b"\n  \n" + ndjson(*rows[1:]))
    (summary,) = lines(create(tmp_path / "new", "--lines", source))
    assert (summary["lines"], summary["stored"], summary["firstPhysicalOffset"]) == (5, 3, 0)
    first, second, third = lines(run("scan", tmp_path / "new"))
    assert (first["body"], first["properties"]) == ("text é", {})
    assert (second["queueId"], second["bodyBase64"]) == (3, "/wA=")
    assert second["properties"] == {"TAGS": "A", "KEYS": "k1 k2"}
    assert third["properties"] == {"p": "v", "UNIQ_KEY": "00AA"}
    table = create(tmp_path / "new", "--lines", source, "--format", "table").stdout
    assert table.startswith("3 messages stored (")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff", "it is not UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b'{"body": "x"}', "no topic"),
        (b'{"topic": 3}', "topic is 3; it must be str"),
        (b'{"topic": "T", "queueId": "0"}', "queueId is '0'; it must be int"),
        (b'{"topic": "T", "queueId": true}', "queueId is True; it must be int"),
        (b'{"topic": "T", "queueId": -1}', "queue"),
        (b'{"topic": "T", "queueId": 99999999999}', ""),
        (b'{"topic": "T", "flag": 1e400}', "flag is inf"),
        (b'{"topic": "T", "text": "x"}', "unknown name 'text'"),
        (b'{"topic": "T", "body": "x", "bodyBase64": "eA=="}', "both body and bodyBase64"),
        (b'{"topic": "T", "bodyBase64": "x"}', "bodyBase64:"),
        (b'{"topic": "T", "body": "\\ud800"}', "body is"),
        (b'{"topic": "T", "properties": [1]}', "properties is not a JSON object"),
        (b'{"topic": "T", "properties": {"a": 1}}', "property 'a' is 1; it must be str"),
        (b'{"topic": "T", "properties": {"a": "\\u0001"}}', ""),
        (b'{"topic": "T", "tags": "A", "properties": {"TAGS": "B"}}', "property TAGS is 'B'"),
        (b'{"topic": "T", "bornHost": "nowhere"}', "nowhere"),
        (b'{"topic": "a/b"}', "a/b"),
    ],
)
def test_a_wrong_line_is_named_and_can_be_gone_on_at(
    line: bytes, reason: str, tmp_path: Path
) -> None:
    good = ndjson({"topic": "T", "body": "one"}, {"topic": "T", "body": "two"})
    result = create(tmp_path / "new", "--lines", "-", stdin=good + line + b"\n" + good, code=2)
    assert "stdin, line 3: " in result.stderr
    assert reason in result.stderr
    assert "--skip 2 continues" in result.stderr
    assert lines(result)[0]["stored"] == 2
    mended = good + ndjson({"topic": "T", "body": "three"})
    run("put", tmp_path / "new", "--lines", "-", "--skip", 2, stdin=mended)
    rows = lines(run("scan", tmp_path / "new"))
    assert [row["body"] for row in rows] == ["one", "two", "three"]


def test_a_refused_line_is_a_finding(tmp_path: Path) -> None:
    text = ndjson({"topic": "T" * 200})
    result = create(tmp_path / "new", "--lines", "-", stdin=text, code=1)
    assert "line 1: the store answered MESSAGE_ILLEGAL" in result.stderr


def test_a_line_without_end_is_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_lines, "_LONGEST_LINE_NBYTES", 100)
    text = ndjson({"topic": "T", "body": "x" * 200})
    result = create(tmp_path / "new", "--lines", "-", stdin=text, code=2)
    assert "longer than 100 bytes" in result.stderr


def test_each_message_is_answered_when_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_lines, "_MESSAGES_A_SYNC", 4)
    flushed: list[int] = []
    flush = rocketstore.DefaultMessageStore.flush

    def noted(self: Any) -> int:
        flushed.append(flush(self))
        return flushed[-1]

    monkeypatch.setattr(rocketstore.DefaultMessageStore, "flush", noted)
    text = ndjson(*({"topic": "T", "body": str(number)} for number in range(10)))
    rows = lines(create(tmp_path / "new", "--lines", "-", "--each", stdin=text))
    assert [row["queueOffset"] for row in rows] == list(range(10))
    assert {row["status"] for row in rows} == {"PUT_OK"}
    ends = [row["physicalOffset"] + row["storeSize"] for row in rows]
    assert flushed == [ends[3], ends[7], ends[9]]


class Interrupting(io.BytesIO):
    """Sends SIGINT to its own process while the third line is waited for."""

    def readline(self, size: int | None = -1, /) -> bytes:
        if self.tell() and self.getvalue()[: self.tell()].count(b"\n") == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return super().readline(size)


def test_ctrl_c_keeps_what_was_put_and_says_where_to_go_on(tmp_path: Path) -> None:
    text = ndjson(*({"topic": "T", "body": str(number)} for number in range(5)))
    handler = signal.getsignal(signal.SIGINT)
    with rocketstore.open(tmp_path / "new", "x", mapped_file_size_commit_log=1 << 20) as store:
        putter = put_lines._Putter(store, None, 1 << 20)
        with put_lines._Interrupts() as interrupts:
            for line in _until_interrupted(interrupts, Interrupting(text)):
                assert putter.put(line) is None
        assert (putter.done_lines, interrupts.wanted) == (2, signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


def _until_interrupted(interrupts: put_lines._Interrupts, file: io.BytesIO) -> Any:
    try:
        yield from interrupts.lines(file)
    except KeyboardInterrupt:
        return


def test_an_interrupted_command_is_code_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, file: Any) -> Any:
        yield file.readline()
        yield file.readline()
        raise KeyboardInterrupt

    monkeypatch.setattr(put_lines._Interrupts, "lines", interrupted)
    text = ndjson(*({"topic": "T", "body": str(number)} for number in range(5)))
    result = create(tmp_path / "new", "--lines", "-", stdin=text, code=130)
    assert "interrupted; 2 lines done, --skip 2 continues" in result.stderr
    assert len(lines(run("scan", tmp_path / "new"))) == 2


def test_usage(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    for arguments in (
        (),
        ("T",),
        ("T", "body", "--lines", "-"),
        ("--lines", "-", "--tags", "A"),
        ("--lines", "-", "--key", "A"),
        ("T", "body", "--skip", 1),
        ("T", "body", "--each"),
    ):
        run("put", root, *arguments, code=2)
    run("put", root, "--lines", tmp_path / "none", code=3)
    assert len(lines(run("scan", root))) == 42
