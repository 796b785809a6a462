"""The tables of the race on the documentation's page."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def module() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("race.page")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


page = module()


def figure(wall: float) -> dict[str, float]:
    return {"wall": wall, "cpu": wall, "process": wall, "spread": 0.05}


RACE: dict[str, Any] = {
    "machine": {
        "cpu": "Some CPU", "processors": 2, "memory_gib": 24, "system": "Linux 6.1.2-build",
        "file_system": "ext4", "python": "3.11.7", "java": 'openjdk version "17.0.15" 2025',
    },
    "settings": {"options": {"mib": "200"}},
    "rounds": 5,
    "busy": [],
    "tables": [
        {
            "messages": "producer", "body": "100",
            "rows": [
                {
                    "name": "put", "meaning": "`put`", "native": figure(500.4), "limit": None,
                    "jars": {"jar 5.5.0": figure(2000), "jar 4.9.8": figure(1250)},
                    "to_jar": 2.4981, "to_jar_cpu": 12.4,
                },
                {
                    "name": "put_many", "meaning": "x", "native": None, "limit": None, "jars": {},
                    "to_jar": None, "to_jar_cpu": None,
                },
            ],
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (None, "–"), (0.4, "0 ns"), (812.3, "812 ns"), (1_240, "1.24 µs"), (35_000_000, "35.0 ms"),
        (123_456, "123 µs"), (2e9, "2.00 s"),
    ],
)  # fmt: skip
def test_amounts(nanoseconds: float | None, text: str) -> None:
    assert page.amount(nanoseconds) == text


def test_the_page_keeps_what_is_outside_its_markers(tmp_path: Path) -> None:
    race, target = tmp_path / "race.json", tmp_path / "page.md"
    race.write_text(json.dumps(RACE))
    target.write_text(f"before\n{page.BEGIN}old\n{page.END}after\n")
    for _ in range(2):
        assert page.main([str(race), str(target)]) == 0
    text = target.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "2 processors (Some CPU), 24 GiB, Linux 6.1.2, ext4; Python 3.11.7, Java 17.0.15" in text
    assert text.splitlines()[-5:-3] == [
        "|---|---|---|---|---|---|---|---|",
        "| `put` | 1.25 µs | 2.00 µs | 500 ns | 5% | – | 2.50 | 12 |",
    ]


def test_a_busy_machine_is_named() -> None:
    assert "The machine was busy: much." in page.section({**RACE, "busy": ["much"]})
