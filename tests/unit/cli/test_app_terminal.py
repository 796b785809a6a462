"""Tables on terminals: what is shortened, escaped and coloured; and real terminals."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

import rocketstore
from rocketstore.cli.common import output
from rocketstore.cli.common.table import Table, cut_to
from support.command_line import NASTY_TOPIC, make_store

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(rocketstore.__file__).parent.parent)}
COMMAND = [sys.executable, "-m", "rocketstore.cli"]


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def terminal() -> Iterator[Terminal]:
    """Stdout as a terminal of 40 columns without colours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "40")
        patch.setenv("TERM", "dumb")
        with contextlib.redirect_stdout(Terminal()) as stdout:
            yield stdout


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("terminal") / "store")


def test_texts_are_shortened_and_numbers_are_not() -> None:
    with terminal() as shown:
        table = Table(("name", "number", "text"), right=("number",), shrink=("text", "name"))
        table.add(("a name of middling length", 123456789, "a text that is rather long"))
        table.add(("短い名前", 1, "x"))
        table.flush()
    lines = shown.getvalue().splitlines()
    assert len(lines) == 3
    assert max(map(cell_len, lines)) <= 40
    assert "123456789" in lines[1]
    assert lines[1].startswith("a name of middling…  123456789  a text")
    assert "…" not in lines[2]


def test_what_cannot_be_shortened_ends_at_the_edge() -> None:
    with terminal() as shown:
        table = Table(tuple("abcdefgh"), right=tuple("abcdefgh"))
        table.add([10**9] * 8)
        table.flush()
    lines = shown.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= 40
    assert [line[-1] for line in lines] == ["…", "…"]


def test_later_rows_keep_the_widths() -> None:
    with terminal() as shown:
        table = Table(("a", "b"), shrink=("b",))
        table.add(("x", "y" * 10))
        table.flush()
        table.add(("z", "w" * 80))
    assert shown.getvalue().splitlines()[-1] == "z  " + "w" * 9 + "…"


def test_a_pipe_is_not_shortened() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as pipe:
        table = Table(("a", "b"), shrink=("b",))
        table.add(("x", "y" * 1000))
        table.flush()
    assert "y" * 1000 in pipe.getvalue()


def test_csv_is_escaped_on_a_terminal_only() -> None:
    with terminal() as shown, output.Rows(output.Format.CSV, ("a",)) as rows:
        rows.write({"a": "x\x1by"})
    assert shown.getvalue() == "a\nx\\x1by\n"
    with (
        contextlib.redirect_stdout(io.StringIO()) as pipe,
        output.Rows(output.Format.CSV, ("a", "b")) as rows,
    ):
        rows.write({"a": "x\x1by", "b": True})
    assert pipe.getvalue() == "a,b\nx\x1by,true\n"


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("短い名前", 5, "短い…"),
        ("短い名前", 4, "短…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_cut_to(text: str, width: int, expected: str) -> None:
    assert cut_to(text, width) == expected


def on_a_terminal(*arguments: object, **variables: str) -> str:
    """What a command writes to a real pseudo-terminal."""
    import pty

    parent, child = pty.openpty()
    environment = {
        **{key: value for key, value in ENVIRONMENT.items() if key != "NO_COLOR"},
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        **variables,
    }
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=child, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(child)
        data = b""
        with contextlib.suppress(OSError):  # the terminal's end is an error on Linux
            while part := os.read(parent, 65536):
                data += part
        assert process.wait(120) == 0
    os.close(parent)
    return data.decode("utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_real_terminal(pristine: Path) -> None:
    text = on_a_terminal("get", pristine, NASTY_TOPIC, 0)
    plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\r\n", "\n")
    assert text != plain, "headings are bold"
    assert "\x1b" not in plain
    assert plain.split()[:2] == ["topic", "queue"]
    assert max(map(cell_len, plain.splitlines())) <= 80
    assert "\x1b[3" not in on_a_terminal("verify", pristine, NO_COLOR="1")
    assert "\x1b[3" in on_a_terminal("verify", pristine)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to send")
def test_ctrl_c_ends_a_follower_with_130(pristine: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "tail", str(pristine), "-n", "1", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"{")
        for _ in range(12):  # Python drops an interrupt that comes inside a finalizer
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(timeout=10)
                break
    assert (process.returncode, output) == (130, b"")
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
