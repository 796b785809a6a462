"""Reads a report's page strictly: what it holds, and what it must not hold."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "wbr"}
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "nav"),
    *("footer", "h1", "h2", "h3", "p", "a", "b", "small", "span", "code", "pre", "ol", "ul", "li"),
    *(
        "dl",
        "article",
        "div",
        "dt",
        "dd",
        "time",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    ),
    *("figure", "figcaption", "details", "summary", "br", "wbr", "script"),
    *("svg", "rect", "path", "symbol", "use"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "scope"),
    *("tabindex", "role", "datetime", "data-sortable", "data-key", "aria-label"),
    *("aria-labelledby", "aria-hidden", "viewbox", "preserveaspectratio", "x", "y", "width"),
    *("height", "d"),
}
#: Charts that have marks, and those of the map, each a square of its own.
CHARTS = ("chart", "bar")


class Page(HTMLParser):
    """A parsed page; raises ``AssertionError`` for whatever it must not hold."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.metas: dict[str, str] = {}
        self.blocks: dict[str, list[str]] = {"style": [], "script": []}
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.rows = 0
        self.svgs: list[tuple[str, list[str], str]] = []
        assert content.startswith("<!doctype html>\n")
        self.feed(content)
        self.close()
        assert not self.open

    def handle_decl(self, decl: str) -> None:
        assert decl == "doctype html"

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"<{tag}/>")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), names
        assert set(names) <= ATTRIBUTES, (tag, names)
        given = dict(attrs)
        if "href" in given:
            assert (given["href"] or "").startswith("#")
            self.links.append((given["href"] or "")[1:])
        if "id" in given:
            self.ids.append(given["id"] or "")
        if tag == "meta" and "http-equiv" in given:
            self.metas[given["http-equiv"] or ""] = given["content"] or ""
        if tag == "tr":
            self.rows += 1
        if tag == "svg":
            self.svgs.append((given.get("class") or "", [], ""))
        elif "svg" in self.open:
            self.svgs[-1][1].append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self.open[-1] if self.open else ""
        if where in self.blocks:
            self.blocks[where].append(data)
            return
        assert len(data) <= 20_000 if where == "code" else len(data) <= 200, data
        if data.strip("\n"):
            assert data.isprintable(), repr(data)
        if where == "h2":
            self.headings.append(data)
        if where == "title" and "svg" in self.open and not self.svgs[-1][2]:
            self.svgs[-1] = (*self.svgs[-1][:2], data)
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All text of the page, without style and script."""
        return "\n".join(self.texts)


def read_page(path: Path) -> Page:
    """Parse a page and check everything that holds for every page."""
    content = path.read_bytes()
    assert len(content) <= 2 << 20
    page = Page(content.decode())
    check_policy(page)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.links) <= set(page.ids)
    for kind, marks, title in page.svgs:
        if kind == "none":
            continue
        assert title, (kind, marks)
        assert {"rect", "use"} & set(marks), kind
    if any(kind in CHARTS for kind, *_ in page.svgs):
        assert page.rows
    return page


def check_policy(page: Page) -> None:
    """Check that the policy allows the page's own style and script, and nothing else."""
    policy = page.metas["Content-Security-Policy"]
    hashes = []
    for name in ("style", "script"):
        (content,) = page.blocks[name]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes.append(digest)
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert re.sub(r"sha256-[\w+/=]+", "sha256-…", policy) == (
        "default-src 'none'; style-src 'sha256-…'; script-src 'sha256-…'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    (style,), (script,) = page.blocks["style"], page.blocks["script"]
    assert not re.search(r"url\(|@import|expression", style)
    assert not re.search(r"innerHTML|outerHTML|eval|Function\(|fetch|XMLHttp|import|http", script)
