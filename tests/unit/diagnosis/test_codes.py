"""The codes of ``doctor``: complete, stable, with a next step."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.cli.command_list import SECTIONS
from rocketstore.diagnosis.codes import (
    BLOCKING_CODES,
    CODES,
    DATA_EFFECTS,
    LEFT_CODES,
    SEVERITIES,
    action_for,
    command_words,
)

EFFECTS = [
    "none",
    "mends",
    "cuts",
    "deletes",
    "loses-keys",
    "hides",
    "repeats",
    "slow",
    "refuses",
    "hangs",
]


@pytest.mark.parametrize("name", CODES)
def test_every_code_is_explained(name: str) -> None:
    code = CODES[name]
    assert code.severity in SEVERITIES
    assert code.data in DATA_EFFECTS
    assert code.broker in EFFECTS
    for sentence in (code.what, code.means, code.does):
        assert sentence[0].isupper() or sentence[0].isdigit()
    assert all(sentence.endswith(".") for sentence in (code.means, code.does))
    commands = {name for of in SECTIONS.values() for name in of}
    assert code.command in {"", *commands}
    if code.severity == "critical" or code.command:
        assert action_for(name, "store") is not None


def test_grave_findings_have_a_next_step() -> None:
    action = action_for("log.record.zeros", "store")
    assert action is not None
    assert action.command == ["rocketstore", "plan", "store", "-o", "plan.json"]
    assert action.document()["safe"] is True


def test_a_plan_is_not_written_into_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    for place in (tmp_path / "store", tmp_path / "store" / "commitlog"):
        monkeypatch.chdir(place)
        words = command_words("plan", str(tmp_path / "store"))
        assert words[-2:] == ["-o", str(tmp_path / "plan.json")]


def test_what_a_plan_refuses_or_leaves_names_no_plan() -> None:
    """But a plan may find the wrong bit that explains a gap."""
    for name in (BLOCKING_CODES | LEFT_CODES) - {"queue.unit.gap"}:
        action = action_for(name, "store")
        assert action is None or "plan" not in action.command, name


@pytest.mark.parametrize("name", CODES)
def test_next_steps_change_nothing(name: str) -> None:
    action = action_for(name, "store")
    if action is not None and action.command:
        assert action.command[1] in ("plan", "clean", "delay", "timer", "transactions")
        assert action.command[1] != "clean" or "--what-if" in action.command
