"""The native modules under ASan with UBSan, and under TSan: the short form of ``make sanitize``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

if sys.platform != "linux":
    pytest.skip("the sanitizers' libraries are preloaded as on Linux", allow_module_level=True)
if shutil.which("gcc") is None and shutil.which("clang") is None:
    pytest.skip("sanitizers need gcc or clang", allow_module_level=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_kernels_under_a_sanitizer(sanitizer: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / "sanitize.py"), sanitizer, "--short"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert f"sanitizer {sanitizer}: 0 reports, pytest's status is 0" in done.stdout


def test_a_report_fails_the_run(tmp_path: Path) -> None:
    """The sanitizer detects a module that reads past its buffer, so a run without report counts."""
    program = tmp_path / "test_wrong.py"
    program.write_text(
        "import ctypes\n"
        "def test_wrong():\n"
        "    libc = ctypes.CDLL(None)\n"
        "    libc.malloc.restype = ctypes.c_void_p\n"
        "    place = libc.malloc(8)\n"
        "    libc.memset(ctypes.c_void_p(place), 0, 9)\n"
    )
    command = [sys.executable, str(ROOT / "tools" / "sanitize.py"), "address", "--short"]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stdout
