"""``rocketstore consume``: what a group gets, and what is committed when the output ends."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli.app import app
from rocketstore.config_managers import ConsumerOffsetManager
from support.command_line import COMMAND, ENVIRONMENT, CliRunner
from support.directory import files_below

PATIENCE_S = 60.0


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["consume", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def bodies(output: str) -> list[int]:
    return [int(json.loads(line)["body"]) for line in output.splitlines()]


def committed(root: Path) -> dict[int, int]:
    manager = ConsumerOffsetManager(root)
    manager.load()
    return manager.query_offsets("g", "T")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rocketstore.open(tmp_path / "s", "x") as store:
        for number in range(100):
            store.put("T", b"%d" % number, properties={"n": str(number)})
    return tmp_path / "s"


def test_a_group_goes_on_where_it_stopped(root: Path) -> None:
    code, output, _ = run(root, "T", "-g", "g", "--max", 3)
    assert (code, bodies(output), committed(root)) == (0, [0, 1, 2], {0: 3})
    code, output, _ = run(root, "T", "-g", "g", "--where", "n >= 98")
    assert (code, bodies(output), committed(root)) == (0, [98, 99], {0: 100})
    code, output, errors = run(root, "T", "-g", "g")
    assert (code, output) == (1, "")
    assert "no message of T that g has not consumed" in errors
    assert run(root, "T", "-g", "other", "--start", "latest")[0] == 1
    assert run(root, "T", "-g", "early", "--start", "-1h", "--max", 1)[0] == 0


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_formats(root: Path, form: str) -> None:
    code, output, _ = run(root, "T", "-g", "g", "-n", 2, "-f", form)
    assert code == 0
    assert committed(root) == {0: 2}
    if form == "json":
        assert [one["queueOffset"] for one in json.loads(output)] == [0, 1]
    else:
        assert len(output.splitlines()) == 3


def test_without_committing_nothing_changes(root: Path) -> None:
    before = files_below(root)
    with rocketstore.open(root, "r+") as writer:
        code, output, _ = run(root, "T", "-g", "g", "--no-commit", "-n", 5)
        assert (code, bodies(output)) == (0, [0, 1, 2, 3, 4])
        assert run(root, "T", "-g", "g")[0] == 4  # the store is in use
        writer.put("T", b"100")
    assert "config" not in {Path(name).parts[0] for name in files_below(root)}
    assert before.keys() <= files_below(root).keys()


def test_wrong_usage(root: Path) -> None:
    for arguments in (
        ("T", "-g", "a b"), ("T", "-g", ""), ("T",), ("T", "-g", "g", "--start", "soon"),
        ("T", "-g", "g", "--max", "0"), ("T", "-g", "g", "--where", "n >"), ("", "-g", "g"),
    ):  # fmt: skip
        assert run(root, *arguments)[0] == 2, arguments
    assert run(root.parent / "none", "T", "-g", "g")[0] == 3


def test_an_offset_past_the_queue_is_named(root: Path) -> None:
    manager = ConsumerOffsetManager(root)
    manager.commit_offset("g", "T", 0, 101)
    manager.persist()
    code, _, errors = run(root, "T", "-g", "g")
    assert (code, "from offset 101" in errors) == (3, True)


def test_a_closed_pipe_commits_what_it_took(root: Path) -> None:
    with rocketstore.open(root, "r+") as store:
        for number in range(100, 3000):
            store.put("T", b"%d" % number + b" " * 1000)
    process = subprocess.Popen(
        [*COMMAND, "consume", str(root), "T", "-g", "g"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    seen = [json.loads(process.stdout.readline())["queueOffset"] for _ in range(150)]
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
    assert seen == list(range(150))
    offset = committed(root)[0]
    assert 150 <= offset < 3000
    code, output, _ = run(root, "T", "-g", "g", "-n", 1)
    assert (code, json.loads(output)["queueOffset"]) == (0, offset)


def test_an_interrupt_commits_what_was_printed(root: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "consume", str(root), "T", "-g", "g", "--follow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(100)]
    deadline = time.monotonic() + PATIENCE_S
    while committed(root) != {0: 100}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, bodies("".join(lines)), rest) == (130, list(range(100)), "")
    assert "interrupted after 100 messages" in errors
    assert committed(root) == {0: 100}


def test_a_follower_without_commits_reads_on_beside_a_writer(root: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "consume", str(root), "T", "-g", "g", "--no-commit", "-F", "-n", "150"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    with rocketstore.open(root, "r+") as store:
        for number in range(100, 150):
            store.put("T", b"%d" % number)
            time.sleep(0.002)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors, bodies(output)) == (0, "", list(range(150)))


def retried(root: Path) -> None:
    options: dict[str, Any] = {"message_delay_level": "0s 0s 0s"}
    with rocketstore.open(root, "r+", **options) as store:
        with store.consumer("g", "T", ack="manual") as consumer:
            for message in consumer.poll(3):
                consumer.retry(message) if message.body != b"2" else consumer.dead(message)
            consumer.commit(sync=True)
        while store.deliver_due() or store.delays().pending:
            time.sleep(0.01)


def test_retried_messages_show_their_own_topic(root: Path) -> None:
    retried(root)
    code, output, _ = run(root, "T", "-g", "g")
    rows = [json.loads(line) for line in output.splitlines()]
    assert (code, len(rows), {row["topic"] for row in rows}) == (0, 99, {"T"})
    again = [row for row in rows if row["reconsumeTimes"]]
    assert [row["body"] for row in again] == ["0", "1"]


def groups(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["groups", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_groups_are_listed(root: Path) -> None:
    assert groups(root) == (0, "")
    retried(root)
    before = files_below(root)
    code, output = groups(root, "-f", "ndjson")
    row = json.loads(output)
    assert code == 0
    assert row.pop("lagMs") >= 0
    assert row == {
        "group": "g", "queues": 1, "lag": 97, "retryCount": 2, "deadLetterCount": 1,
    }  # fmt: skip
    code, output = groups(root, "g", "-f", "json")
    document = json.loads(output)
    assert (code, document["lag"], document["retryCount"]) == (0, 97, 2)
    assert [(one["topic"], one["committed"], one["maxOffset"]) for one in document["queues"]] == [
        ("T", 3, 100),
    ]  # fmt: skip
    code, output = groups(root, "g", "-f", "table")
    assert output.splitlines()[-1] == "97 messages to consume; 2 messages to retry, 1 dead letter."
    assert groups(root, "-f", "table")[1].splitlines()[1].split()[:3] == ["g", "1", "97"]
    assert groups(root, "none") == (1, "")
    assert files_below(root) == before


def test_a_group_whose_queue_ends_before_its_offset(root: Path) -> None:
    manager = ConsumerOffsetManager(root)
    manager.commit_offset("g", "T", 0, 500)
    manager.persist()
    code, output = groups(root, "g", "-f", "table")
    assert (code, "queue ends before" in output) == (0, True)
    code, output = groups(root, "g", "-f", "json")
    assert json.loads(output)["queues"][0]["beyond"] is True
