"""The columns of a table of messages; see ``rocketstore.display.columns``."""

from __future__ import annotations

from rocketstore.display.columns import COLUMNS, PRESETS, arrow_schema, resolve

__all__ = ["COLUMNS", "PRESETS", "arrow_schema", "resolve"]
