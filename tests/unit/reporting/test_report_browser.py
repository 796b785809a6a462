"""``report``: what a real browser makes of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.reporting.markup import visible
from support.browser_pages import BARE_CHARTS, LOW_CONTRAST, Visit, launched
from support.shown_store import (
    HOSTILE_GROUP,
    HOSTILE_TOPIC,
    make_hostile,
    make_shown,
)

pytestmark = pytest.mark.xdist_group("browser")
#: Largest picture in the documentation.
PICTURE_NBYTES = 150 * 1024


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def shown(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a damaged store with something in every section."""
    folder = tmp_path_factory.mktemp("shown")
    store, conf = make_shown(folder)
    rocketstore.report(store, folder / "r.html", config=conf, title="broker-a on store-17")
    return folder / "r.html"


@pytest.fixture(scope="module")
def hostile(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    make_hostile(folder / "store")
    rocketstore.report(folder / "store", folder / "r.html", title="<img src=x onerror=alert(2)>")
    return folder / "r.html"


def test_loads_nothing_and_complains_of_nothing(browser: Any, shown: Path) -> None:
    with Visit(browser, shown) as visit:
        visit.unfold()
        assert visit.requests == [shown.as_uri()]
        assert visit.complaints == []
        count, bare = visit.page.evaluate(BARE_CHARTS)
        assert count > 40
        assert bare == []
        for name in visit.page.locator("main > section").evaluate_all("all => all.map(x => x.id)"):
            assert visit.page.locator(f"#{name}").inner_text().strip(), name


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1240, 360])
def test_contrast_and_width(browser: Any, shown: Path, scheme: Any, width: int) -> None:
    with Visit(browser, shown, width=width, color_scheme=scheme) as visit:
        visit.unfold()
        checked, low = visit.page.evaluate(LOW_CONTRAST)
        assert checked > 200
        assert low == []
        shade = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (int(shade[4:].split(",")[0]) < 128) == (scheme == "dark")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


#: Per column of a table with a button: its values sorted upwards and downwards, what its head says
#: then, and what has focus after the button was pressed.
SORTED = """(table) => {
  const value = (cell) => "key" in cell.dataset ? Number(cell.dataset.key) : cell.textContent;
  const found = [];
  for (const head of table.tHead.rows[0].cells) {
    const button = head.querySelector("button"), column = head.cellIndex;
    if (!button) continue;
    const states = [], values = [];
    for (let time = 0; time < 2; time += 1) {
      button.click();
      states.push(head.ariaSort, table.querySelectorAll("th[aria-sort]").length);
      values.push(Array.from(table.tBodies[0].rows, (row) => value(row.cells[column])));
    }
    found.push([states, ...values]);
  }
  return found;
}"""


def test_every_table_is_sorted(browser: Any, shown: Path) -> None:
    with Visit(browser, shown) as visit:
        tables = visit.page.locator("table[data-sortable]")
        assert tables.count() >= 10
        for table in tables.all():
            columns = table.evaluate(SORTED)
            assert len(columns) >= 2
            for states, up, down in columns:
                assert states == ["ascending", 1, "descending", 1]
                if all(isinstance(one, (int, float)) for one in up):
                    assert up == sorted(up)
                    assert down == sorted(up, reverse=True)
                else:
                    assert sorted(up) == sorted(down)
                    assert (up[0], up[-1]) == (down[-1], down[0])
        assert visit.complaints == []


def test_sorting_by_mouse_and_by_keyboard(browser: Any, shown: Path) -> None:
    with Visit(browser, shown) as visit:
        head = visit.page.locator("#topics th", has_text="bytes")
        names = visit.page.locator("#topics tbody td:first-child")
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        assert names.last.inner_text() == "Orders"
        least = names.first.inner_text()
        for key, first in (("Enter", "Orders"), ("Space", least)):
            visit.page.keyboard.press(key)
            assert names.first.inner_text() == first
        visit.page.keyboard.press("Shift+Tab")
        visit.page.keyboard.press("Enter")
        assert visit.page.locator("#topics th[aria-sort]").inner_text().startswith("share")
        assert visit.complaints == []


def test_every_part_is_reached_by_keyboard(browser: Any, shown: Path) -> None:
    with Visit(browser, shown) as visit:
        wanted = visit.page.locator("a, summary, th button, pre, .scroll").count()
        reached = set()
        for _ in range(wanted * 2):
            visit.page.keyboard.press("Tab")
            reached.add(visit.page.evaluate(
                """() => {
                  const all = Array.from(document.querySelectorAll("*"));
                  const one = document.activeElement, style = getComputedStyle(one);
                  return [all.indexOf(one), one.matches("a, summary, th button, pre, .scroll"),
                    style.outlineStyle !== "none"].join();
                }"""
            ))  # fmt: skip
        seen = {one.split(",")[0] for one in reached if one.endswith("true,true")}
        folded = visit.page.locator("details a, details th button, details pre, details .scroll")
        assert len(seen) == wanted - folded.count()


def test_prints_everything_on_white(browser: Any, shown: Path) -> None:
    with Visit(browser, shown, color_scheme="dark") as visit:
        visit.page.emulate_media(media="print")
        assert not visit.page.locator("nav").is_visible()
        hidden = visit.page.locator("details td").evaluate_all(
            "all => all.filter((one) => !one.getBoundingClientRect().height).length"
        )
        assert visit.page.locator("details td").count() > 100
        assert hidden == 0
        white = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert white == "rgb(255, 255, 255)"
        assert visit.page.evaluate(LOW_CONTRAST)[1] == []
        printed = visit.page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        assert printed.count(b"/Type /Page\n") > 2


def test_works_without_scripts(browser: Any, shown: Path) -> None:
    with Visit(browser, shown, java_script_enabled=False) as visit:
        assert visit.page.locator("th button").count() == 0
        assert visit.page.locator("#topics td", has_text="Orders").first.is_visible()
        folded = visit.page.locator("#lag details table")
        assert not folded.is_visible()
        visit.page.locator("#lag summary").click()
        assert folded.is_visible()
        assert visit.complaints == []


def test_hostile_names_are_text(browser: Any, hostile: Path) -> None:
    with Visit(browser, hostile) as visit:
        visit.unfold()
        text = visit.page.locator("body").inner_text()
        for name in (HOSTILE_TOPIC, HOSTILE_GROUP, "KEY<b>\u202e", "<img src=x onerror=alert(2)>"):
            assert visible(name) in text
        assert visit.page.locator("main b[onload], main svg[onload], img, main i").count() == 0
        assert visit.requests == [hostile.as_uri()]
        assert visit.complaints == []


def test_the_policy_is_in_force(browser: Any, shown: Path) -> None:
    """What a hole in the markup would try is refused by the browser."""
    with Visit(browser, shown) as visit:
        tried = visit.page.evaluate(
            """async () => {
              const refused = [];
              addEventListener("securitypolicyviolation",
                (event) => refused.push(event.effectiveDirective));
              const script = document.createElement("script");
              script.textContent = "window.broken = true";
              const image = new Image();
              image.src = "https://example.com/x.png";
              const style = document.createElement("style");
              style.textContent = "body{display:none}";
              const base = document.createElement("base");
              base.href = "https://example.com/";
              document.body.append(script, image, style, base);
              const paragraph = document.createElement("p");
              paragraph.setAttribute("onclick", "window.broken = true");
              document.body.append(paragraph);
              paragraph.click();
              const ended = () => refused.length >= 5;
              while (!ended()) await new Promise((done) => setTimeout(done, 10));
              return [refused, Boolean(window.broken), document.body.checkVisibility()];
            }"""
        )
        refused, broken, is_visible = tried
        assert sorted(refused) == [
            *("base-uri", "img-src", "script-src-attr", "script-src-elem", "style-src-elem")
        ]
        assert not broken
        assert is_visible


#: Names the store's folder as a broker's may be called.
RENAMED = """([from, to]) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    walker.currentNode.textContent = walker.currentNode.textContent.replaceAll(from, to);
  }
}"""


def test_the_picture_is_small(browser: Any, shown: Path, tmp_path: Path) -> None:
    """The picture of the documentation; ``ROCKETSTORE_PICTURE`` names where to keep it."""
    image = pytest.importorskip("PIL.Image", reason="the extra demo brings Pillow")
    target = Path(os.environ.get("ROCKETSTORE_PICTURE") or tmp_path / "report.png")
    with Visit(browser, shown) as visit:
        visit.page.evaluate(RENAMED, [str(shown.parent), "/data/broker-a"])
        below = visit.page.locator("#volume").bounding_box()
        visit.page.screenshot(
            path=target, full_page=True,
            clip={"x": 0, "y": 0, "width": 1240, "height": below["y"] + below["height"] + 16},
        )  # fmt: skip
    with image.open(target) as picture:
        assert picture.width == 1240
        picture.convert("P", palette=image.Palette.ADAPTIVE, colors=160).save(target, optimize=True)
    assert target.stat().st_size < PICTURE_NBYTES
