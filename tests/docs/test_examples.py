"""Every Python example of README and the site runs, and prints the output that follows it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from docs.examples import ROOT, examples, pages, run_page
from golden import golden_stores

WITH_EXAMPLES = [page for page in pages() if any(examples(page))]


#: One Spark session serves all tests that need one; its group runs in one process.
IN_SPARK = pytest.mark.xdist_group("spark")


def marked(page: Path) -> Any:
    """The page as a parameter; in Spark's group where its examples start Spark."""
    starts = any("rocketstore.spark import" in example.code for example in examples(page))
    name = page.relative_to(ROOT).as_posix()
    return pytest.param(page, id=name, marks=[IN_SPARK] if starts else [])


@pytest.mark.parametrize("page", [marked(page) for page in WITH_EXAMPLES])
def test_examples_run_and_print_what_they_say(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an example leaves in the folder for temporary files goes with the test's."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    store = golden_stores.unpack("broker-5.3.3", tmp_path)
    faults = run_page(page, tmp_path, store)
    assert not faults, "\n".join(faults)


def test_a_wrong_output_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    (fault,) = run_page(page, tmp_path, tmp_path)
    assert fault == "page.md:2 prints\n1\ninstead of\n2\n"


def test_most_pages_have_examples() -> None:
    assert len(WITH_EXAMPLES) > 10
