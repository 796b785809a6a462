"""Set up a checkout: virtual environment, packages, compiler, native modules.

Usage: ``python tools/bootstrap.py [--for run|test] [--debug]``; ``make`` calls it. Every step
records a stamp in the environment and is skipped until one of its inputs changes, so that a second
run is quick. Missing programs are installed if possible; otherwise one sentence names them.
Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import toolchain

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
#: Extras to install: those that a build and a run need, and those that tests need.
EXTRAS = {
    "run": ("spark", "demo"),
    "test": ("spark", "demo", "arrow", "remote", "metrics", "docs", "dev"),
}


def say(text: str) -> None:
    """Print one line of progress on stderr, without buffering."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def digest(*parts: object) -> str:
    """Return a short hash of the parts; a path is hashed by its content."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else repr(part).encode()
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:16]


class Stamps:
    """The steps done in an environment, by name, stored in a file inside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}

    def holds(self, name: str, value: str) -> bool:
        """Return whether the step ``name`` was last done for ``value``."""
        return self.done.get(name) == value

    def put(self, name: str, value: str) -> None:
        """Record that the step ``name`` is done for ``value``."""
        self.done[name] = value
        scratch = self.path.with_suffix(".new")
        scratch.write_text(json.dumps(self.done, indent=1))
        scratch.replace(self.path)


def venv_python(directory: Path) -> Path:
    """Return the path of the interpreter in the virtual environment ``directory``."""
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def requirements(project: dict, purpose: str) -> list[str]:
    """Return the packages of ``pyproject.toml`` for ``purpose``: build, run time and extras."""
    found = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in EXTRAS[purpose]:
        found += project["project"]["optional-dependencies"][extra]
    return list(dict.fromkeys(found))


def ensure_venv(directory: Path) -> Path:
    """Create the virtual environment unless a working one exists; return its interpreter."""
    python = venv_python(directory)
    probe = [str(python), "-m", "pip", "--version"]
    if python.exists() and subprocess.run(probe, capture_output=True).returncode == 0:
        version = subprocess.run([python, "-V"], capture_output=True, text=True).stdout.split()[1]
        mine = "{}.{}".format(*sys.version_info[:2])
        if os.environ.get("PYTHON") and version.split(".")[:2] != mine.split("."):
            raise toolchain.MissingError(
                f"{directory} holds Python {version} and PYTHON asks for {mine}: "
                f"choose another folder, for example with `make VENV=.venv-{mine} ...`."
            )
        return python
    toolchain.ensure_ensurepip(say)
    say(f"making {directory} for Python {sys.version.split()[0]}")
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=os.name != "nt").create(directory)
    return python


def pip_install(python: Path, *arguments: str) -> None:
    """Run the environment's pip; its own output explains a failure."""
    # Python compiles a module when it is first imported; most of these never are.
    options = ("-q", "--disable-pip-version-check", "--no-compile")
    command = [str(python), "-m", "pip", "install", *options]
    if subprocess.run([*command, *arguments]).returncode:
        raise toolchain.MissingError(
            "pip could not install what the project needs (its message is above): check the "
            "network or the package index and run the same command again."
        )


def ensure_packages(python: Path, stamps: Stamps, project: dict, purpose: str) -> None:
    """Install the packages of ``purpose``; those of "test" include those of "run"."""
    wanted = requirements(project, purpose)
    for done in ("run", "test")[("run", "test").index(purpose) :]:
        if stamps.holds(f"packages for {done}", digest(requirements(project, done))):
            return
    say(f"installing {len(wanted)} packages and what they need from the package index")
    pip_install(python, *wanted)
    stamps.put(f"packages for {purpose}", digest(wanted))


def ensure_editable(python: Path, stamps: Stamps) -> None:
    """Install ``src`` and the ``rocketstore`` command in editable mode, without native modules."""
    value = digest(ROOT / "pyproject.toml", str(ROOT))
    if stamps.holds("editable install", value):
        return
    os.environ["ROCKETSTORE_EXTENSIONS"], before = "", os.environ.get("ROCKETSTORE_EXTENSIONS")
    try:
        pip_install(python, "--no-build-isolation", "--no-deps", "-e", str(ROOT))
    finally:
        del os.environ["ROCKETSTORE_EXTENSIONS"]
        if before is not None:
            os.environ["ROCKETSTORE_EXTENSIONS"] = before
    stamps.put("editable install", value)


def native_inputs() -> list[Path]:
    """Return every file that the native modules are built from."""
    return [ROOT / "setup.py", *sorted(p for p in (ROOT / "src/_native").rglob("*") if p.is_file())]


def built_modules() -> list[str]:
    """Return the names of the extension modules in the package, for any Python."""
    folder = ROOT / "src/rocketstore/_native"
    return sorted(p.name for p in folder.iterdir() if p.suffix in (".so", ".pyd"))


def ensure_native(python: Path, stamps: Stamps, debug: bool) -> None:
    """Build the native modules into the package, incrementally."""
    choice = {name: os.environ.get(name) for name in ("ROCKETSTORE_EXTENSIONS", "CC", "CFLAGS")}
    mode = digest(debug, choice, str(ROOT), ROOT / "setup.py")
    inputs = digest(*native_inputs(), mode)
    if stamps.holds("native modules", digest(inputs, built_modules())):
        return
    environment = toolchain.build_environment(python, say)
    say(f"building the native modules{' with checks' if debug else ''}")
    command = [str(python), "setup.py", "-q", "build_ext", "--inplace"]
    command.append(f"--build-temp=build/temp-{'debug' if debug else 'release'}")
    if not stamps.holds("native mode", mode):
        # Neither Cython nor setuptools detects changed flags or directives.
        generated = "cython-debug" if debug else "cython"
        shutil.rmtree(ROOT / "build" / generated, ignore_errors=True)
        command.append("--force")
    environment["ROCKETSTORE_DEBUG"] = "1" if debug else "0"
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        raise SystemExit("setup: the native modules do not compile (see above).")
    stamps.put("native mode", mode)
    stamps.put("native modules", digest(inputs, built_modules()))


def set_up(directory: Path, purpose: str, debug: bool = False) -> Path:
    """Run all steps; return the environment's interpreter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    python = ensure_venv(directory)
    stamps = Stamps(directory / "rocketstore-setup.json")
    ensure_packages(python, stamps, project, purpose)
    ensure_native(python, stamps, debug)
    ensure_editable(python, stamps)
    if purpose == "test" and not stamps.holds("java", "looked for"):
        toolchain.ensure_java(say)
        stamps.put("java", "looked for")
    if purpose == "test" and not stamps.holds("file systems", "looked for"):
        toolchain.ensure_file_systems(say)
        stamps.put("file systems", "looked for")
    return python


def main(arguments: list[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Set up a checkout of rocketstore.")
    parser.add_argument("--for", dest="purpose", choices=tuple(EXTRAS), default="test")
    parser.add_argument("--debug", action="store_true", help="build the native modules with checks")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    chosen = parser.parse_args(arguments)
    try:
        set_up(chosen.venv.absolute(), chosen.purpose, chosen.debug)
    except toolchain.MissingError as missing:
        print(f"setup: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
