"""The command as a process: pipes, exit codes, the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from golden import golden_stores
from support.command_line import COMMAND, ENVIRONMENT


def run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env=ENVIRONMENT, **options)


@pytest.fixture(scope="module")
def golden_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("golden"))


def test_a_pipe_gets_one_utf8_json_object_a_line(golden_root: Path) -> None:
    done = run("find", golden_root, "--topic", "TopicA")
    assert (done.returncode, done.stderr) == (0, b"")
    rows = [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]
    assert len(rows) > 50
    assert "標籤" in {row["tags"] for row in rows}


def test_exit_codes_of_the_process(golden_root: Path, tmp_path: Path) -> None:
    assert run("verify", golden_root).returncode == 0
    assert run("find", golden_root, "--key", "not there").returncode == 1
    assert run("get", golden_root).returncode == 2
    assert run("get", tmp_path / "none", "T", "0").returncode == 3


def test_a_closed_pipe_ends_quietly(golden_root: Path) -> None:
    shell = f"{' '.join(COMMAND)} find {golden_root} --limit 100000 | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"], capture_output=True, env=ENVIRONMENT
    )
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_reader_that_is_gone_before_the_first_line(golden_root: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "info", str(golden_root)],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_command_line_costs_the_library_nothing() -> None:
    heavy = "('typer', 'rich', 'numpy')"
    script = f"import rocketstore, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=ENVIRONMENT)
    assert done.stdout.strip() == b"[]"


def test_the_demo_holds_and_leaves_no_files(tmp_path: Path) -> None:
    golden = golden_stores.HERE / "plain-5.3.3"
    command = [*COMMAND, "demo", "--golden", str(golden)]
    done = subprocess.run(
        command, capture_output=True, env={**ENVIRONMENT, "TMPDIR": str(tmp_path)}, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed a writer (SIGKILL)" in done.stdout
    assert "acknowledged messages are readable" in done.stdout
    assert "749 of 749 recorded questions got RocketMQ's answer" in done.stdout
    assert "FAIL" not in done.stdout
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_demo_fails_when_an_answer_differs(tmp_path: Path) -> None:
    import lzma
    import shutil

    golden = tmp_path / "golden"
    shutil.copytree(golden_stores.HERE / "plain-5.3.3", golden)
    with lzma.open(golden / "expected.ndjson.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    next(row for row in rows if row["ask"]["op"] == "get")["answer"]["next"] += 1
    with lzma.open(golden / "expected.ndjson.xz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    done = run("demo", "--golden", golden)
    assert done.returncode == 1
    assert b"748 of 749 recorded questions" in done.stdout
    assert b"FAIL" in done.stdout
