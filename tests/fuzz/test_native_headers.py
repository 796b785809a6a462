"""The C headers under sanitizers, with a fixed seed; ``make fuzz-native`` runs longer."""

from __future__ import annotations

import sys
from pathlib import Path

import native_fuzz
import pytest

RUNS = 20_000
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are POSIX")


@pytest.fixture(scope="module")
def engine() -> native_fuzz.Engine:
    """The machine's compiler, without libFuzzer so that every run tries the same inputs."""
    for name in ("gcc", "clang", "cc"):
        found = native_fuzz.find_engine(name)
        if found is not None:
            return native_fuzz.Engine(found.compiler, has_library=False)
    pytest.skip("no compiler with address and undefined sanitizers")


@pytest.mark.parametrize("target", native_fuzz.TARGETS)
def test_no_input_is_a_finding(target: str, engine: native_fuzz.Engine, tmp_path: Path) -> None:
    corpus = native_fuzz.make_corpus(target, tmp_path)
    for arch in native_fuzz.arches():
        program = native_fuzz.build(engine, target, arch, tmp_path)
        log = tmp_path / "log"
        assert native_fuzz.run(engine, program, corpus, RUNS, 1, log) == RUNS


def test_a_finding_is_reported(engine: native_fuzz.Engine, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho 'heap-buffer-overflow'\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(native_fuzz.FuzzError, match="heap-buffer-overflow"):
        native_fuzz.run(engine, program, tmp_path, 1, 1, tmp_path / "log")
