"""Run a command apart and measure it: seconds, CPU seconds, peak of memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cost:
    """What a command cost.

    Attributes
    ----------
    seconds, cpu_s : float
        Elapsed, and of all processors together.
    peak_mib : float
        Most memory at one time (maximum resident set), pages of mapped files included.
    anonymous_mib : float or None
        Largest part of it that was the process's own, looked up ten times a second.
    status : int
        Exit status; negative for a signal.
    load : float
        The machine's load of the last minute when it began.
    """

    seconds: float
    cpu_s: float
    peak_mib: float
    anonymous_mib: float | None
    status: int
    load: float

    def json(self) -> dict[str, Any]:
        """Return the members of its JSON."""
        return asdict(self)


def run(words: Sequence[str], allowed: Sequence[int] = (0, 1)) -> Cost:
    """Run ``rocketstore WORDS``, and return its cost.

    Raises ``RuntimeError`` with what it printed if it ends with another status than the allowed.
    """
    return measure([sys.executable, "-m", "rocketstore.cli", *words], allowed)


def measure(command: Sequence[str], allowed: Sequence[int] = (0,)) -> Cost:
    """Run any command, and return its cost."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        child = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=_with_bytecode()
        )
        anonymous = 0
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            anonymous = max(anonymous, _anonymous_kib(child.pid))
            time.sleep(0.1 if time.perf_counter() - began > 1 else 0.01)
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in allowed:
            output.seek(0)
            text = output.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}:\n{text}")
    return Cost(
        seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024,
        anonymous / 1024 or None, child.returncode, load,
    )  # fmt: skip


def _with_bytecode() -> dict[str, str]:
    """Return the environment, but modules may be compiled once for all commands, as at users'."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _anonymous_kib(pid: int) -> int:
    """Return KiB of a process's own memory; 0 if it has ended or the system does not say."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    lines = [line for line in text.splitlines() if line.startswith("RssAnon:")]
    return int(lines[0].split()[1]) if lines else 0


def warm(folder: Path) -> None:
    """Read all files below ``folder``, so that they are in the system's cache."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 22):
                    pass
