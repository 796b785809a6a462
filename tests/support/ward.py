"""Damaged stores as recipes on golden stores, and what the real RocketMQ made of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from golden.golden_stores import HERE, unpack

WARD = HERE / "ward"
CASES = sorted(path.stem for path in WARD.glob("*.json"))


def case(name: str) -> dict[str, Any]:
    """Return a recipe with its answers."""
    return json.loads((WARD / f"{name}.json").read_text(encoding="utf-8"))


def damaged(name: str, directory: Path) -> Path:
    """Unpack the base of a case below ``directory`` and damage it; return its root."""
    recipe = case(name)
    root = unpack(recipe["base"], directory)
    (root / "lock").unlink(missing_ok=True)
    for step in recipe["operations"]:
        _apply(root, step)
    return root


def config_file(name: str, directory: Path) -> Path:
    """Write the broker's configuration of a case as a file."""
    path = directory / "broker.conf"
    rows = case(name)["config"].items()
    path.write_text("\n".join(f"{key}={value}" for key, value in rows), encoding="utf-8")
    return path


def _apply(root: Path, step: dict[str, Any]) -> None:
    file = root / step["file"]
    kind = step["op"]
    if kind in ("write", "zero"):
        content = bytes.fromhex(step["hex"]) if kind == "write" else bytes(step["bytes"])
        with open(file, "r+b") as opened:
            opened.seek(step["at"])
            opened.write(content)
    elif kind == "truncate":
        os.truncate(file, step["size"])
    elif kind == "delete":
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    elif kind == "swap":
        aside = file.with_name("aside")
        file.rename(aside)
        (root / step["to"]).rename(file)
        aside.rename(root / step["to"])
    elif kind == "create":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(
            bytes.fromhex(step["hex"]) if "hex" in step else step["text"].encode("utf-8")
        )
    else:
        raise ValueError(f"unknown operation {kind}")
