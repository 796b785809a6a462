"""Words that have a plainer one in the field: their number may only fall.

Names that are RocketMQ's or public (``dispatch_behind_nbytes``) are not counted.
"""

from __future__ import annotations

import re
import subprocess
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
#: Lines with such a word that are right as they are (``cut -d,`` in a shell, "if there is none").
COUNTS = {
    "README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs": 1,
    "src": 5,
    "tests fuzz benchmarks tools": 1,
}
SUFFIXES = frozenset({".py", ".pyi", ".pyx", ".pxd", ".h", ".md"})


def lines_with_words(places: str) -> list[str]:
    """``file:line: text (better word)`` of each line of these files and folders with a word."""
    found = []
    listed = subprocess.run(
        ["git", "ls-files", *places.split()], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\n"):
        path = ROOT / name
        if path.suffix not in SUFFIXES or path == Path(__file__) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            found += [
                f"{name}:{number}: {line.strip()} ({better})"
                for better, expression in WORDS.items()
                if re.search(expression, line)
            ]
    return found


@pytest.mark.parametrize("places", COUNTS)
def test_riddle_words_become_fewer(places: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout to list the project's files")
    found = lines_with_words(places)
    limit = COUNTS[places]
    assert len(found) <= limit, "\n".join(found)
    assert len(found) == limit, f"only {len(found)} are left: lower the count of {places!r}"


def test_a_riddle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("Zeros behind the end are cut.\nNothing here.\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "page.md"], cwd=tmp_path, check=True)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert len(lines_with_words("page.md")) == 2
