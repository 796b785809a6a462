"""``config convert``: a broker's file rewritten for another RocketMQ version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketstore.broker_file import java_properties
from rocketstore.broker_file.entries import Source, path_of, text_of
from rocketstore.broker_file.known_keys import known_keys, knows
from rocketstore.broker_file.lint import RENAMED, ConfigRemark, lint
from rocketstore.errors import ConfigError

#: Names of lines of versions, and the version that stands for each.
TARGETS = {"4.9": "4.9.8", "5.x": "5.5.0"}
_OLD_NAMES = {new: old for old, new in RENAMED.items() if old in known_keys()}


@dataclass(frozen=True, slots=True)
class ConvertedConfig:
    """A broker's file for another version.

    Attributes
    ----------
    text : str
        The new file: comments, order and values as they were. Keys that the version does not know
        are comments.
    version : str
    changes : list of ConfigRemark
        One for each line that changed: ``"renamed"`` or ``"unknown"``.
    remarks : list of ConfigRemark
        What ``lint`` says about the new file.
    """

    text: str
    version: str
    changes: list[ConfigRemark] = field(default_factory=list)
    remarks: list[ConfigRemark] = field(default_factory=list)


def target_version(to: str) -> str:
    """Return the version that ``to`` names; raise ``ConfigError`` for one that is unknown."""
    version = TARGETS.get(to, to)
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 4 for part in parts):
        names = ", ".join(TARGETS)
        raise ConfigError(f"{to!r} is no version: give {names} or one such as 5.3.3")
    return version


def convert(source: Source, kinds: Mapping[str, str], to: str) -> ConvertedConfig:
    """Rewrite a broker's file for another version.

    Parameters
    ----------
    source : mapping, path, text or file
        See ``MessageStoreConfig.from_properties``. A mapping has no text: it is written as lines.
    kinds : mapping
        Annotation of each field of the configuration, by name.
    to : str
        ``"4.9"``, ``"5.x"``, or a version.

    Raises
    ------
    ConfigError
        The source is no configuration, or ``to`` no version.
    OSError
        The file cannot be read.
    """
    version = target_version(to)
    text = _text(source)
    if "\0" in text:
        raise ConfigError("it contains a NUL byte: it is no configuration", path=path_of(source))
    changes: list[ConfigRemark] = []
    lines: list[str] = []
    for number, raw in java_properties.raw_entries(text):
        if number is None:
            lines.append(raw)
            continue
        (entry,) = java_properties.parse(raw, number)
        new = _new_name(entry.key, version)
        if new is None:
            lines.append(_comment(raw, version))
            reason = f"RocketMQ {version} does not read it"
            changes.append(ConfigRemark(number, entry.key, "warning", "unknown", reason))
        elif new != entry.key:
            lines.append(f"{new}={java_properties.escape_value(entry.value)}")
            reason = f"is {new} in RocketMQ {version}"
            changes.append(ConfigRemark(number, entry.key, "note", "renamed", reason))
        else:
            lines.append(raw)
    made = "\n".join(lines) + "\n" if lines else ""
    remarks = lint(made, kinds, version) if made else []
    return ConvertedConfig(made, version, changes, remarks)


def _text(source: Source) -> str:
    if isinstance(source, Mapping):
        pairs = [f"{key}={java_properties.escape_value(value)}" for key, value in source.items()]
        return "\n".join(pairs)
    text = text_of(source, path_of(source))
    return text.removeprefix("\ufeff").removeprefix("\xef\xbb\xbf")


def _new_name(key: str, version: str) -> str | None:
    """Return the name of a key in a version, ``None`` if it has none."""
    for name in (key, RENAMED.get(key, key), _OLD_NAMES.get(key, key)):
        if knows(name, version):
            return name
    return None


def _comment(raw: str, version: str) -> str:
    kept = "\n".join(f"# {line}" for line in raw.split("\n"))
    return f"# RocketMQ {version} does not read this:\n{kept}"
