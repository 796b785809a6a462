"""The tables and charts of the race on the documentation's page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from support.benchmark_modules import benchmark_module

page = benchmark_module("race.page")
texts = benchmark_module("charts.texts")
SVG = "{http://www.w3.org/2000/svg}"


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
    "peers": [],
    "tables": [
        {
            "messages": "producer", "body": "100",
            "rows": [
                {
                    "family": "puts", "name": "put", "meaning": "`put`",
                    "native": figure(500.4), "limit": None,
                    "jars": {"jar 5.5.0": figure(2000), "jar 4.9.8": figure(1250)},
                    "to_jar": 2.4981, "to_jar_cpu": 12.4,
                },
                {
                    "family": "puts", "name": "put_many", "meaning": "x", "native": None,
                    "limit": None, "jars": {}, "to_jar": None, "to_jar_cpu": None,
                },
                {
                    "family": "group_commit", "name": "sync_64_threads", "meaning": "64 threads",
                    "native": figure(20_000), "limit": figure(6321), "to_jar": 2, "to_jar_cpu": 1,
                    "jars": {"jar 5.5.0": figure(40_000)},
                },
                {
                    "family": "opens", "name": "rebuild", "meaning": "open", "limit": None,
                    "native": figure(2000), "jars": {}, "to_jar": None, "to_jar_cpu": None,
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
    assert texts.amount(nanoseconds) == text


def test_a_machine_without_java_has_a_page() -> None:
    machine = {**RACE["machine"], "java": ""}
    assert "Python 3.11.7; 200 MiB" in page.section({**RACE, "machine": machine})


def test_the_page_keeps_what_is_outside_its_markers(tmp_path: Path) -> None:
    race, target = tmp_path / "race.json", tmp_path / "page.md"
    race.write_text(json.dumps(RACE))
    target.write_text("before\n<!-- race: begin -->\nold\n<!-- race: end -->\nafter\n")
    (tmp_path / "images").mkdir()
    for old in ("race-old.svg", "other.svg"):
        (tmp_path / "images" / old).write_text("")
    for _ in range(2):
        assert page.main([str(race), str(target)]) == 0
    text = target.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "2 processors (Some CPU), 24 GiB, Linux 6.1.2, ext4; Python 3.11.7, Java 17.0.15" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:] == [
        "| `put` | 1.25 µs | 2.00 µs | 500 ns | 5% | – | 2.50 | 12 |",
        "| durable puts a second | RocketMQ 4.9.8 | RocketMQ 5.5.0 | rocketstore | spread "
        "| C limit | times as fast | by CPU |",
        "| 64 threads | – | 25,000 | 50,000 | 5% | 158,000 | 2.00 | 1.00 |",
        "| open | RocketMQ 4.9.8 | RocketMQ 5.5.0 | rocketstore | spread | C limit "
        "| times as fast | by CPU |",
        "| rebuild: open | – | – | 2.00 µs | 5% | – | – | – |",
    ]
    images = ["race-producer-100-durable.svg", "race-producer-100.svg"]
    assert re.findall(r"\(images/(.+?)\)", text) == images[::-1]
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["other.svg", *images]


def test_a_page_without_markers_is_left_as_it_is(tmp_path: Path) -> None:
    race, target = tmp_path / "race.json", tmp_path / "page.md"
    race.write_text(json.dumps(RACE))
    target.write_text("text\n<!-- race: begin -->\n")
    with pytest.raises(SystemExit, match="needs the lines"):
        page.main([str(race), str(target)])
    assert target.read_text() == "text\n<!-- race: begin -->\n"


def test_a_race_s_chart_has_a_mark_for_each_figure() -> None:
    chart = page.charts(RACE)["race-producer-100.svg"]
    names = [one.text for one in ElementTree.fromstring(chart).iter(f"{SVG}title")]
    assert names == [
        "Producer messages, bodies of 100 bytes", "RocketMQ 5.5.0: 2.00 µs",
        "RocketMQ 4.9.8: 1.25 µs", "rocketstore: 500 ns", "rocketstore: 2.00 µs",
    ]  # fmt: skip
    durable = page.charts(RACE)["race-producer-100-durable.svg"]
    assert "Durable puts of producer messages, bodies of 100 bytes" in durable
    assert "C limit: 6.32 µs" in durable
    assert "prefers-color-scheme:dark" in durable


def test_a_busy_machine_is_named() -> None:
    assert "The machine was busy: much." in page.section({**RACE, "busy": ["much"]})


def test_embedded_stores_have_a_table() -> None:
    lines = [
        {"name": "each put", "figures": {"rocketstore": figure(900), "lmdb": figure(5_200)}},
        {"name": "groups", "figures": {"rocketstore": figure(700)}},
    ]
    text = page.section({**RACE, "peers": lines})
    assert text.endswith(
        "**Embedded stores: time of a put**\n\n"
        "| durability | rocketstore | lmdb |\n|---|---|---|\n"
        "| each put | 900 ns | 5.20 µs |\n| groups | 700 ns | – |\n"
    )
    assert "Embedded stores" not in page.section(RACE)
