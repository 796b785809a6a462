"""``make bench-check``: reading callgrind's files, judging counts, choosing baselines. Nothing is
counted here; the command itself counts."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PART = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 7
part: 3

desc: Timerange: Basic block 12 - 345
desc: Trigger: Client Request: {name}

positions: line
events: Ir
summary: {total}

fl=(1) ceval.c
fn=(1) _PyEval_EvalFrameDefault
12 99
totals: {total}
"""


def check(name: str) -> ModuleType:
    """A module of ``benchmarks/check``, imported without changing the import path."""
    folders = [str(ROOT / "benchmarks"), str(ROOT / "tools")]
    sys.path[:0] = folders
    try:
        return importlib.import_module(f"check.{name}")
    finally:
        for folder in folders:
            sys.path.remove(folder)


baselines, callgrind, comparing = check("baselines"), check("callgrind"), check("comparing")
command = check("__main__")
Verdict = comparing.Verdict


# --- callgrind's files ----------------------------------------------------------------------------


def test_a_part_has_a_name_and_a_total() -> None:
    text = PART.format(name="put.stock.100B", total=1714741)
    assert callgrind.parse_part(text) == ("put.stock.100B", 1714741)


def test_a_part_may_have_only_totals() -> None:
    """Callgrind wrote either line, ``summary`` or ``totals``, first."""
    text = PART.format(name="scan", total=5).replace("summary: 5\n", "")
    assert callgrind.parse_part(text) == ("scan", 5)


@pytest.mark.parametrize("line", ["desc: Trigger: Program termination", ""])
def test_a_part_of_the_end_is_no_count(line: str) -> None:
    text = PART.replace("desc: Trigger: Client Request: {name}", line).replace("{total}", "0")
    with pytest.raises(ValueError, match="no named count"):
        callgrind.parse_part(text)


def test_the_count_is_the_median_without_the_empty_loop_by_unit() -> None:
    runs = {"empty.64": [400, 200, 300], "put": [64_300, 64_940, 64_300]}
    counted = {"put": {"units": 64, "of": "message", "loops": 64}}
    (count,) = callgrind.counts_of(runs, counted).values()
    assert (count.instructions, count.of) == (1000, "message")
    assert count.spread == pytest.approx(640 / 64_300)


# --- judging --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (1000, 1000, Verdict.SAME),
        (1000, 1030, Verdict.SAME),
        (1000, 1031, Verdict.DEARER),
        (1000, 970, Verdict.SAME),
        (1000, 969, Verdict.CHEAPER),
        (20, 22, Verdict.SAME),  # a tenth, and two instructions
        (20, 23, Verdict.DEARER),
        (0, 2, Verdict.SAME),
        (None, 5, Verdict.NEW),
        (5, None, Verdict.GONE),
    ],
)
def test_judge(before: int | None, now: int | None, verdict: str) -> None:
    assert comparing.judge(before, now, 3.0) == verdict


def test_the_tolerance_is_in_percent() -> None:
    assert comparing.judge(1000, 1100, 10.0) == Verdict.SAME
    assert comparing.judge(1000, 1006, 0.5) == Verdict.DEARER


def test_a_short_call_may_move_by_what_addresses_change() -> None:
    """The hash of a key cost 460 to 475 instructions: freeing its result has several paths."""
    count = callgrind.Count(460, "call", 0.0, calls=1.0)
    changes = comparing.compare({"a": 460}, {"a": 475}, 3.0, {"a": count.least_move})
    assert not comparing.has_moved(changes)
    count = callgrind.Count(20, "unit", 0.0, calls=0.0)
    changes = comparing.compare({"a": 20}, {"a": 23}, 3.0, {"a": count.least_move})
    assert comparing.has_moved(changes)


def test_the_table_is_sorted_by_change() -> None:
    before = {"same": 100, "cheaper": 1000, "dearer": 1000, "gone": 7}
    now = {"same": 100, "cheaper": 900, "dearer": 1234, "new": 8}
    changes = comparing.compare(before, now, 3.0, {})
    assert [change.path for change in changes] == ["gone", "new", "dearer", "same", "cheaper"]
    assert comparing.has_moved(changes)
    rows = comparing.table(changes).splitlines()
    assert rows[0].split() == ["path", "baseline", "now", "change"]
    assert rows[3].split()[:5] == ["dearer", "1,000", "1,234", "+23.4", "%"]
    assert "renew the baseline" in rows[5]
    assert comparing.summary(changes, 3.0).startswith("4 of 5 paths moved: 1 costs more, ")


def test_nothing_moved() -> None:
    changes = comparing.compare({"a": 100}, {"a": 101}, 3.0, {})
    assert not comparing.has_moved(changes)
    assert comparing.summary(changes, 3.0) == "All 1 paths are within 3 % of their baselines."


# --- baselines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "compiler"),
    [
        (b"\0GCC: (Debian 12.2.0-14+deb12u1) 12.2.0\0", "gcc-12"),
        (b"\0GCC: (GNU) 13.1\0..\0Debian clang version 14.0.6\0", "clang-14"),
        (b"\0stripped\0", "unknown-compiler"),
    ],
)
def test_a_module_names_its_compiler(module: bytes, compiler: str) -> None:
    assert baselines.compiler_of(module) == compiler


def test_a_module_names_its_cython() -> None:
    assert baselines.cython_of(b"\0_cython_3_3_1.generator\0") == "cython-3.3"
    assert baselines.cython_of(b"") == "unknown-cython"


def test_other_environments_keep_their_baselines(tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    assert baselines.read(file) == {}
    count = callgrind.Count(5, "call", 0.0)
    found = baselines.with_counts({}, "one", {"numpy": "1"}, {"a": count})
    found = baselines.with_counts(found, "another", {"numpy": "2"}, {"a": count})
    baselines.write(file, found)
    found = baselines.read(file)
    assert list(found) == ["another", "one"]
    assert baselines.instructions(found, "one") == {"a": 5}
    assert baselines.instructions(found, "third") is None
    assert baselines.differences(found, "one", {"numpy": "2"}) == ["numpy 1 then, 2 now"]


def test_the_committed_baselines_are_whole() -> None:
    found = json.loads(baselines.FILE.read_text(encoding="utf-8"))
    assert found
    for entry in found.values():
        assert min(entry["instructions"].values()) > 0
        assert {"python", "valgrind"} <= set(entry["counted_with"])


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """What the command counts, instead of running valgrind."""
    counts: dict[str, int] = {"a": 1000, "b": 1000}

    def run(folder: Path, names: str) -> dict[str, Any]:
        return {n: callgrind.Count(c, "call", 0.0) for n, c in counts.items() if names in n}

    monkeypatch.setattr(callgrind, "run", run)
    monkeypatch.setattr(command, "KEPT", tmp_path)
    monkeypatch.setattr(callgrind, "ROOT", tmp_path.parent)
    monkeypatch.setattr(baselines, "details", lambda: {"valgrind": "3.19.0"})
    monkeypatch.setattr(baselines, "key", lambda: "here")
    return counts


def test_the_command(counted: dict[str, int], tmp_path: Path, capsys: Any) -> None:
    """Missing baselines, written ones, and a path that moved."""
    file = tmp_path / "baselines.json"
    options = ["--baselines", str(file)]
    assert command.main(options) == command.NO_BASELINE
    assert "no baselines for this environment" in capsys.readouterr().out
    assert command.main([*options, "--allow-missing"]) == 0
    assert command.main([*options, "--update"]) == 0
    assert file.read_text() == (tmp_path / baselines.FILE.name).read_text()
    assert command.main(options) == 0
    assert "All 2 paths are within 3 %" in capsys.readouterr().out
    counted["b"] = 1100
    assert command.main(options) == command.MOVED
    assert "1 of 2 paths moved: 1 costs more." in capsys.readouterr().out
    assert command.main([*options, "--tolerance", "10"]) == 0
    assert command.main([*options, "--paths", "a"]) == 0
    counted["b"] = 900
    assert command.main(options) == command.MOVED


def test_an_update_is_of_all_paths(counted: dict[str, int], tmp_path: Path) -> None:
    """An update of some paths would have deleted the baselines of the others."""
    file = tmp_path / "baselines.json"
    options = ["--baselines", str(file), "--update", "--paths", "a"]
    assert command.main(options) == command.MISSING_TOOL
    assert not file.exists()


def test_missing_valgrind_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    toolchain = command.toolchain
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    monkeypatch.setattr(toolchain, "apt_install", lambda packages, say: False)
    monkeypatch.setattr(command, "KEPT", tmp_path / "kept")
    assert command.main([]) == command.MISSING_TOOL
    (line,) = capsys.readouterr().err.splitlines()
    assert "sudo apt-get install valgrind" in line
    assert line.endswith(".")
    assert ". " not in line
