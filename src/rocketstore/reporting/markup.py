"""HTML that cannot be broken out of: every text is escaped, every attribute is checked."""

from __future__ import annotations

import datetime
import html
from collections.abc import Iterable, Sequence

#: Characters of one text node; longer text ends in an ellipsis.
MAX_TEXT = 200
#: Characters of a command line at most: some paths, each of 4,096 bytes at most.
MAX_COMMAND = 20_000
#: Largest epoch ms that is a date.
_MAX_MS = 253_402_300_799_999
_VOID = frozenset(("meta", "br", "wbr"))
#: Attributes that would load or run something, or that the page's policy forbids.
_FORBIDDEN = ("style", "src", "srcset", "srcdoc", "action", "formaction", "xlink:href")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = Html | str | int | None


def visible(value: object, limit: int = MAX_TEXT) -> str:
    """Return a value as printable text of at most ``limit`` characters.

    Whatever is not printable, control characters and those that reorder or hide text among them, is
    written as an escape.
    """
    shown = str(value)
    short = shown[: limit + 1]
    plain = "".join(one if one.isprintable() else _written_out(one) for one in short)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _written_out(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def text(value: object, limit: int = MAX_TEXT) -> Html:
    """Return a value as one text node."""
    return Html(html.escape(visible(value, limit)))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """Return an element.

    Parameters
    ----------
    name : str
    *children : Html, str, int or None
        ``Html`` as it is, all else as text; ``None`` is skipped.
    **attributes
        ``class_`` stands for ``class``, ``_`` for ``-``; ``None`` and False are skipped, True has
        no value.

    Raises
    ------
    ValueError
        For an attribute that runs or loads something.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        word = key.rstrip("_").replace("_", "-")
        is_outside = word == "href" and not str(value).startswith("#")
        if word.startswith("on") or word in _FORBIDDEN or is_outside:
            raise ValueError(f"{name} may not have {word}={value!r}")
        if value is None or value is False:
            continue
        parts.append(f" {word}" if value is True else f' {word}="{text(value, 1000)}"')
    parts.append(">")
    if name in _VOID:
        return Html("".join(parts))
    parts += [one if isinstance(one, Html) else text(one) for one in children if one is not None]
    parts.append(f"</{name}>")
    return Html("".join(parts))


def join(parts: Iterable[Child], between: str = "") -> Html:
    """Return pieces in a row."""
    shown = (one if isinstance(one, Html) else text(one) for one in parts if one is not None)
    return Html(text(between).join(shown))


class Cell:
    """A table's cell: what it shows, the number by which its column is sorted, and its class."""

    __slots__ = ("content", "key", "kind")

    def __init__(self, content: Child, key: float | None = None, kind: str | None = None) -> None:
        self.content = content
        self.key = key
        self.kind = kind


def number(value: int | None) -> Cell:
    """Return a cell with a whole number."""
    return Cell("–" if value is None else f"{value:,}", -1 if value is None else value)


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell | Child]],
    *,
    label: str,
    right: Sequence[int] = (),
    sortable: bool = False,
) -> Html:
    """Return a table that scrolls in its own frame.

    Parameters
    ----------
    heads : sequence of str
    rows : sequence
    label : str
        Names the table for screen readers.
    right : sequence of int
        Columns that are aligned to the right.
    sortable : bool
        A script makes the heads buttons.
    """
    classes = ["n" if place in right else None for place in range(len(heads))]
    cells = [tag("th", one, scope="col", class_=kind)
             for one, kind in zip(heads, classes, strict=True)]  # fmt: skip
    body = []
    for row in rows:
        shown = [one if isinstance(one, Cell) else Cell(one) for one in row]
        body.append(tag("tr", *(
            tag("td", one.content, class_=kind or one.kind, data_key=one.key)
            for one, kind in zip(shown, classes, strict=True)
        )))  # fmt: skip
    made = tag(
        "table",
        tag("caption", label, class_="unseen"),
        tag("thead", tag("tr", *cells)),
        tag("tbody", *body),
        data_sortable=sortable,
    )
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=label)


def when(timestamp: int | None) -> Cell:
    """Return a cell with an epoch-ms time as UTC; an invalid time as its number."""
    return Cell(moment(timestamp), -1 if timestamp is None else timestamp)


def moment(timestamp: int | None) -> Html:
    """Return an epoch-ms time as UTC; an invalid time as its number."""
    found = _at(timestamp)
    if found is None:
        return text("–" if timestamp is None else timestamp)
    return tag("time", found.strftime("%Y-%m-%d %H:%M:%SZ"), datetime=found.isoformat())


def both_times(timestamp: int | None) -> Html:
    """Return an epoch-ms time as UTC, and as local time where that differs."""
    found = _at(timestamp)
    shown = moment(timestamp)
    if found is None:
        return shown
    try:
        local = found.astimezone()
    except (OverflowError, OSError, ValueError):
        return shown
    if not local.utcoffset():
        return shown
    return join((shown, Html(" "), tag("small", local.strftime("(%Y-%m-%d %H:%M:%S%z)"))))


def _at(timestamp: int | None) -> datetime.datetime | None:
    if timestamp is None or not 0 < timestamp <= _MAX_MS:
        return None
    return datetime.datetime.fromtimestamp(timestamp // 1000, datetime.UTC)
