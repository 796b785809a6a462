"""The pages show what the commands write, and the tool that sees to it notices when not."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("run_examples")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/command-line.md",
        "docs/command-line-care.md",
        "docs/command-line-repair.md",
        "docs/command-line-groups.md",
        "docs/command-line-doctor.md",
        "docs/command-line-report.md",
        "docs/command-line-config.md",
        "docs/command-line-export.md",
        "docs/command-line-looking.md",
        "docs/command-line-moving.md",
        "docs/guide/runbook.md",
        "docs/guide/which-command.md",
        "docs/performance.md",
    ],
)
def test_pages_show_what_their_commands_write(
    tool: ModuleType, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(os.environ), Path.cwd()
    code = tool.main(["--check", page])
    assert (dict(os.environ), Path.cwd()) == before
    assert code == 0, "".join(capsys.readouterr())


#: What examples may call besides the commands: programs of packages that every Debian has (Debian's
#: word is "essential"), and what a shell does by itself.
COMMON_PROGRAMS = {
    *("cat", "cp", "cut", "dd", "echo", "false", "grep", "head", "ls", "mkdir", "mv", "printf"),
    *("rm", "sed", "seq", "sort", "tail", "true", "truncate", "uniq", "wc"),
}


def programs(command: str) -> set[str]:
    """The programs that a command line calls."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    found, is_first = set(), True
    for word in words:
        if set(word) <= set("|;&("):
            is_first = True
        elif is_first and "=" not in word:
            found.add(word)
            is_first = False
    return found


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rocketstore ls store | jq -r .kind", {"rocketstore", "jq"}),
        ("A=1 xmllint x 2> /dev/null && echo 'a | b'; tac", {"xmllint", "echo", "tac"}),
        ("(curl x) || wget y", {"curl", "wget"}),
    ],
)
def test_programs_are_found(command: str, expected: set[str]) -> None:
    assert programs(command) == expected


def test_examples_call_nothing_that_a_bare_machine_lacks(tool: ModuleType) -> None:
    """One piped into jq, which no set-up installs: on a bare Debian the test of its page failed."""
    strange = {}
    for name in tool.FILES:
        lines = (ROOT / name).read_text(encoding="utf-8").split("\n")
        for block in tool.blocks_of(lines, name):
            if isinstance(block, tuple):
                continue
            for line in lines[block.first : block.stop]:
                others = programs(line[2:]) - {"rocketstore"} if line.startswith("$ ") else set()
                if others - COMMON_PROGRAMS:
                    strange[f"{name}: {line}"] = others - COMMON_PROGRAMS
    assert not strange


def page(block: str, words: str = "") -> str:
    return f"text\n<!-- run{words} -->\n```console\n{block}\n```\nmore\n"


@pytest.mark.parametrize(
    ("block", "words", "expected"),
    [
        ("$ echo one\none", "", "$ echo one\none"),
        ("$ echo one\ntwo\nthree", "", "$ echo one\none"),
        ("$ echo one", "", "$ echo one\none"),
        ("$ echo a 12 b\na 7 b", "", "$ echo a 12 b\na 12 b"),
        ("$ echo a 12 b\na 7 b", " changing", "$ echo a 12 b\na 7 b"),
        ("$ echo a 12 b\nx 7 b", " changing", "$ echo a 12 b\na 12 b"),
        ("$ echo --all is on\n--all  is\non", " loose", "$ echo --all is on\n--all  is\non"),
        ("$ echo --all is on\n--all was off", " loose", "$ echo --all is on\n--all is on"),
        ("$ echo --all is on\n--some was off", " loose", "$ echo --all is on\n--all is on"),
        ("$ echo e >&2; false\nx", " exit=1", "$ echo e >&2; false\ne"),
        ("$ true\n$ echo x", "", "$ true\n$ echo x\nx"),
        ("$ rocketstore get nowhere T 0", " exit=3", None),
    ],
)
def test_output_is_renewed(tool: ModuleType, block: str, words: str, expected: str | None) -> None:
    new = tool.renewed(page(block, words), "page")
    if expected is None:
        assert "rocketstore: there is no store nowhere" in new
    else:
        assert new == page(expected, words)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (page("$ false"), "ended with 1"),
        (page("$ true", " exit=1"), "ended with 0"),
        (page("$ false\n$ true"), "ended with 1"),
        (page("output alone"), "no command"),
        ("<!-- run -->\ntext", "no block follows"),
        ("<!-- run -->\n```console\n$ true", "no end"),
        ("<!-- run sometimes -->\n", "cannot read"),
    ],
)
def test_a_wrong_example_is_reported(tool: ModuleType, text: str, reason: str) -> None:
    with pytest.raises(tool.ExampleError, match=reason):
        tool.renewed(text, "page")


def test_a_difference_fails_the_check(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(page("$ echo one\ntwo"))
    assert tool.main(["--check", "page.md"]) == 1
    assert "-two" in capsys.readouterr().out
    assert tool.main(["page.md"]) == 0
    assert (tmp_path / "page.md").read_text() == page("$ echo one\none")
    assert tool.main(["--check", "page.md"]) == 0
