"""The extension list; everything else is in pyproject.toml.

``ROCKETSTORE_EXTENSIONS=message,guard`` limits the build to these modules (empty: none), and
``ROCKETSTORE_DEBUG=1`` builds with bounds checks, traps for undefined behaviour, little optimised.
"""

import multiprocessing
import os
import platform
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

NATIVE = Path("src/_native")
#: One folder a subject; each file's name is its own, so that all are on the search path.
FOLDERS = sorted(str(path) for path in NATIVE.iterdir() if path.is_dir())
SOURCES = {path.stem: str(path) for path in sorted(NATIVE.glob("*/*.pyx"))}
ALL_MODULES = (
    "guard,locks,mapping,record,message,put_result,commit_log,consume_queue,batch_consume_queue,"
    "index_file,reput,arrow,passes_stats,passes_fsck,passes_queue_units,passes_index_keys,"
    "passes_rows,passes_select,staged_records,reading,waiting,sql92,deliveries,transactions"
)
MODULES = [
    name for name in os.environ.get("ROCKETSTORE_EXTENSIONS", ALL_MODULES).split(",") if name
]
DEBUG = os.environ.get("ROCKETSTORE_DEBUG", "") not in ("", "0")
BUILD_DIR = Path("build/cython-debug" if DEBUG else "build/cython")


def is_x86_64_only():
    """Tell whether the code is built for x86-64 and nothing else (macOS may build two at once)."""
    if sys.platform == "darwin" and os.environ.get("ARCHFLAGS"):
        return os.environ["ARCHFLAGS"].split() == ["-arch", "x86_64"]
    if sys.platform == "darwin":
        return sysconfig.get_platform().endswith("x86_64")
    return platform.machine().lower() in ("x86_64", "amd64") and sys.maxsize > 2**32


def compile_args():
    """Return the compiler's arguments; faster bodies than the baseline's are chosen at run time."""
    if sys.platform == "win32":
        return ["/O2", "/W3", "/std:c11"]
    # Cython's generated code is free of these warnings too, so whatever is reported is ours.
    arguments = ["-std=c11", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wconversion"]
    # Python's internal headers, which it includes from 3.13 on, are not: they are the system's.
    arguments.append(f"-isystem{sysconfig.get_path('include')}")
    if is_x86_64_only():
        arguments.append("-march=x86-64-v2")
    if DEBUG:
        return [
            *arguments,
            "-O1",
            "-g",
            "-fsanitize=undefined",
            "-fsanitize-undefined-trap-on-error",
        ]
    # Without debug symbols a wheel is a quarter as large.
    return [*arguments, "-O3", "-g0"]


def processors():
    """Return how many files are translated and compiled at once."""
    return os.cpu_count() or 1


def remove_old_headers():
    """Remove copies of headers that were renamed: generated code would still include them."""
    for copy in BUILD_DIR.glob("src/_native/*/rs_*.[hp]*"):
        if not copy.relative_to(BUILD_DIR).exists():
            copy.unlink()


remove_old_headers()
EXTENSIONS = [
    Extension(
        f"rocketstore._native.{name}",
        [SOURCES[name]],
        include_dirs=FOLDERS,
        depends=[str(path) for path in sorted(NATIVE.glob("*/rs_*.[hp]*"))],
        extra_compile_args=compile_args(),
    )
    for name in MODULES
]

setup(
    ext_modules=cythonize(
        EXTENSIONS,
        include_path=FOLDERS,
        build_dir=str(BUILD_DIR),
        # Processes that do not begin as a copy of this one would run this file again.
        nthreads=processors() if multiprocessing.get_start_method() == "fork" else 0,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "embedsignature": True,
        },
    )
    if EXTENSIONS
    else [],
    options={"build_ext": {"parallel": processors()}},
)
