"""Links of README and the other pages in the root lead to files and headings that exist.

PyPI and GitHub both show README, so its links must be absolute.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.examples import ROOT

OURS = "https://github.com/rocketstore/rocketstore/"
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md"]
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def links(text: str) -> list[str]:
    """Return the targets of a page's links."""
    return _LINK.findall(_FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def fault(link: str, folder: Path) -> str | None:
    """Return what is wrong with a link; ``None`` for a good one and for another site's."""
    view = re.match(re.escape(OURS) + r"(blob|tree)/main/(.+)", link)
    if view is None and link.startswith(("https://", "http://", "mailto:")):
        return None
    name, _, anchor = (view[2] if view else link).partition("#")
    path = (ROOT if view else folder) / name
    if not path.exists():
        return f"{link}: no such file"
    if view and path.is_dir() != (view[1] == "tree"):
        return f"{link}: a file needs blob, a folder needs tree"
    if anchor and anchor not in anchors(path):
        return f"{link}: no such heading"
    return None


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    found = links((ROOT / name).read_text(encoding="utf-8"))
    assert not [text for link in found if (text := fault(link, ROOT))]


def test_links_of_readme_are_absolute() -> None:
    found = links((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) > 10
    assert not [link for link in found if not link.startswith("https://")]


@pytest.mark.parametrize(
    "link",
    [
        f"{OURS}blob/main/docs/missing.md",
        f"{OURS}blob/main/README.md#no-such-heading",
        f"{OURS}blob/main/docs",
        "docs/missing.md",
    ],
)
def test_a_link_to_nothing_is_a_fault(link: str) -> None:
    assert fault(link, ROOT)
