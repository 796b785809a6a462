"""Builds the Cython modules with sanitizers, apart from the checkout's own, and loads them."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "_native"
BUILD = ROOT / "build" / "fuzz-kernels"
PACKAGE = "rocketstore._native"
MODULES = tuple(sorted(path.stem for path in SOURCES.glob("*.pyx")))
_DIRECTIVES = ("boundscheck=False", "wraparound=False", "initializedcheck=False", "cdivision=True")
_FLAGS = (
    *("-std=c11", "-g", "-O1", "-fPIC", "-shared", "-fno-omit-frame-pointer"),
    *("-fvisibility=hidden", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)


class Finder(importlib.abc.MetaPathFinder):
    """Takes the native modules from ``directory`` instead of the checkout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module of that name, when it is a native one."""
        package, _, name = fullname.rpartition(".")
        file = self.directory / f"{name}.so"
        if package != PACKAGE or not file.exists():
            return None
        return importlib.util.spec_from_file_location(fullname, file)


def build(compiler: str, directory: Path = BUILD) -> Path:
    """Compile what is older than its sources; return the folder of the modules."""
    # The headers and declarations concern every module.
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    library = directory / "lib"
    library.mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        target = library / f"{name}.so"
        if target.exists() and target.stat().st_mtime > newest:
            continue
        print(f"building {name} with sanitizers", flush=True)
        _compile(compiler, name, directory, target)
    return library


def _compile(compiler: str, name: str, directory: Path, target: Path) -> None:
    c_file = directory / f"{name}.c"
    cython = [sys.executable, "-m", "cython", "-3", f"--module-name={PACKAGE}.{name}"]
    cython += [word for directive in _DIRECTIVES for word in ("-X", directive)]
    cython += ["-I", str(SOURCES), "-o", str(c_file), str(SOURCES / f"{name}.pyx")]
    subprocess.run(cython, check=True)
    flags = [*_FLAGS, f"-isystem{sysconfig.get_path('include')}", f"-I{SOURCES}"]
    if platform.machine().lower() in ("x86_64", "amd64"):
        flags.append("-march=x86-64-v2")
    temporary = target.with_suffix(".new")
    subprocess.run([compiler, *flags, str(c_file), "-o", str(temporary)], check=True)
    os.replace(temporary, target)


def environment(compiler: str) -> dict[str, str]:
    """What a child process needs so that it can load the modules."""
    # Python itself is not built with the sanitizer, whose library must come first then.
    done = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    )
    library = done.stdout.strip()
    if not Path(library).is_absolute():
        done = subprocess.run(
            [compiler, f"-print-file-name=libclang_rt.asan-{platform.machine()}.so"],
            check=True,
            capture_output=True,
            text=True,
        )
        library = done.stdout.strip()
    return {
        **os.environ,
        "LD_PRELOAD": library,
        # Python's own allocations live as long as the process; no word about them.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        # Every object is an allocation of its own, so that the sanitizer knows where it ends.
        "PYTHONMALLOC": "malloc",
    }
