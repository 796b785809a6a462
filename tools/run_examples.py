#!/usr/bin/env python3
"""Run the command-line examples of the documentation and update their output.

    tools/run_examples.py [--check] [FILE ...]

A block of commands is run if a comment precedes it:

    <!-- unpack: broker-5.3.3 as store -->      a golden store, for the blocks that follow
    <!-- run -->                                the block that follows
    <!-- run exit=1 -->                         its last command ends with this status
    <!-- run changing -->                       its numbers differ from run to run
    <!-- run loose -->                          help: its layout is not compared, nor defaults
    <!-- run unchecked -->                      --check skips it

In such a block, lines that begin with ``$ `` are commands. All other lines are their output,
including stderr, and are rewritten. All blocks of a file run one after another in one temporary
folder, in UTC and with ``--format table`` as the default. ``--check`` writes nothing and fails if
the output differs; durations are not compared.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    *("README.md", "docs/command-line.md", "docs/command-line-care.md"),
    "docs/command-line-groups.md",
    "docs/command-line-doctor.md",
    "docs/command-line-repair.md",
    "docs/command-line-config.md",
    "docs/command-line-export.md",
    "docs/command-line-looking.md",
    "docs/command-line-moving.md",
    "docs/guide/runbook.md",
    "docs/guide/which-command.md",
    "docs/performance.md",
)
WIDTH = 100
_UNPACK = re.compile(r"<!-- unpack: (\S+) as (\S+) -->")
_RUN = re.compile(r"<!-- run((?: (?:exit=\d+|changing|loose|unchecked))*) -->")
_FENCE = "```"
#: Characters of a command line that needs a shell.
_SHELL = re.compile(r"[|<>;&$`*]")
#: Before a pipe, the command's default format applies.
_PROGRAM = """#!/bin/sh
if [ -p /dev/stdout ]; then unset ROCKETSTORE_FORMAT; fi
exec "{python}" -m rocketstore.cli "$@"
"""
#: Durations in outputs.
_TOOK = (
    (re.compile(r"in \d+\.\d s \([\d,]+ records/s\)"), "in # s (# records/s)"),
    (re.compile(r'"durationSeconds": [\d.]+'), '"durationSeconds": #'),
)


@dataclass
class Block:
    """One block that is run: its lines are ``lines[first:stop]`` of the file."""

    first: int
    stop: int
    exit_code: int
    words: frozenset[str]


class ExampleError(Exception):
    """An example does not behave as the page says."""


def blocks_of(lines: list[str], path: str) -> Iterator[Block | tuple[str, str]]:
    """Yield blocks to run, and (store, name) to unpack, in the order of the page."""
    for number, line in enumerate(lines):
        unpack, run = _UNPACK.fullmatch(line), _RUN.fullmatch(line)
        if unpack:
            yield unpack[1], unpack[2]
        elif run:
            first = number + 1
            if first >= len(lines) or not lines[first].startswith(_FENCE):
                raise ExampleError(f"{path}:{first}: no block follows the comment")
            stop = next(
                (at for at in range(first + 1, len(lines)) if lines[at].startswith(_FENCE)), None
            )
            if stop is None:
                raise ExampleError(f"{path}:{first}: the block has no end")
            code = re.search(r"exit=(\d+)", run[1])
            words = frozenset(run[1].split())
            yield Block(first + 1, stop, int(code[1]) if code else 0, words)
        elif line.startswith(("<!-- run", "<!-- unpack")):
            raise ExampleError(f"{path}:{number + 1}: cannot read {line!r}")


def settle(text: str, words: frozenset[str]) -> str:
    """Return the text without the parts that differ from run to run."""
    for pattern, instead in _TOOK:
        text = pattern.sub(instead, text)
    if "loose" in words:
        return " ".join(_help_words(text))
    if "changing" in words:
        text = re.sub(r"rocketstore-demo-\w+", "rocketstore-demo", text)
        text = re.sub(r"\b[0-9A-F]{32}\b", "#", text)
        text = re.sub(r"[ -]{2,}", " ", re.sub(r"\d[\d,.]*", "#", text))
    return text


def _help_words(text: str) -> list[str]:
    """Return the words of a help text that every version of the command-line library shows.

    Metavars, defaults and ranges (in brackets, or upper case) and line breaks differ.
    """
    text = re.sub(r"<[^>\n]*>|\[[^\]]*\]|\{[^}]*\}", " ", text)
    words = re.findall(r"(?<![\w-])-{0,2}[a-zA-Z][\w'-]*", text)
    return [word for word in words if not word.isupper()]


@contextmanager
def playground() -> Iterator[Path]:
    """Change to a temporary folder, with ``rocketstore`` as a command."""
    import rocketstore

    before, here = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="rocketstore-examples-") as name:
        folder, programs = Path(name, "here"), Path(name, "bin")
        folder.mkdir()
        programs.mkdir()
        program = programs / "rocketstore"
        program.write_text(_PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        os.environ.update(
            PATH=f"{programs}{os.pathsep}{before.get('PATH', os.defpath)}",
            PYTHONPATH=str(Path(rocketstore.__file__).parents[1]),
            ROCKETSTORE_FORMAT="table",
            TZ="UTC",
            COLUMNS=str(WIDTH),
            LC_ALL="C.UTF-8",
        )
        time.tzset()
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(before)
            time.tzset()


def unpack(store: str, name: str) -> None:
    """Unpack a golden store into the current folder under a name."""
    archive = ROOT / "tests" / "golden" / store / "store.tar.xz"
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        with tarfile.open(archive, "r:xz") as files:
            # Python before 3.11.4 has no filters.
            files.extractall(
                scratch, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
            )
        os.rename(Path(scratch, "store"), name)


def run_command(command: str) -> tuple[str, int]:
    """Run one command line; return its output and exit status."""
    if command.startswith("rocketstore ") and not _SHELL.search(command):
        from typer.testing import CliRunner

        from rocketstore.cli.app import app

        result = CliRunner().invoke(app, shlex.split(command)[1:], prog_name="rocketstore")
        return result.output, result.exit_code
    with tempfile.TemporaryFile() as output:  # not a pipe, so the output is for people
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output.seek(0)
        return output.read().decode("utf-8", "replace"), done.returncode


def play(lines: list[str], block: Block, path: str) -> list[str]:
    """Run a block's commands; return its lines with their output."""
    commands = [line for line in lines[block.first : block.stop] if line.startswith("$ ")]
    if not commands:
        raise ExampleError(f"{path}:{block.first}: no command in the block")
    written: list[str] = []
    for number, command in enumerate(commands):
        output, code = run_command(command[2:])
        expected = block.exit_code if number == len(commands) - 1 else 0
        if code != expected:
            raise ExampleError(f"{path}: `{command[2:]}` ended with {code}:\n{output}")
        written += [command, *(line.rstrip() for line in output.rstrip("\n").split("\n") if output)]
    return written


def renewed(text: str, path: str, *, check: bool = False) -> str:
    """Return the page with new output of its examples; equivalent output stays unchanged."""
    lines = text.split("\n")
    found = list(blocks_of(lines, path))
    replacements: list[tuple[Block, list[str]]] = []
    with playground():
        for item in found:
            if isinstance(item, tuple):
                unpack(*item)
                continue
            if check and "unchecked" in item.words:
                continue
            written = play(lines, item, path)
            old, new = "\n".join(lines[item.first : item.stop]), "\n".join(written)
            if settle(old, item.words) != settle(new, item.words):
                replacements.append((item, written))
    for block, written in reversed(replacements):
        lines[block.first : block.stop] = written
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Update or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(description="Run the examples of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    parser.add_argument("files", nargs="*", metavar="FILE", default=FILES)
    options = parser.parse_args(arguments)
    failures = 0
    for name in options.files:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        try:
            new = renewed(text, name, check=options.check)
        except ExampleError as error:
            print(error, file=sys.stderr)
            failures += 1
            continue
        if new == text:
            continue
        if options.check:
            import difflib

            print(f"{name} differs from the output of its commands; run tools/run_examples.py")
            print("\n".join(difflib.unified_diff(text.split("\n"), new.split("\n"), lineterm="")))
            failures += 1
        else:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {name}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    sys.exit(main())
