"""Compile every ``src/_native/*/rs_*.h`` on its own with all warnings as errors.

A header must include the headers that it needs, and must allow being included twice. Usage:
``python tools/check_headers.py``.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import bootstrap
import toolchain

NATIVE = bootstrap.ROOT / "src" / "_native"
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
#: Only the modules call a header's functions, so all are unused here.
FLAGS = [
    "-std=c11",
    "-D_GNU_SOURCE",  # as Python.h, which every module includes first, defines it
    "-O2",
    *WARNINGS,
    "-Wno-unused-function",
]


def main() -> int:
    """Compile each header; return 1 if any failed, else 0."""
    try:
        environment = toolchain.build_environment(Path(sys.executable), bootstrap.say)
    except toolchain.MissingError as missing:
        print(f"setup: {missing}", file=sys.stderr)
        return 1
    compiler = shlex.split(environment.get("CC") or sysconfig.get_config_var("CC"))
    flags = [*shlex.split(environment.get("CFLAGS", "")), *FLAGS]
    folders = sorted(path for path in NATIVE.iterdir() if path.is_dir())
    include = [*(f"-I{folder}" for folder in folders), f"-I{sysconfig.get_path('include')}"]
    headers = sorted(NATIVE.glob("*/rs_*.h"))
    failed = []
    for header in headers:
        source = f'#include "{header.name}"\n#include "{header.name}"\n'
        command = [*compiler, *flags, *include, "-x", "c", "-c", "-", "-o", "/dev/null"]
        if subprocess.run(command, input=source, text=True).returncode:
            failed.append(header.name)
    print(f"{len(headers)} headers compiled alone, {len(failed)} failed {' '.join(failed)}".strip())
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
