"""Builds the Cython modules with sanitizers, separate from the checkout's own, and loads them."""

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
FOLDERS = tuple(sorted(path for path in SOURCES.iterdir() if path.is_dir()))
PYX = {path.stem: path for path in sorted(SOURCES.glob("*/*.pyx"))}
MODULES = tuple(sorted(PYX))
_DIRECTIVES = ("boundscheck=False", "wraparound=False", "initializedcheck=False", "cdivision=True")
_FLAGS = (
    *("-std=c11", "-g", "-O1", "-fPIC", "-shared", "-fno-omit-frame-pointer"),
    "-fvisibility=hidden",
)
#: Compiler flags by sanitizer; below, the libraries they need.
ADDRESS, THREAD = "address", "thread"
SANITIZERS = {
    ADDRESS: ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # It warns that it does not support fences; rs_bytes.h uses atomics instead.
    THREAD: ("-fsanitize=thread", "-Wno-tsan"),
}
_LIBRARIES = {ADDRESS: "asan", THREAD: "tsan"}
_SUPPRESSIONS = Path(__file__).with_name("tsan.supp")


class Finder(importlib.abc.MetaPathFinder):
    """Imports the native modules from ``directory`` instead of the checkout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a native module, ``None`` for other modules."""
        package, _, name = fullname.rpartition(".")
        file = self.directory / f"{name}.so"
        if package != PACKAGE or not file.exists():
            return None
        return importlib.util.spec_from_file_location(fullname, file)


def build(
    compiler: str,
    directory: Path = BUILD,
    sanitizer: str = ADDRESS,
    modules: Sequence[str] = MODULES,
) -> Path:
    """Compile the modules that are older than the sources; return their folder."""
    # Every module depends on all headers and declarations.
    newest = max(path.stat().st_mtime for path in SOURCES.glob("*/*"))
    library = directory / "lib"
    library.mkdir(parents=True, exist_ok=True)
    for name in modules:
        target = library / f"{name}.so"
        if target.exists() and target.stat().st_mtime > newest:
            continue
        print(f"building {name} with the sanitizer {sanitizer}", flush=True)
        _compile(compiler, name, directory, target, sanitizer)
    return library


def _compile(compiler: str, name: str, directory: Path, target: Path, sanitizer: str) -> None:
    c_file = directory / f"{name}.c"
    cython = [sys.executable, "-m", "cython", "-3", f"--module-name={PACKAGE}.{name}"]
    cython += [word for directive in _DIRECTIVES for word in ("-X", directive)]
    cython += [*(f"-I{folder}" for folder in FOLDERS), "-o", str(c_file), str(PYX[name])]
    subprocess.run(cython, check=True)
    flags = [
        *_FLAGS,
        *SANITIZERS[sanitizer],
        f"-isystem{sysconfig.get_path('include')}",
        *(f"-I{folder}" for folder in FOLDERS),
    ]
    if platform.machine().lower() in ("x86_64", "amd64"):
        flags.append("-march=x86-64-v2")
    temporary = target.with_suffix(".new")
    subprocess.run([compiler, *flags, str(c_file), "-o", str(temporary)], check=True)
    os.replace(temporary, target)


def environment(compiler: str, sanitizer: str = ADDRESS) -> dict[str, str]:
    """Return the environment in which a child process can load the modules."""
    # Python itself is not built with the sanitizer, so its library must be loaded first.
    name = _LIBRARIES[sanitizer]
    library = _library(compiler, f"lib{name}.so")
    if not Path(library).is_absolute():
        library = _library(compiler, f"libclang_rt.{name}-{platform.machine()}.so")
    # C++ packages throw through the sanitizer, which looks up the real function when it is loaded.
    cxx = _library(compiler, "libstdc++.so.6")
    preload = [library, cxx] if Path(cxx).is_absolute() else [library]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(preload),
        # Python's own allocations live as long as the process: do not report them as leaks.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        "TSAN_OPTIONS": f"halt_on_error=1:abort_on_error=1:suppressions={_SUPPRESSIONS}",
        # Every object gets its own allocation, so that the sanitizer knows where it ends.
        "PYTHONMALLOC": "malloc",
    }


def _library(compiler: str, name: str) -> str:
    command = [compiler, f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
