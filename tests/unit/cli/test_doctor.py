"""``rocketstore doctor``: its page, its forms and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from golden.golden_stores import unpack
from rocketstore.diagnosis.codes import CODES, explanation
from support.command_line import lines, run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack("broker-5.3.3", tmp_path)


def test_a_well_store(store: Path) -> None:
    page = run("doctor", store, "-f", "table").stdout
    assert "State: well" in page
    assert "RocketMQ 5.3.3 starts" in page
    assert not run("doctor", store, "-x", "-f", "table").stdout
    (*rows, summary) = lines(run("doctor", store))
    assert [one["kind"] for one in rows[-3:]] == ["broker"] * 3
    assert [one["code"] for one in rows[:-3]] == ["delay.overdue"]
    assert (summary["kind"], summary["ok"]) == ("summary", True)


def test_an_ill_store(store: Path) -> None:
    (store / "consumequeue/Mix0/1/00000000000000000000").unlink()
    page = run("doctor", store, "-f", "table", code=1).stdout
    assert "queue." in page
    assert "Next: rocketstore plan" in page
    document = json.loads(run("doctor", store, "-f", "json", code=1).stdout)
    assert document["state"] == "degraded"
    assert document["next"][0]["command"][0] == "rocketstore"
    run("doctor", store, "--fail-on", "critical")
    assert run("doctor", store, "-f", "csv", code=1).stdout.startswith("code")


def test_codes() -> None:
    assert "log.record.zeros" in run("doctor", "--codes", "-f", "table").stdout
    explained = run("doctor", "--explain", "log.torn", "-f", "table").stdout
    assert "Half a record" in explained
    run("doctor", "--explain", "log.none", code=2)
    for code in CODES:
        shown = run("doctor", "--explain", code, "--format", "table").stdout
        for heading, action in explanation(code, "PATH"):
            assert f"{heading}: {action.words()}" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("--quick", "--deep"),
        ("--broker-version", "one"),
        ("--broker-option", "messageIndexSafe"),
        ("--broker-option", "color=red"),
        ("--fail-on", "sometimes"),
    ],
)
def test_usage(store: Path, words: tuple[str, ...]) -> None:
    run("doctor", store, *words, code=2)


def test_no_store(tmp_path: Path) -> None:
    run("doctor", tmp_path, code=3)
    run("doctor", tmp_path / "none", code=3)
    run("doctor", code=2)
