"""``rocketstore config FILE``: what a broker's configuration file means for a store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore import formats
from rocketstore.broker_file.entries import (
    ADDRESS_KEYS,
    BROKERS_DEFAULTS,
    ConfigEntry,
    camel_case,
)
from rocketstore.cli.common.options import FormatOption, path
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import chosen, print_report, print_rows, print_text
from rocketstore.cli.common.quantities import counted
from rocketstore.config import MessageStoreConfig

#: Names of a row.
ROW_NAMES = ("kind", "use", "key", "value", "default", "line", "option", "note", "suggestion")
_DETECTED = "detected"
#: What ``None`` means where it is not "detected from the files".
_UNSET = {
    "store_path_root_dir": "PATH",
    "store_path_commit_log": f"PATH/{formats.COMMIT_LOG_DIR}",
    "transaction_check_interval": "by version",
    "timezone": "the machine's",
}
#: Unknown keys for which a similar one is searched.
_MOST_UNKNOWN = 200


def show(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", parser=path, help="A broker's configuration file."),
    ],
    all_options: Annotated[
        bool,
        typer.Option("--all", help="Also list the options that the file does not set."),
    ] = False,
    form: FormatOption = None,
) -> None:
    """Show what a broker's configuration file means for its store.

    Every key of the file is "used", "ignored" (RocketMQ knows it, but it has no meaning for the
    files), "unknown" (no RocketMQ from 4.9.0 to 5.5.0 reads it) or "overridden" by a later line.
    The exit status is 1 if there are unknown keys, and 2 if a value is wrong: the message names its
    line.

    \b
    Examples:
      rocketstore config broker.conf
      rocketstore config broker.conf --all
      rocketstore config show broker.conf --format ndjson | jq 'select(.use == "unknown") | .key'
    """
    settings = MessageStoreConfig.from_properties(file)
    defaults = MessageStoreConfig()
    rows = [_row(entry, settings, defaults) for entry in settings.entries]
    unknown = [row for row in rows if row["use"] == "unknown"]
    for row in unknown[:_MOST_UNKNOWN]:
        row["suggestion"] = ConfigEntry(row["key"], "", None, "unknown").suggestion
    if all_options:
        given = {row["option"] for row in rows}
        rows += [
            _default(item.name, settings, defaults)
            for item in dataclasses.fields(settings)
            if item.name not in given
        ]
    summary = {"kind": "summary", "path": str(file), **_counts(rows)}
    if not print_report(summary, "entries", rows, ROW_NAMES, chosen(form)):
        _print_table(rows)
    if unknown:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _row(
    entry: ConfigEntry, settings: MessageStoreConfig, defaults: MessageStoreConfig
) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(ROW_NAMES)
    row |= {
        "kind": "key",
        "use": entry.use,
        "key": entry.key,
        "value": entry.value,
        "line": entry.line,
    }
    row |= {"option": entry.option, "note": entry.note or None}
    if entry.option is not None:
        row["default"] = _default_of(entry.option, defaults)
    if entry.use == "used" and entry.option is not None:
        value = _plain(getattr(settings, entry.option))
        if entry.key in ADDRESS_KEYS:
            row |= {"default": None, "note": f"the address is {value}"}
        else:
            row["value"] = value
    return row


def _default(
    name: str, settings: MessageStoreConfig, defaults: MessageStoreConfig
) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(ROW_NAMES)
    value = _plain(getattr(settings, name))
    row |= {"kind": "key", "use": "default", "key": camel_case(name), "option": name}
    row["value"] = value
    return row | {"default": _default_of(name, defaults)}


def _default_of(name: str, defaults: MessageStoreConfig) -> Any:
    return _plain(BROKERS_DEFAULTS.get(name, getattr(defaults, name)))


def _plain(value: Any) -> Any:
    """Return a value that JSON has."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return dict(value) if isinstance(value, dict) else str(value)


def _counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    uses = ("used", "ignored", "unknown", "overridden")
    return {use: sum(row["use"] == use for row in rows) for use in uses}


def _print_table(rows: list[dict[str, Any]]) -> None:
    cells = [
        (
            row["use"],
            row["key"],
            _shown_default(row) if row["value"] is None else _shown(row["value"]),
            _shown_default(row),
            row["line"] or "",
            _note(row),
        )
        for row in rows
    ]
    headings = ("use", "key", "value", "default", "line", "note")
    print_rows(headings, cells, right=("line",), shrink=("note", "value", "default"))
    counts = _counts(rows)
    print_text()
    print_text(
        f"{counted(counts['used'], 'key')} used, {counts['ignored']} ignored, "
        f"{counts['unknown']} unknown, {counts['overridden']} overridden."
    )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown_default(row: dict[str, Any]) -> str:
    if not row["option"] or row["key"] in ADDRESS_KEYS:
        return ""
    if row["default"] is None:
        return _UNSET.get(row["option"], _DETECTED)
    return _shown(row["default"])


def _note(row: dict[str, Any]) -> str:
    if row["use"] == "unknown":
        return f"did you mean {row['suggestion']}?" if row["suggestion"] else ""
    return row["note"] or ""
