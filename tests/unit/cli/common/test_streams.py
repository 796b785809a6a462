"""Standard streams that are closed, full, or without a reader, in every command.

Daemons and cron start commands with closed streams. ``put … >&-`` ended with 70 and "'NoneType'
object has no attribute 'isatty'", and the message was stored: a script that tried again stored it
twice. And the first files that were opened got the free descriptors, so that what was written to
standard output could have gone into a store.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

import rocketstore
from support.command_line import COMMAND, ENVIRONMENT, make_store, run
from support.forked_command import run_forked

CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
READERS = ("info", "ls", "get TopicA 0", "find --key k1", "show 0", "scan", "tail", "verify")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_store(tmp_path_factory.mktemp("streams") / "store")
    for words in READERS:  # they import what they need once, before any fork
        command, *others = words.split()
        run(command, root, *others)
    return root


def shell(root: Path, words: str, redirections: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command whose streams the shell redirects."""
    command, _, others = words.partition(" ")
    line = f'"$@" {command} {root} {others} {redirections}'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *COMMAND],
        capture_output=True,
        env=ENVIRONMENT,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


def forked(root: Path, words: str, redirections: str) -> tuple[int, str, str]:
    """The same without a start of the interpreter."""
    command, *others = words.split()
    return run_forked([command, str(root), *others], redirections)


def message_count(root: Path) -> int:
    with rocketstore.open(root) as store:
        return sum(1 for _ in store.scan())


@pytest.mark.parametrize("redirections", CLOSED)
def test_put_with_closed_streams_stores_and_is_fine(redirections: str, tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    code, out, err = shell(root, "put TopicA x", redirections)
    assert (code, err) == (0, "")
    assert ("PUT_OK" in out) == (">&-" not in redirections.replace("2>&-", ""))
    assert message_count(root) == 43
    names = {path.name for path in root.rglob("*") if path.is_file()}
    assert "abort" not in names


@pytest.mark.parametrize("words", ["scan", "put --lines /dev/null"])
def test_a_process_of_its_own_with_all_streams_closed(words: str, tmp_path: Path) -> None:
    assert shell(make_store(tmp_path / "store"), words, "<&- >&- 2>&-") == (0, "", "")


def test_a_process_of_its_own_whose_answer_cannot_be_written(pristine: Path) -> None:
    reported = "rocketstore: standard output: No space left on device\n"
    assert shell(pristine, "scan", ">/dev/full") == (3, "", reported)


@pytest.mark.parametrize("words", [*READERS, "clean", "salvage", "put --lines /dev/null"])
def test_every_command_with_all_streams_closed(words: str, tmp_path: Path, pristine: Path) -> None:
    writes = words.partition(" ")[0] not in {reader.partition(" ")[0] for reader in READERS}
    root = make_store(tmp_path / "store") if writes else pristine
    assert forked(root, words, "<&- >&- 2>&-") == (0, "", "")


def test_no_file_of_the_store_gets_a_standard_descriptor(tmp_path: Path) -> None:
    """While ``put --lines`` waits for a line, log and lock do not use descriptors 0, 1 and 2."""
    root = make_store(tmp_path / "store")
    os.mkfifo(tmp_path / "lines")
    shell_words = f'exec "$@" put {root} --lines {tmp_path}/lines <&- >&- 2>&-'
    process = subprocess.Popen(["sh", "-c", shell_words, "sh", *COMMAND], env=ENVIRONMENT)
    with open(tmp_path / "lines", "wb"):
        targets: dict[str, str] = {}
        while process.poll() is None and str(root / "lock") not in targets.values():
            opened = Path("/proc", str(process.pid), "fd")
            # The process closes descriptors while they are read.
            with contextlib.suppress(FileNotFoundError):
                targets = {fd.name: os.readlink(fd) for fd in opened.iterdir()}
        assert [targets.get(name) for name in "012"] == ["/dev/null"] * 3
    assert process.wait() == 0


@pytest.mark.parametrize("words", READERS)
def test_an_answer_that_cannot_be_written_is_an_error(words: str, pristine: Path) -> None:
    code, _, err = forked(pristine, words, ">/dev/full")
    assert code == 3
    assert err == "rocketstore: standard output: No space left on device\n"


@pytest.mark.parametrize("words", ["put TopicA x", "put --lines lines", "put --lines lines --each"])
def test_a_put_whose_answer_is_lost_says_that_it_is_stored(words: str, tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    (tmp_path / "lines").write_text('{"topic": "T", "body": "x"}\n')
    code, _, err = forked(
        root, words.replace("lines lines", f"lines {tmp_path}/lines"), ">/dev/full"
    )
    assert code == 3
    assert "is stored" in err or "lines up to 1 are on disk; --skip 1 continues" in err
    assert "standard output: No space left on device" in err
    assert message_count(root) == 43


def test_messages_that_cannot_be_written_change_no_exit_code(pristine: Path) -> None:
    assert forked(pristine, "scan --topic none", "2>/dev/full") == (1, "", "")
    assert forked(pristine, "scan --start -1", "2>/dev/full")[0] == 2
    assert forked(pristine, "scan --topic none", ">/dev/full 2>/dev/full") == (1, "", "")
    code, out, _ = forked(pristine, "scan --limit 1", "2>/dev/full")
    assert (code, out.count("\n")) == (0, 1)


def test_answers_of_lines_whose_reader_has_gone(tmp_path: Path) -> None:
    """``put --lines --each | head -1`` must not end with 0: not all lines were put."""
    root = make_store(tmp_path / "store")
    with open(tmp_path / "lines", "w", encoding="utf-8") as file:
        file.writelines(f'{{"topic": "T", "body": "{number}"}}\n' for number in range(6000))
    line = f"set -o pipefail; {' '.join(COMMAND)} put {root} --lines {tmp_path}/lines --each"
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -n 1"], capture_output=True, env=ENVIRONMENT, text=True
    )
    assert done.returncode == 3
    stored = message_count(root) - 42
    assert f"--skip {stored} continues" in done.stderr
    assert stored < 6000
