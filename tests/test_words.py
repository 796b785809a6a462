"""Words that have a plainer one in the field: their number may only fall.

Names that are RocketMQ's or public (``dispatch_behind_nbytes``) are not counted.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: The word to write instead, and the expression that finds the other one.
WORDS = {
    "after, past": r"(?<![.`\"])\bbehind\b",
    "before": r"\bin front( of)?\b",
    "report, list, name": r"\b(told|untold|tells|telling|tell)\b(?!\()",
    "who acts": r"\b([Nn]obody|[Ww]hoever|[Ss]omebody)\b",
    "rebuild, rewrite": r"\banew\b|\b(made|make|makes|making|build|builds|built) again\b",
    "no longer": r"\bany more\b",
    "truncate": r"(?<![Pp]ower )(?<![.`\"])(?<!\| )\bcuts?\b|\bcutting\b",
    "skip, ignore": r"\b((passes|passed|passing) over|(left|leave|leaves) alone)\b",
    "does not support": r"\bknows? (no|nothing)\b",
    "must be one of": r"(?<!there )\b(is|are) none\b",
    "detect": r"\b(finds?|found) out\b",
}
#: Lines with such a word that are right as they are, such as a public name.
COUNTS = {
    "README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs": 0,
    "src": 5,
    "tests fuzz benchmarks tools": 1,
}
SUFFIXES = frozenset({".py", ".pyi", ".pyx", ".pxd", ".h", ".md"})


def files_of(places: str) -> list[Path]:
    """The files of these files and folders, without what Python or a build makes."""
    found: list[Path] = []
    for place in places.split():
        path = ROOT / place
        found += [path] if path.is_file() else sorted(path.rglob("*"))
    return [path for path in found if path.suffix in SUFFIXES and path != Path(__file__)]


def lines_with_words(places: str) -> list[str]:
    """``file:line: text (better word)`` of each line of these files and folders with a word."""
    found = []
    for path in files_of(places):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            found += [
                f"{path.relative_to(ROOT)}:{number}: {line.strip()} ({better})"
                for better, expression in WORDS.items()
                if re.search(expression, line)
            ]
    return found


@pytest.mark.parametrize("places", COUNTS)
def test_riddle_words_become_fewer(places: str) -> None:
    found = lines_with_words(places)
    limit = COUNTS[places]
    assert len(found) <= limit, "\n".join(found)
    assert len(found) == limit, f"only {len(found)} are left: lower the count of {places!r}"


def test_a_riddle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("Zeros behind the end are cut.\nNothing here.\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert len(lines_with_words("page.md")) == 2
