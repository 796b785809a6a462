"""The file of baselines: counts by the environment that they are comparable in."""

from __future__ import annotations

import importlib
import json
import platform
import re
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from check.callgrind import ROOT, Count, processor_body

FILE = ROOT / "benchmarks" / "instruction_counts.json"
_COMPILER = re.compile(rb"(clang version|GCC: \([^)]*\)) (\d+)")
_CYTHON = re.compile(rb"_cython_(\d+_\d+)")


def compiler_of(module: bytes) -> str:
    """Return compiler and major version that an extension module names in itself."""
    # A module of clang also names the gcc of the C library's start files.
    found = {name.split(b" ")[0]: major.decode() for name, major in _COMPILER.findall(module)}
    if b"clang" in found:
        return f"clang-{found[b'clang']}"
    return f"gcc-{found[b'GCC:']}" if b"GCC:" in found else "unknown-compiler"


def cython_of(module: bytes) -> str:
    """Return the version of Cython that made an extension module."""
    found = _CYTHON.search(module)
    return f"cython-{found[1].decode().replace('_', '.')}" if found else "unknown-cython"


def interpreter() -> str:
    """Return the interpreter's version, compiler and optimization: they decide most counts."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    options = {"--enable-optimizations": "pgo", "--with-lto": "lto"}
    made = [word for option, word in options.items() if option in arguments]
    compiler = "-".join(platform.python_compiler().lower().split(".")[0].split())
    version = "{}.{}".format(*platform.python_version_tuple()[:2])
    return "-".join([platform.python_implementation().lower(), version, compiler, *made])


def key() -> str:
    """Return what counts must have in common to be compared."""
    module = Path(importlib.import_module("rocketstore._native.record").__file__ or "")
    content = module.read_bytes()
    return " ".join(
        [interpreter(), compiler_of(content), cython_of(content), platform.machine(),
         processor_body()]
    )  # fmt: skip


def details() -> dict[str, str]:
    """Return versions that may change single counts; recorded for the reader of a comparison."""
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True)
    return {
        "python": platform.python_version(),
        "libc": "-".join(platform.libc_ver()),
        "valgrind": valgrind.stdout.strip().removeprefix("valgrind-"),
        **{name: importlib.import_module(name).__version__ for name in ("numpy", "pyarrow")},
    }


def read(file: Path) -> dict[str, Any]:
    """Return the baselines of all environments; none if there is no file."""
    if not file.exists():
        return {}
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def instructions(found: Mapping[str, Any], name: str) -> dict[str, int] | None:
    """Return the baselines of one environment, or None."""
    entry = found.get(name)
    return None if entry is None else dict(entry["instructions"])


def with_counts(
    found: Mapping[str, Any], name: str, about: Mapping[str, str], counts: Mapping[str, Count]
) -> dict[str, Any]:
    """Return the baselines with those of one environment replaced."""
    entry = {
        "counted_with": dict(about),
        "instructions": {path: count.instructions for path, count in counts.items()},
    }
    return dict(sorted({**found, name: entry}.items()))


def write(file: Path, found: Mapping[str, Any]) -> None:
    """Write the baselines of all environments."""
    file.write_text(f"{json.dumps(found, indent=1)}\n", encoding="utf-8")


def differences(found: Mapping[str, Any], name: str, about: Mapping[str, str]) -> list[str]:
    """Return the versions that differ from those of the baselines, in words."""
    before = found[name]["counted_with"]
    return [
        f"{what} {before.get(what, 'unknown')} then, {version} now"
        for what, version in about.items()
        if before.get(what) != version
    ]
