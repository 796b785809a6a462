"""Find or install a C compiler and Python's headers: by apt as root, or from the package index.

Used by ``bootstrap.py`` and ``wheel_test.py``. Standard library only.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

Say = Callable[[str], None]
PROBE = '#include <stdint.h>\n#include <string.h>\nint main(void) { return (int)strlen(""); }\n'
ZIG_NAME = "zig-cc"
#: Translates gcc options of distutils and fixes the target. Otherwise Zig builds for the current
#: processor and against the system's C library, whose headers may be missing.
ZIG_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    case $argument in
        -march=x86-64-v2) argument=-march=x86_64_v2 ;;
    esac
    set -- "$@" "$argument"
done
exec {zig} cc -target {target} "$@"
"""


#: Programs that are Chromium.
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class MissingError(Exception):
    """Something needed is missing and cannot be installed; the text is one sentence."""


def apt_install(packages: list[str], say: Say) -> bool:
    """Install Debian packages if this runs as root on Debian; return whether that worked."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    say(f"installing {' '.join(packages)} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    # Fetch the package lists only if the first attempt fails: they may be missing or old.
    for command in (install, ["apt-get", "update", "-q"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if command is install and done.returncode == 0:
            return True
    sys.stderr.write(done.stderr)
    return False


def ensure_ensurepip(say: Say) -> None:
    """Install ``ensurepip``, which is a separate package on Debian, or raise what to install."""
    if importlib.util.find_spec("ensurepip") is not None:
        return
    package = "python{}.{}-venv".format(*sys.version_info[:2])
    if apt_install([package], say):
        return
    raise MissingError(
        "this Python cannot make virtual environments: install its venv module, on Debian or "
        f"Ubuntu with `sudo apt-get install {package}`."
    )


def ensure_java(say: Say) -> None:
    """Install a JDK and Maven if possible: tests start the real RocketMQ with them.

    Without them those tests are skipped with a message.
    """
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing and not apt_install(["default-jdk-headless", "maven"], say):
        say(f"no {' and no '.join(missing)}: tests that start the real RocketMQ will be skipped")


def ensure_file_systems(say: Say) -> None:
    """Install the programs that create ext4 and xfs file systems, which tests shut down under a
    writer.

    Only root can mount them. Without them those tests are skipped with a message.
    """
    programs = {"mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs"}
    missing = [name for name in programs if shutil.which(name) is None]
    may_mount = sys.platform.startswith("linux") and os.geteuid() == 0
    if may_mount and missing and not apt_install([programs[name] for name in missing], say):
        say(f"no {' and no '.join(missing)}: tests that shut such file systems down are skipped")


def ensure_chromium(say: Say) -> None:
    """Install Chromium, which opens report pages, or raise what to install."""
    if any(map(shutil.which, CHROMIUM_NAMES)) or apt_install(["chromium"], say):
        return
    raise MissingError(
        "no Chromium is installed, which opens report pages: install it, on Debian or Ubuntu with "
        "`sudo apt-get install chromium`."
    )


def ensure_valgrind(say: Say) -> None:
    """Install valgrind, which counts instructions, or raise what to install."""
    if shutil.which("valgrind") is not None or apt_install(["valgrind"], say):
        return
    raise MissingError(
        "valgrind is missing, which counts instructions: install it, on Debian or Ubuntu with "
        "`sudo apt-get install valgrind`."
    )


def compiles(compiler: str) -> bool:
    """Return whether ``compiler`` can build a C file with two standard headers."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(PROBE)
        command = [*shlex.split(compiler), str(source), "-o", str(source.with_suffix(""))]
        try:
            return subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            return False


def python_facts(python: Path) -> dict[str, str]:
    """Return the interpreter's compiler, headers and C library."""
    code = (
        "import json, platform, sysconfig, sys; print(json.dumps({"
        "'cc': sysconfig.get_config_var('CC') or '', 'include': sysconfig.get_path('include'),"
        "'version': '%d.%d' % sys.version_info[:2], 'base': sys.base_prefix,"
        "'libc': '-'.join(platform.libc_ver())}))"
    )
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    facts: dict[str, str] = json.loads(done.stdout)
    return facts


def find_compiler(configured: str) -> str | None:
    """Return the first compiler that works: the one Python was built with, cc, gcc or clang."""
    return next((c for c in (configured, "cc", "gcc", "clang") if c and compiles(c)), None)


def zig_target(machine: str, system: str, libc: str) -> str:
    """Return Zig's name of the machine, with the version of glibc if the system uses it."""
    if system == "Darwin":
        return f"{'aarch64' if machine == 'arm64' else machine}-macos"
    name, _, version = libc.partition("-")
    if name != "glibc":
        return f"{machine}-linux-musl"
    return f"{machine}-linux-gnu.{version}"


def zig_compiler(python: Path, facts: dict[str, str], say: Say) -> str | None:
    """Install Zig from the package index and wrap it as a C compiler; return None on failure."""
    wrapper = python.parent / ZIG_NAME
    if wrapper.exists() and compiles(shlex.quote(str(wrapper))):
        return str(wrapper)
    say("no C compiler found: installing the package ziglang, which holds one")
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "ziglang"]
    if subprocess.run(pip).returncode:
        return None
    find = "import ziglang, os; print(os.path.join(os.path.dirname(ziglang.__file__), 'zig'))"
    done = subprocess.run([str(python), "-c", find], capture_output=True, text=True, check=True)
    target = zig_target(platform.machine(), platform.system(), facts["libc"])
    wrapper.write_text(ZIG_WRAPPER.format(zig=shlex.quote(done.stdout.strip()), target=target))
    wrapper.chmod(0o755)
    return str(wrapper) if compiles(shlex.quote(str(wrapper))) else None


def private_headers(folder: Path, facts: dict[str, str], say: Say) -> list[str] | None:
    """Unpack Debian's package of Python headers into ``folder``, which does not need root.

    Return the include directories, or None if the package is not available. Only for Debian's own
    Python: the headers of another build may differ.
    """
    package = f"libpython{facts['version']}-dev"
    base = folder / "usr/include"
    found = [str(base / f"python{facts['version']}"), str(base)]
    if Path(found[0], "Python.h").exists():
        return found
    if facts["base"] != "/usr" or not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    say(f"Python's headers are not installed: unpacking {package} into {folder}")
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    options = [f"-oDir::State::lists={folder / 'lists'}", f"-oDir::Cache={folder}", "-q"]
    for command in (["update"], ["download", package]):
        done = subprocess.run(
            ["apt-get", *options, *command], cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            sys.stderr.write(done.stderr)
            return None
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
        archive.unlink()
    shutil.rmtree(folder / "lists")
    return found if Path(found[0], "Python.h").exists() else None


def headers_sentence(facts: dict[str, str]) -> str:
    """Return the sentence about missing headers, with the package manager's command."""
    commands = {
        "apt-get": f"sudo apt-get install python{facts['version']}-dev",
        "dnf": "sudo dnf install python3-devel",
        "zypper": "sudo zypper install python3-devel",
        "apk": "apk add python3-dev",
    }
    command = next((text for tool, text in commands.items() if shutil.which(tool)), None)
    how = f"with `{command}`" if command else f"on Debian or Ubuntu with `{commands['apt-get']}`"
    return f"Python's C headers are missing ({facts['include']}/Python.h): install them {how}."


def build_environment(python: Path, say: Say) -> dict[str, str]:
    """Return the environment variables with which setuptools can compile here.

    Raises
    ------
    MissingError
        There is no compiler, or no headers, and they cannot be installed.
    """
    environment = dict(os.environ)
    facts = python_facts(python)
    no_headers = not Path(facts["include"], "Python.h").exists()
    compiler = os.environ.get("CC") or find_compiler(facts["cc"])
    wanted = [] if compiler else ["gcc", "libc6-dev"]
    wanted += [f"python{facts['version']}-dev"] if no_headers and facts["base"] == "/usr" else []
    if wanted and apt_install(wanted, say):
        compiler = os.environ.get("CC") or find_compiler(facts["cc"])
        no_headers = not Path(facts["include"], "Python.h").exists()
    if no_headers:
        include = private_headers(python.parent.parent / "python-headers", facts, say)
        if include is None:
            raise MissingError(headers_sentence(facts))
        flags = " ".join(f"-I{shlex.quote(directory)}" for directory in include)
        environment["CFLAGS"] = f"{flags} {environment.get('CFLAGS', '')}".strip()
    compiler = compiler or zig_compiler(python, facts, say)
    if compiler is None or not compiles(compiler):
        raise MissingError(
            f"no working C compiler ({compiler or 'cc, gcc, clang, ziglang'}): install one, on "
            "Debian or Ubuntu with `sudo apt-get install gcc libc6-dev`, and run this again."
        )
    if compiler != facts["cc"]:
        environment["CC"] = compiler
    if compiler.endswith(ZIG_NAME) and sys.platform == "linux":
        # Zig's linker does not support Python's link options (`-Bsymbolic-functions`, ...).
        environment.setdefault("LDSHARED", f"{compiler} -shared")
    return environment
