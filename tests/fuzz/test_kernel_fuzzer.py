"""Changed bytes for the kernels of both bodies, and for the readers in Python, with a fixed seed.

``make fuzz-kernels`` runs longer, with sanitizers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("the fuzzer is POSIX", allow_module_level=True)

import kernel_cases
import kernel_fuzz
import reader_cases

from support.kernel_bodies import Bodies

SEED = 20261122
CASES = {name: 400 for name in kernel_cases.targets()}


@pytest.mark.parametrize("target", CASES)
def test_no_case_is_a_finding(target: str) -> None:
    runner = kernel_cases.Runner()
    case = kernel_cases.targets()[target]
    for number in range(CASES[target]):
        try:
            case(kernel_fuzz.case_random(SEED, target, number), runner)
        except kernel_cases.FindingError as finding:
            raise AssertionError(f"--seed {SEED}, {target}, case {number}") from finding
    assert runner.calls >= CASES[target]


def test_bodies_that_differ_are_a_finding() -> None:
    runner = kernel_cases.Runner()
    with pytest.raises(kernel_cases.FindingError, match=r"'native'.*, reference .*'reference'"):
        runner.both("names", lambda body: body.name)


def test_an_exception_that_is_not_documented_is_a_finding() -> None:
    def ask(body: Bodies) -> Any:
        raise KeyError(body.name)

    with pytest.raises(kernel_cases.FindingError, match="of the native body raised KeyError"):
        kernel_cases.Runner().both("anything", ask)


def test_a_reader_that_raises_is_a_finding() -> None:
    def check(content: bytes) -> None:
        raise RecursionError(len(content))

    with pytest.raises(kernel_cases.FindingError, match=r"check\(b'xy'\) raised RecursionError"):
        reader_cases.ask(check, b"xy")


def test_a_child_that_dies_is_reported_with_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import kernel_build

    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho heap-buffer-overflow\nkill -ABRT $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(kernel_build, "BUILD", tmp_path)
    monkeypatch.setattr(sys, "executable", str(program))
    assert kernel_fuzz.main(["--plain", "--targets", "record", "--runs", "5", "--seed", "7"]) == 1
    reported = capsys.readouterr().err
    assert "heap-buffer-overflow" in reported
    assert "case 0 of seed 7 ended with signal 6" in reported
    assert "--seed 7 --compare 1 --targets record --cases 0 1" in reported
