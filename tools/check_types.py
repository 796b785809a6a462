"""Run mypy over the package and the typed examples, then stubtest over the native modules.

Usage: ``python tools/check_types.py``. A line of ``tests/typing/stubtest_allowlist.txt`` names an
entry that stubtest must ignore, with the reason after ``#``.
"""

from __future__ import annotations

import os
import subprocess
import sys

from bootstrap import ROOT

ALLOWLIST = ROOT / "tests" / "typing" / "stubtest_allowlist.txt"


def run(*arguments: str) -> int:
    """Run a module with this interpreter and the package's sources on the path."""
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, env=environment).returncode


def unexplained() -> list[str]:
    """Return the lines of the allowlist without a reason."""
    lines = ALLOWLIST.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.partition("#")[2].strip()]


def main() -> int:
    """Run all checks; return 0 if they pass."""
    without_reason = unexplained()
    for line in without_reason:
        print(f"{ALLOWLIST.name}: {line!r} has no reason")
    stubs = sorted((ROOT / "src" / "rocketstore" / "_native").glob("*.pyi"))
    modules = [f"rocketstore._native.{path.stem}" for path in stubs]
    # Entries that one Python version needs are unused on another. Whether a class has its own C
    # struct does not matter to readers of the stubs.
    options = ["--concise", "--ignore-unused-allowlist", "--ignore-disjoint-bases"]
    results = [
        run("mypy"),
        run("mypy.stubtest", *options, "--allowlist", str(ALLOWLIST), *modules),
    ]
    return 1 if any(results) or without_reason else 0


if __name__ == "__main__":
    sys.exit(main())
