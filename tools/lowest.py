"""Test with the lowest versions of the packages that pyproject.toml allows.

Usage: ``python tools/lowest.py [pytest arguments]``; ``make lowest`` calls it. The environment is
kept in ``build/lowest``; the package itself is the checkout's. The packages that ours depend on
have their newest version, as in an environment that was set up long ago and updated in part.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import bootstrap

EXTRAS = ("arrow", "spark")
#: Of the packages for development, those that these tests import.
_NEEDED = ("pytest", "hypothesis", "setuptools", "zstandard")
TESTS = ("tests/unit/cli", "tests/unit/arrow", "tests/unit/sources", "tests/unit/spark")
#: Three processes, as in `make test`.
PARALLEL = ("-n", "3", "--dist", "loadgroup")
#: Its own imports need packages of the extra ``remote``.
_REMOTE = "--ignore=tests/unit/sources/test_files_remote.py"


def requirements() -> tuple[list[str], list[str]]:
    """Return the packages to install in their lowest version, and those for the tests."""
    text = (bootstrap.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    own = [*project["dependencies"], *(item for extra in EXTRAS for item in extras[extra])]
    return own, [item for item in extras["dev"] if item.startswith(_NEEDED)]


def environment(place: Path) -> Path:
    """Create the environment unless it exists; return its interpreter."""
    python = bootstrap.venv_python(place)
    stamps = bootstrap.Stamps(place / "rocketstore-setup.json")
    own, tests = requirements()
    wanted = bootstrap.digest([*own, *tests])
    if not python.exists() or not stamps.holds("packages", wanted):
        bootstrap.say(f"making {place}")
        venv.EnvBuilder(clear=True, with_pip=True, symlinks=os.name != "nt").create(place)
        bootstrap.pip_install(python, "uv", *tests)
        command = [python, "-m", "uv", "pip", "install", "--python", python]
        subprocess.run([*command, "--resolution", "lowest-direct", *own], check=True)
        stamps.put("packages", wanted)
    return python


def main(arguments: list[str]) -> int:
    """Entry point."""
    python = environment(bootstrap.ROOT / "build" / "lowest")
    chosen = arguments if any(part.startswith("tests") for part in arguments) else [*TESTS, _REMOTE]
    others = [part for part in arguments if part not in chosen]
    subprocess.run([python, "-m", "uv", "pip", "list", "--python", python], check=True)
    path = os.pathsep.join(str(bootstrap.ROOT / part) for part in ("src", "tests"))
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PARALLEL, *chosen, *others]
    return subprocess.run(
        [str(part) for part in command],
        cwd=bootstrap.ROOT,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
