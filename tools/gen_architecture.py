"""Write the tables of rooms in ``docs/architecture.md`` from ``tests/support/rooms.py``.

Usage: ``python tools/gen_architecture.py [--check]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "rocketstore"
NATIVE = ROOT / "src" / "_native"
BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"
sys.path.insert(0, str(ROOT / "tests"))

from gen_formats import write_outputs  # noqa: E402
from support.rooms import GROUND, NATIVE_ROOMS, ROOMS, floors  # noqa: E402

_GROUND_CHARTER = "What the bytes are, the kernels that read and write them, and messages."


def _modules(folder: Path) -> str:
    """List the modules of a folder by name; those of inner folders follow the folder's name."""
    names = [f"`{path.stem}`" for path in sorted(folder.glob("*.py")) if path.stem[0] != "_"]
    for inner in sorted(path for path in folder.iterdir() if (path / "__init__.py").exists()):
        names.append(f"`{inner.name}/` ({_modules(inner)})")
    return ", ".join(names)


def _ground_entry(name: str) -> str:
    """Return the entry of a module or folder of the ground floor."""
    folder = PACKAGE / name
    if not folder.is_dir():
        return f"`{name}`"
    return f"`{name}/` ({_modules(folder)})" if name[0] != "_" else f"`{name}/`"


def _by_floor() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, floor in floors({name: room.may_import for name, room in ROOMS.items()}).items():
        found.setdefault(floor, []).append(name)
    return found


def drawing() -> str:
    """Draw the floors, highest first."""
    rows = [
        f"{floor}  {'  '.join(names)}" for floor, names in sorted(_by_floor().items(), reverse=True)
    ]
    return "\n".join(["```text", *rows, "```"])


def rooms() -> str:
    """Write a row for each room: what it is for, what it may import, its modules."""
    lines = ["| room | what it is for | may import | modules |", "|---|---|---|---|"]
    ground = ", ".join(_ground_entry(name) for name in sorted(GROUND))
    lines.append(f"| `ground` | {_GROUND_CHARTER} | | {ground} |")
    for name, room in ROOMS.items():
        order = [other for other in ("ground", *ROOMS) if other in room.may_import]
        lines.append(
            f"| `{name}/` | {room.charter.replace('``', '`')} | {', '.join(order)} | "
            f"{_modules(PACKAGE / name)} |"
        )
    return "\n".join(lines)


def native() -> str:
    """Write a row for each folder of the native sources."""
    lines = ["| folder | may include from | modules (`.pyx`) |", "|---|---|---|"]
    for name, allowed in NATIVE_ROOMS.items():
        kernels = ", ".join(f"`{path.stem}`" for path in sorted((NATIVE / name).glob("*.pyx")))
        lines.append(f"| `{name}/` | {', '.join(allowed.split())} | {kernels} |")
    return "\n".join(lines)


def outputs() -> dict[Path, str]:
    """Return the page with all its tables."""
    text = PAGE.read_text(encoding="utf-8")
    for name, made in {"floors": drawing(), "rooms": rooms(), "native": native()}.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}\n\n{made}\n\n{end}{after}"
    return {PAGE: text}


if __name__ == "__main__":
    sys.exit(write_outputs(outputs(), sys.argv[1:]))
