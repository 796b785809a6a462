"""Opens pages in Chromium, and questions to ask of a page there."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import IMPOSSIBLE

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: How long one step may take, ms; a loaded machine is slow.
PATIENCE_MS = 120_000

#: Texts whose contrast with their background is too low: ``[text, ratio, colour, background]``.
LOW_CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = numbers(colour).slice(0, 3).map((one) => {
      const part = one / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      const alpha = numbers(colour)[3];
      if (alpha === undefined || alpha === 1) return colour;
      if (alpha !== 0) throw new Error("a background that shines through: " + colour);
    }
    throw new Error("no background");
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let checked = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("svg, script")) continue;
    const style = getComputedStyle(element), back = background(element);
    const pair = [luminance(style.color), luminance(back)];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    checked += 1;
    if (ratio < least) {
      found.push([walker.currentNode.textContent, ratio, style.color, back]);
    }
  }
  return [checked, found];
}"""

#: Charts without a title or a visible mark, and the number of charts.
BARE_CHARTS = """() => {
  const charts = Array.from(document.querySelectorAll("svg:not(.none)"));
  const bare = charts.filter((chart) => {
    const marks = Array.from(chart.querySelectorAll("rect, use"));
    const seen = marks.some((mark) => {
      const box = mark.getBoundingClientRect(), painted = getComputedStyle(mark).fill;
      return box.width > 0 && box.height > 0 && painted !== "none";
    });
    return !seen || !chart.querySelector("title").textContent;
  });
  return [charts.length, bare.map((chart) => chart.outerHTML)];
}"""


def chromium() -> str | None:
    """Return the path of an installed Chromium."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """Start Chromium; skip the test if that or Playwright is not installed.

    With ``ROCKETSTORE_BROWSER=required`` fail instead, as ``make report-browser`` wants.
    """
    missing = None
    if importlib.util.find_spec("playwright") is None:
        missing = "Playwright is not installed"
    elif chromium() is None:
        missing = "no Chromium is installed"
    if missing is not None:
        if os.environ.get("ROCKETSTORE_BROWSER") == "required":
            pytest.fail(missing)
        pytest.skip(f"{IMPOSSIBLE}{missing}; make report-browser installs it")
    from playwright.sync_api import sync_playwright

    # Chromium's own sandbox does not run as root.
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium(), timeout=PATIENCE_MS,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        )  # fmt: skip
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is open in a browser, and what happened on it.

    Attributes
    ----------
    page : playwright.sync_api.Page
    requests, complaints : list of str
        Addresses that were asked for, and what the console, errors and dialogs said.
    """

    def __init__(self, browser: Any, path: Path, *, width: int = 1240, **options: Any) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        viewport = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=viewport, timezone_id="UTC", **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.page.on("request", lambda one: self.requests.append(one.url))
        self.page.on("console", lambda one: self.complaints.append(one.text))
        self.page.on("pageerror", lambda one: self.complaints.append(str(one)))
        self.page.on("dialog", self._dismiss)
        self.page.goto(path.as_uri())

    def _dismiss(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def unfold(self) -> None:
        """Open everything that is folded, as a user would."""
        for one in self.page.locator("summary").all():
            one.click()

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
