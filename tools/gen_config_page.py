"""Write the tables of options in ``docs/guide/configuration.md``.

Usage: ``python tools/gen_config_page.py [--check]``.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guide" / "configuration.md"
BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"
WIDTH = 128
sys.path.insert(0, str(ROOT / "src"))

from gen_formats import write_outputs  # noqa: E402
from rocketstore.broker_file.entries import BROKERS_DEFAULTS, camel_case, field_of  # noqa: E402
from rocketstore.broker_file.known_keys import known_keys  # noqa: E402
from rocketstore.config import MessageStoreConfig  # noqa: E402


def used() -> str:
    """Return the table of the options that have a meaning."""
    known = known_keys()
    lines = ["| key | default | RocketMQ |", "|---|---|---|"]
    for item in dataclasses.fields(MessageStoreConfig):
        key = camel_case(item.name)
        value = getattr(MessageStoreConfig(), item.name)
        value = BROKERS_DEFAULTS.get(item.name, value)
        default = "–" if value is None or value == {} else f"`{value!s}`"
        if isinstance(value, bool):
            default = f"`{str(value).lower()}`"
        versions = _versions(key) if key in known else "rocketstore alone"
        lines.append(f"| `{key}` | {default} | {versions} |")
    return "\n".join(lines)


def _versions(key: str) -> str:
    known = known_keys()[key]
    words = [
        f"from {known.since}" if known.since else "",
        f"to {known.until}" if known.until else "",
    ]
    return " ".join(word for word in words if word) or "all"


def ignored() -> str:
    """Return the list of ignored keys, by reason."""
    fields = {item.name for item in dataclasses.fields(MessageStoreConfig)}
    reasons: dict[str, list[str]] = {}
    for known in known_keys().values():
        if field_of(known.name) not in fields and known.name not in ("brokerIP1", "listenPort"):
            reasons.setdefault(known.reason, []).append(known.name)
    paragraphs = []
    for reason, names in reasons.items():
        if len(names) > 20 and reason.startswith("of "):
            words = [f"* {reason}: {len(names)} keys, such as"]
            names = names[:: len(names) // 4][:4]
        else:
            words = [f"* {reason}:"]
        words += [f"`{name}`" + ("," if name != names[-1] else "") for name in names]
        paragraphs.append(_wrapped(words))
    return "\n".join(paragraphs)


def _wrapped(words: list[str]) -> str:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def outputs() -> dict[Path, str]:
    """Return the page with current tables."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("used", used()), ("ignored", ignored())):
        begin, end = BEGIN.format(name), END.format(name)
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{table}\n{end}{tail}"
    return {PAGE: text}


if __name__ == "__main__":
    sys.exit(write_outputs(outputs(), sys.argv[1:]))
