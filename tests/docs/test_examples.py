"""Every Python example of README and the site runs, and prints what stands behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.examples import ROOT, examples, pages, run_page
from golden import golden_stores

WITH_EXAMPLES = [page for page in pages() if any(examples(page))]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run_and_print_what_they_say(page: Path, tmp_path: Path) -> None:
    store = golden_stores.unpack("broker-5.3.3", tmp_path)
    faults = run_page(page, tmp_path, store)
    assert not faults, "\n".join(faults)


def test_a_wrong_output_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    (fault,) = run_page(page, tmp_path, tmp_path)
    assert fault == "page.md:2 prints\n1\ninstead of\n2\n"


def test_most_pages_have_examples() -> None:
    assert len(WITH_EXAMPLES) > 10
