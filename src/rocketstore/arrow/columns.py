"""Which columns a table of messages has: presets, lists of names, and their Arrow types."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from rocketstore.message_columns import COLUMNS, PRESETS, PROPERTIES_COLUMN, arrow_schema

__all__ = ["COLUMNS", "PRESETS", "arrow_schema", "resolve"]


def resolve(columns: str | Sequence[str], *, include_properties: bool = False) -> list[str]:
    """Return the names of the columns that a preset or a list of names means.

    Parameters
    ----------
    columns : str or sequence of str
        ``"core"``, ``"full"`` or ``"kafka"``, or names of columns: a sequence, or one string with
        commas between them.
    include_properties : bool
        Add ``properties`` (``headers`` to ``"kafka"``) where it is not among them.

    Raises
    ------
    ValueError
        For an unknown name (the message suggests the nearest), a name given twice, or no name.
    TypeError
        For something else than strings.
    """
    if isinstance(columns, str):
        preset = columns.strip().lower()
        if preset in PRESETS:
            names = list(PRESETS[preset])
            return _with(names, PROPERTIES_COLUMN[preset]) if include_properties else names
        names = [name.strip() for name in columns.split(",")]
    else:
        names = list(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns must be str or a sequence of str, not {type(name).__name__}")
        if name not in COLUMNS:
            raise ValueError(_unknown(name))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"column {twice!r} is asked for twice")
    if not names:
        raise ValueError("no column is asked for")
    return _with(names, "properties") if include_properties else names


def _with(names: list[str], further: str) -> list[str]:
    return names if further in names else [*names, further]


def _unknown(name: str) -> str:
    if name.lower() in PRESETS:
        return f"{name!r} is no column but a preset, which stands alone"
    known = [*COLUMNS, *PRESETS]
    by_case = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.strip().lower(), list(by_case), n=1)
    hint = f"; did you mean {by_case[near[0]]!r}?" if near else f"; there are {', '.join(known)}"
    return f"there is no column {name!r}{hint}"
