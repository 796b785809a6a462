"""Running the counting program under valgrind, and reading what callgrind wrote."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import toolchain
from check.comparing import LEAST_MOVE
from check.counter import empty_name

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_OUT = "callgrind.out"
_NAME = re.compile(r"^desc: Trigger: Client Request: (.+)$", re.MULTILINE)
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
#: Instructions of freeing the object that a call returns: between the best address and the worst.
ADDRESS_NOISE = 20
#: glibc copies long ranges in ways that depend on the processor's caches; one way for all.
_ONE_WAY_OF_COPYING = ":".join(
    f"glibc.cpu.x86_{name}_threshold=0x40000000"
    for name in ("rep_movsb", "rep_stosb", "non_temporal")
)


@dataclass(frozen=True)
class Count:
    """Instructions of one unit of a path, and how far its runs lie apart.

    ``spread`` is the largest difference between two runs, as a part of their median; ``calls`` the
    number of calls from Python for one unit.
    """

    instructions: int
    of: str
    spread: float
    calls: float = 1.0

    @property
    def least_move(self) -> float:
        """How far the count may move because objects have other addresses."""
        return LEAST_MOVE + ADDRESS_NOISE * self.calls


def parse_part(text: str) -> tuple[str, int]:
    """Return the name and the total of one of callgrind's files.

    Raises ``ValueError`` if it has none, as a file that was not written at a client request.
    """
    name, total = _NAME.search(text), _TOTAL.search(text)
    if name is None or total is None:
        raise ValueError("this file of callgrind holds no named count")
    return name[1], int(total[1])


def counts_of(runs: dict[str, list[int]], counted: dict[str, dict[str, Any]]) -> dict[str, Count]:
    """Return the count of each path: the median of its runs without the empty loop, by unit."""
    found = {}
    for name, about in counted.items():
        median = statistics.median(runs[name])
        instructions = (median - statistics.median(runs[empty_name(about["loops"])])) / about[
            "units"
        ]
        spread = (max(runs[name]) - min(runs[name])) / median
        found[name] = Count(
            round(instructions), about["of"], spread, about["loops"] / about["units"]
        )
    return found


def processor_body() -> str:
    """Return which body of the SIMD kernels is counted: on x86-64 never the one for AVX-512, which
    valgrind does not support; elsewhere the library's choice."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "default"
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    return "avx2" if "avx2" in flags and "pclmulqdq" in flags else "baseline"


def ensure_tools(python: Path) -> tuple[str, str]:
    """Return the paths of valgrind and a C compiler; install valgrind if possible.

    Raises ``MissingError`` with one sentence.
    """
    toolchain.ensure_valgrind(lambda text: print(f"setup: {text}", file=sys.stderr, flush=True))
    valgrind = shutil.which("valgrind")
    compiler = os.environ.get("CC") or toolchain.find_compiler(toolchain.python_facts(python)["cc"])
    assert valgrind is not None
    if compiler is None:
        raise toolchain.MissingError(
            "no working C compiler (cc, gcc, clang): install one, on Debian or Ubuntu with "
            "`sudo apt-get install gcc libc6-dev`."
        )
    return valgrind, compiler


def build_library(compiler: str, folder: Path) -> Path:
    """Compile ``counter.c``; raise ``MissingError`` without valgrind's headers."""
    library = folder / "counter.so"
    command = [*compiler.split(), "-O2", "-shared", "-fPIC", str(HERE / "counter.c")]
    done = subprocess.run([*command, "-o", str(library)], capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise toolchain.MissingError(
            "valgrind's C headers are missing (valgrind/callgrind.h): install them, on Fedora "
            "with `sudo dnf install valgrind-devel`."
        )
    return library


def environment() -> dict[str, str]:
    """Return the environment of the counted process: the same on every machine."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    body = processor_body()
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")]),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "GLIBC_TUNABLES": _ONE_WAY_OF_COPYING,
        "ROCKETSTORE_CPU": "" if body == "default" else body,
    }


def run(folder: Path, names: str = "") -> dict[str, Count]:
    """Count all paths whose name contains ``names``; keep callgrind's files in ``folder``.

    The last run of each path remains as ``<path>.callgrind``, for ``callgrind_annotate``.
    """
    valgrind, compiler = ensure_tools(Path(sys.executable))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    answer = folder / "paths.json"
    # At the start nothing is collected, and nothing instrumented either: imports run faster.
    done = subprocess.run(
        [
            valgrind, "-q", "--tool=callgrind", "--collect-atstart=no", "--instr-atstart=no",
            f"--callgrind-out-file={folder / _OUT}", sys.executable, "-m", "check.program",
            str(build_library(compiler, folder)), str(answer), names,
        ],
        env=environment(),
    )  # fmt: skip
    if done.returncode:
        raise SystemExit("bench-check: the counting program failed (see above).")
    runs = defaultdict(list)
    parts = folder.glob(f"{_OUT}.*")
    for part in sorted(parts, key=lambda path: int(path.suffix[1:])):
        name, total = parse_part(part.read_text(encoding="utf-8", errors="replace"))
        runs[name].append(total)
        part.replace(folder / f"{name}.callgrind")
    return counts_of(runs, json.loads(answer.read_text(encoding="utf-8")))
