"""The Python examples of a page: find them, run them, compare what they print."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What README reads; the run gives it a copy of a broker's store.
_BROKER_STORE = "/data/rocketmq/store"
#: Where examples of Spark write: its JVM may have started in another folder.
_DATA = "/data/"


class Example(NamedTuple):
    """A piece of Python on a page, and what stands there as its output (``None``: nothing)."""

    line: int
    code: str
    output: str | None


def pages() -> list[Path]:
    """README and every page of the site."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples(page: Path) -> Iterator[Example]:
    """Fenced ``python`` blocks; a ``text`` block right after one is its output."""
    text = page.read_text(encoding="utf-8")
    blocks = list(_FENCE.finditer(text))
    for number, block in enumerate(blocks):
        if block[1] != "python":
            continue
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        output = None
        if (
            following is not None
            and following[1] == "text"
            and not text[block.end() : following.start()].strip()
        ):
            output = following[2]
        yield Example(text.count("\n", 0, block.start()) + 2, block[2], output)


def run_page(page: Path, folder: Path, store: Path) -> list[str]:
    """Run a page's examples one after the other in ``folder``; return what differs."""
    faults = []
    names: dict[str, object] = {"__name__": page.stem}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for example in examples(page):
            code = example.code.replace(_BROKER_STORE, store.as_posix())
            code = code.replace(_DATA, f"{folder.as_posix()}/")
            printed = io.StringIO()
            padded = "\n" * (example.line - 1) + code
            with contextlib.redirect_stdout(printed):
                exec(compile(padded, str(page), "exec"), names)
            if example.output is not None and printed.getvalue() != example.output:
                faults.append(
                    f"{page.name}:{example.line} prints\n{printed.getvalue()}"
                    f"instead of\n{example.output}"
                )
    finally:
        os.chdir(before)
    return faults
