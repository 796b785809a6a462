"""The command line in the test's own process, and a small store to try it on."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import typer.testing
from typer.testing import CliRunner, Result

import rocketstore
from rocketstore.cli.app import app

__all__ = ["CliRunner", "Result", "lines", "make_store", "run"]

# The tree of commands is always the same, and making it takes longer than most commands.
typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]

#: The command as a process of its own.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(rocketstore.__file__).parent.parent)}
COMMAND = [sys.executable, "-m", "rocketstore.cli"]
NASTY_TOPIC = "TopicN"
NASTY_BODY = "red \x1b[31m bell \x07 csi \x9b2J bidi \u202e [bold]markup[/bold] :smile:"


def run(
    *arguments: Any,
    code: int = 0,
    stdin: bytes | None = None,
    env: dict[str, str | None] | None = None,
) -> Result:
    """Run one command and check its exit code."""
    texts = [str(part) for part in arguments]
    variables = {"ROCKETSTORE_FORMAT": None, **(env or {})}
    result = CliRunner().invoke(app, texts, input=stdin, env=variables)
    assert result.exit_code == code, (texts, result.output, result.stderr)
    return result


def lines(result: Result) -> list[dict[str, Any]]:
    """The objects of an NDJSON answer."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def make_store(root: Path) -> Path:
    """Write 42 messages, with a clock that goes on by a second each."""
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
    with rocketstore.open(
        root, "x", clock=lambda: next(ticks), mapped_file_size_commit_log=16384,
        mapped_file_size_consume_queue=400, max_hash_slot_num=20, max_index_num=60,
    ) as store:  # fmt: skip
        for number in range(40):
            store.put(
                "TopicA", f"body {number}".encode(), number % 2, f"Tag{number % 3}", f"k{number}"
            )
        store.put("TopicB", b"\xff\xfe\x00binary", 0, unique_key="00AA")
        store.put(NASTY_TOPIC, NASTY_BODY.encode(), 0, "[red]tag[/red]", "key")
        store.wait_dispatched(120)
    return root
