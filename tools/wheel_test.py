"""Build the sdist and a wheel from it, install that in an empty environment, and run tests there.

Usage: ``python tools/wheel_test.py [--all] [pytest arguments]``. The tests come from the sdist too.
The sources are not on the import path, so that the tests run what a user installs. All tests run in
the checkout; those that use the whole of a wheel run here, or with ``--all`` all whose result
could depend on how the package was installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import bootstrap
import toolchain

IN_WHEEL = (
    "rocketstore/py.typed",
    "rocketstore/_native/message.pyi",
    "rocketstore/formats.py",
    "rocketstore/spark/__init__.py",
    "pyspark_rocketstore.py",
)
#: Tests that use every module, native ones too, every command and every data file.
TESTS = (
    *("golden", "typing", "unit/arrow", "unit/cli", "unit/directory", "unit/display"),
    *("unit/flush", "unit/ground", "unit/index", "unit/log", "unit/queues", "unit/recovery"),
    *("unit/store", "unit/testing"),
)
ALL_TESTS = ("golden", "typing", "unit", "property")
#: Three processes, as ``make test`` runs them.
PARALLEL = ("-n", "3", "--dist", "loadgroup")
NOT_IN_WHEEL = re.compile(r"\.(c|h|pyx|pxd)$|^(tests|tools|docs|src)/")


def run(*command: str | Path, quiet: bool = False, **options: Any) -> None:
    """Run a command and print it on stderr; exit with its status if it fails."""
    bootstrap.say(" ".join(Path(part).name for part in map(str, command[:6])))
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(
        [str(part) for part in command], stdout=output, stderr=subprocess.STDOUT, **options
    )
    if done.returncode:
        if done.stdout:
            sys.stderr.buffer.write(done.stdout)
        raise SystemExit(done.returncode)


def only(folder: Path, pattern: str) -> Path:
    """Return the only file in ``folder`` that matches."""
    (found,) = folder.glob(pattern)
    return found


def check_contents(wheel: Path) -> None:
    """Exit with a message if the wheel lacks a file or contains sources."""
    names = zipfile.ZipFile(wheel).namelist()
    lacking = [name for name in IN_WHEEL if name not in names]
    foreign = [name for name in names if NOT_IN_WHEEL.search(name)]
    native = {Path(name).name.split(".")[0] for name in names if name.endswith((".so", ".pyd"))}
    lacking += sorted({Path(name).stem for name in names if name.endswith(".pyi")} - native)
    if lacking or foreign:
        raise SystemExit(f"{wheel.name} lacks {lacking} and holds {foreign}")
    bootstrap.say(f"{wheel.name}: {len(names)} files, {len(native)} native modules")


def build(folder: Path, environment: dict[str, str]) -> tuple[Path, Path]:
    """Build the sdist from the checkout and the wheel from the sdist; return (sources, wheel)."""
    make = (sys.executable, "-m", "build", "-o", folder)
    run(*make, "-s", bootstrap.ROOT, quiet=True, env=environment)
    with tarfile.open(only(folder, "*.tar.gz")) as archive:
        # Python before 3.11.4 has no filters; the archive is our own.
        filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder / "sdist", **filters)
    sources = only(folder / "sdist", "rocketstore-*")
    run(*make, "-w", sources, quiet=True, env=environment)
    wheel = only(folder, "*.whl")
    check_contents(wheel)
    return sources, wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel, and what it asks for, into an empty environment; return its Python."""
    venv.EnvBuilder(with_pip=True, symlinks=os.name != "nt").create(folder)
    python = bootstrap.venv_python(folder)
    bootstrap.pip_install(python, str(wheel))
    where = "import rocketstore, sys; assert rocketstore.__file__.startswith(sys.prefix)"
    run(python, "-P", "-c", where, cwd=folder)
    run(python, "-P", "-m", "rocketstore.cli", "--version", cwd=folder)
    return python


def lend_packages(python: Path) -> None:
    """Let the environment find the packages of this one that it lacks, such as pytest.

    An editable install of the checkout stays hidden: Python reads no ``.pth`` files there.
    """
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-P", "-c", where], check=True, capture_output=True, text=True)
    lent = Path(done.stdout.strip()) / "packages-for-tests.pth"
    lent.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Entry point."""
    tests = TESTS
    if "--all" in arguments:
        tests = ALL_TESTS
        arguments = [argument for argument in arguments if argument != "--all"]
    with tempfile.TemporaryDirectory(prefix="rocketstore-wheel-") as scratch:
        folder = Path(scratch)
        try:
            environment = toolchain.build_environment(Path(sys.executable), bootstrap.say)
        except toolchain.MissingError as missing:
            raise SystemExit(f"setup: {missing}") from missing
        sources, wheel = build(folder, environment)
        python = install(wheel, folder / "venv")
        lend_packages(python)
        pytest = [
            python,
            "-P",
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-o",
            "pythonpath=tests",
            *PARALLEL,
            *(f"tests/{name}" for name in tests),
        ]
        run(*pytest, *arguments, cwd=sources)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
