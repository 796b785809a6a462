"""The extension list; everything else is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

NATIVE = Path("src/_native")
MODULES = (
    "guard",
    "mapping",
    "message",
    "commit_log",
    "consume_queue",
    "index_file",
    "reput",
)
if os.environ.get("ROCKETSTORE_EXTENSIONS"):
    MODULES = tuple(os.environ["ROCKETSTORE_EXTENSIONS"].split(","))
if sys.platform == "win32":
    COMPILE_ARGS = ["/O2", "/W3"]
else:
    COMPILE_ARGS = ["-O3", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-fvisibility=hidden"]
HEADERS = [str(path) for path in sorted(NATIVE.glob("rs_*.h"))]

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"rocketstore._native.{name}",
                [f"{NATIVE}/{name}.pyx"],
                include_dirs=[str(NATIVE)],
                depends=HEADERS,
                extra_compile_args=COMPILE_ARGS,
            )
            for name in MODULES
        ],
        include_path=[str(NATIVE)],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "embedsignature": True,
        },
    )
)
