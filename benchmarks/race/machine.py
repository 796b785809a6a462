"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def machine(folder: Path) -> dict[str, Any]:
    """What the figures depend on."""
    cpu = next(
        (
            text.partition(":")[2].strip()
            for text in Path("/proc/cpuinfo").read_text().splitlines()
            if text.startswith("model name")
        ),
        platform.processor(),
    )
    import rocketstore

    return {
        "cpu": cpu,
        "processors": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": rocketstore.file_system_of(folder),
        "python": platform.python_version(),
        "java": _first_line("java", "-version"),
        "rocketstore": rocketstore.__version__,
        "commit": _first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
    }


def _first_line(*command: str) -> str:
    """What a program prints first; empty if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return (done.stdout + done.stderr).partition("\n")[0]


def described(facts: Mapping[str, Any]) -> str:
    """Return the facts of a machine as the pages show them."""
    system = facts["system"].split("-")[0]
    return (
        f"{facts['processors']} processors ({facts['cpu']}), {facts['memory_gib']} GiB, {system}, "
        f"{facts['file_system']}; Python {facts['python']}"
    )
