"""``rocketstore bench``: it measures every row, and removes what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketstore.cli.bench import rows
from rocketstore.cli.bench.clock import Clock, Figure
from support.command_line import lines, run

SMALL = ("--messages", 1000, "--rounds", 2, "--quiet")


def test_every_row_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    found = json.loads(run("bench", tmp_path, *SMALL, "--format", "json").stdout)
    assert found["folder"] == str(tmp_path)
    assert (found["messages"], found["body_nbytes"], found["rounds"]) == (1000, 100, 2)
    names = [figure["name"] for figure in found["figures"]]
    assert sorted(names) == sorted(rows.NAMES)
    for figure in found["figures"]:
        assert figure["ns"] > 0
        assert figure["per_second"] > 0 or figure["name"] == "open"
    assert list(tmp_path.iterdir()) == []


def test_a_table_says_where_it_was_measured(tmp_path: Path) -> None:
    shown = run(
        "bench", tmp_path, *SMALL, "--only", "put_m", "--body", "1KiB", "--format", "table"
    ).stdout
    assert f" at {tmp_path}" in shown
    assert "1,000 messages with bodies of 1,024 bytes; medians of 2 rounds" in shown
    assert [line.split("  ")[0] for line in shown.splitlines()[3:]] == [
        "work", "put_message, one by one", "put_many, lists of 1,000 Message",
    ]  # fmt: skip


@pytest.mark.parametrize("name", rows.NAMES)
def test_a_row_alone(tmp_path: Path, name: str) -> None:
    answers = lines(run("bench", tmp_path, *SMALL, "--only", name))
    wanted = [one for one in rows.NAMES if one.startswith(name)]
    assert [answer["name"] for answer in answers] == wanted


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--only", "nothing"), "no row's name begins with 'nothing'; the names are put_message,"),
        (("--only", ""), "no row's name begins with ''"),
        (("--body", "5000000"), "a body has at most 4,000,000 bytes"),
        (("--body", "much"), "'much' is not a size"),
        (("--messages", "999"), "--messages"),
        (("--rounds", "0"), "--rounds"),
    ],
)
def test_wrong_words(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    assert text in " ".join(run("bench", tmp_path, *words, code=2).stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder(tmp_path: Path) -> None:
    assert "missing" in run("bench", tmp_path / "missing", *SMALL, code=3).stderr


def test_a_put_that_fails_ends_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        return type("Failed", (), {"ok": False, "__repr__": lambda self: "no room"})()

    monkeypatch.setattr("rocketstore.store.writing.WritingStore.put_many", fail)
    done = run("bench", tmp_path, *SMALL, "--only", "put_many", code=3)
    assert "a put of the bench failed: no room" in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_figure_is_the_median_of_its_rounds() -> None:
    figure = Figure("name", "meaning", "message")
    for wall_ns in (300, 100, 200):
        clock = Clock()
        clock.wall_ns, clock.cpu_ns = wall_ns, wall_ns // 2
        figure.take(clock, 10)
    assert (figure.wall_ns, figure.cpu_ns, figure.spread) == (20, 10, 1.0)
