"""The scripts that set up a checkout: their decisions, without installing anything."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FACTS = {
    "cc": "no-such-cc",
    "include": "/nowhere/python3.11",
    "version": "3.11",
    "base": "/opt/python",
    "libc": "glibc-2.36",
}


def tool(name: str) -> ModuleType:
    """A module of ``tools/``, imported without changing the import path for other tests."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "tools"))


bootstrap, toolchain, wheel_test = tool("bootstrap"), tool("toolchain"), tool("wheel_test")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine without compiler, headers, apt and network; gives what was said."""
    said: list[str] = []
    for name in ("CC", "CFLAGS", "LDSHARED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolchain, "python_facts", lambda python: dict(FACTS))
    monkeypatch.setattr(toolchain, "compiles", lambda compiler: False)
    monkeypatch.setattr(toolchain, "apt_install", lambda packages, say: False)
    monkeypatch.setattr(toolchain, "zig_compiler", lambda python, facts, say: None)
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    return said


def environment(said: list[str]) -> dict[str, str]:
    """What the bare machine builds with."""
    found: dict[str, str] = toolchain.build_environment(Path("venv/bin/python"), said.append)
    return found


def is_one_sentence(text: str) -> bool:
    """One line, one full stop, at the end."""
    return "\n" not in text and text.endswith(".") and ". " not in text


def test_missing_headers_are_one_sentence(bare: list[str]) -> None:
    with pytest.raises(toolchain.MissingError) as caught:
        environment(bare)
    assert is_one_sentence(str(caught.value))
    assert "sudo apt-get install python3.11-dev" in str(caught.value)


@pytest.mark.parametrize(("program", "command"), [("dnf", "dnf install"), ("apk", "apk add")])
def test_headers_come_from_the_systems_own_manager(
    program: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: name if name == program else None)
    sentence = toolchain.headers_sentence(FACTS)
    assert is_one_sentence(sentence)
    assert command in sentence


def test_missing_compiler_is_one_sentence(
    bare: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Python.h").touch()
    monkeypatch.setitem(FACTS, "include", str(tmp_path))
    with pytest.raises(toolchain.MissingError) as caught:
        environment(bare)
    assert is_one_sentence(str(caught.value))
    assert "sudo apt-get install gcc libc6-dev" in str(caught.value)


def test_zig_is_taken_when_there_is_nothing_else(
    bare: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Python.h").touch()
    monkeypatch.setitem(FACTS, "include", str(tmp_path))
    monkeypatch.setattr(toolchain, "zig_compiler", lambda python, facts, say: "/v/bin/zig-cc")
    monkeypatch.setattr(toolchain, "compiles", lambda compiler: compiler == "/v/bin/zig-cc")
    monkeypatch.setattr(toolchain.sys, "platform", "linux")
    found = environment(bare)
    assert (found["CC"], found["LDSHARED"]) == ("/v/bin/zig-cc", "/v/bin/zig-cc -shared")


def test_private_headers_go_before_the_users_flags(
    bare: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFLAGS", "-g3")
    monkeypatch.setattr(toolchain, "private_headers", lambda folder, facts, say: ["/a b", "/c"])
    monkeypatch.setattr(toolchain, "compiles", lambda compiler: compiler == "gcc")
    found = environment(bare)
    assert found["CFLAGS"] == "-I'/a b' -I/c -g3"
    assert found["CC"] == "gcc"


def test_apt_is_asked_for_all_that_is_missing(
    bare: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def install(packages: list[str], say: Any) -> bool:
        asked.append(packages)
        monkeypatch.setattr(toolchain, "compiles", lambda compiler: compiler == "cc")
        return False

    monkeypatch.setitem(FACTS, "base", "/usr")
    monkeypatch.setattr(toolchain, "apt_install", install)
    with pytest.raises(toolchain.MissingError):
        environment(bare)
    assert asked == [["gcc", "libc6-dev", "python3.11-dev"]]


def test_apt_is_not_changed_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.os, "geteuid", lambda: 1000, raising=False)
    monkeypatch.setattr(toolchain.subprocess, "run", lambda *a, **k: pytest.fail("apt was run"))
    assert toolchain.apt_install(["gcc"], print) is False


@pytest.mark.parametrize(
    ("user", "there", "asked"),
    [
        (0, [], [["e2fsprogs", "xfsprogs"]]),
        (0, ["mkfs.ext4"], [["xfsprogs"]]),
        (0, ["mkfs.ext4", "mkfs.xfs"], []),
        (1000, [], []),  # could not mount them
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="file systems of Linux")
def test_what_makes_file_systems_is_installed_for_who_can_mount_them(
    bare: list[str], monkeypatch: pytest.MonkeyPatch, user: int, there: list[str], asked: list[Any]
) -> None:
    """A test run as root without xfsprogs skipped the shutdowns of xfs and counted as complete."""
    found: list[list[str]] = []
    monkeypatch.setattr(toolchain.os, "geteuid", lambda: user, raising=False)
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(toolchain, "apt_install", lambda packages, say: found.append(packages))
    toolchain.ensure_file_systems(bare.append)
    assert found == asked
    assert len(bare) == len(asked)  # what will be skipped is reported
    assert not bare or "mkfs.xfs: tests that shut" in bare[0]


@pytest.mark.parametrize(
    ("machine", "system", "libc", "target"),
    [
        ("x86_64", "Linux", "glibc-2.36", "x86_64-linux-gnu.2.36"),
        ("aarch64", "Linux", "glibc-2.39", "aarch64-linux-gnu.2.39"),
        ("x86_64", "Linux", "-", "x86_64-linux-musl"),
        ("arm64", "Darwin", "-", "aarch64-macos"),
    ],
)
def test_zig_targets(machine: str, system: str, libc: str, target: str) -> None:
    assert toolchain.zig_target(machine, system, libc) == target


@pytest.mark.skipif(sys.platform == "win32", reason="the wrapper is a shell script")
def test_the_zig_wrapper_passes_arguments_on(tmp_path: Path) -> None:
    shown = tmp_path / "zig"
    shown.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    shown.chmod(0o755)
    wrapper = tmp_path / "zig-cc"
    wrapper.write_text(toolchain.ZIG_WRAPPER.format(zig=shown, target="x86_64-linux-musl"))
    wrapper.chmod(0o755)
    arguments = ["-c", "a file.c", "-march=x86-64-v2", "-DX='y'", "-march=native"]
    done = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("cc", "-target", "x86_64-linux-musl", "-c", "a file.c"),
        *("-march=x86_64_v2", "-DX='y'", "-march=native"),
    ]


def test_a_compiler_is_tried_by_compiling() -> None:
    assert not toolchain.compiles("no-such-compiler-anywhere")
    assert not toolchain.compiles(f"{sys.executable} -c 'raise SystemExit(1)'")
    assert toolchain.compiles(f"{sys.executable} -c pass")


def test_stamps_last(tmp_path: Path) -> None:
    stamps = bootstrap.Stamps(tmp_path / "stamps.json")
    assert not stamps.holds("step", "a")
    stamps.put("step", "a")
    assert bootstrap.Stamps(tmp_path / "stamps.json").holds("step", "a")
    assert not stamps.holds("step", "b")
    assert [path.name for path in tmp_path.iterdir()] == ["stamps.json"]


def test_digests_follow_the_content(tmp_path: Path) -> None:
    source = tmp_path / "a.pyx"
    source.write_text("one")
    first = bootstrap.digest(source, "release")
    assert first == bootstrap.digest(source, "release")
    assert first != bootstrap.digest(source, "debug")
    source.write_text("two")
    assert first != bootstrap.digest(source, "release")


def test_requirements_come_from_the_project_file() -> None:
    project = {
        "build-system": {"requires": ["cython"]},
        "project": {
            "dependencies": ["numpy"],
            "optional-dependencies": {
                "arrow": ["a"],
                "spark": ["p", "a"],
                "remote": ["r"],
                "metrics": ["m"],
                "demo": ["plot"],
                "docs": ["s"],
                "dev": ["cython", "d"],
            },
        },
    }
    assert bootstrap.requirements(project, "run") == ["cython", "numpy", "p", "a", "plot"]
    assert bootstrap.requirements(project, "test") == [
        *("cython", "numpy", "p", "a", "plot", "r", "m", "s", "d")
    ]


def test_packages_of_a_run_are_among_those_of_tests() -> None:
    assert set(bootstrap.EXTRAS["run"]) < set(bootstrap.EXTRAS["test"])


def test_packages_for_tests_serve_for_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = {
        "build-system": {"requires": []},
        "project": {
            "dependencies": ["numpy"],
            "optional-dependencies": {
                **dict.fromkeys(bootstrap.EXTRAS["test"], ()),
                "dev": ["pytest"],
            },
        },
    }
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(bootstrap, "pip_install", lambda python, *names: installed.append(names))
    stamps = bootstrap.Stamps(tmp_path / "stamps.json")
    for purpose in ("test", "run", "test"):
        bootstrap.ensure_packages(Path("python"), stamps, project, purpose)
    assert installed == [("numpy", "pytest")]
    project["project"]["dependencies"].append("rich")
    bootstrap.ensure_packages(Path("python"), stamps, project, "run")
    assert installed[1:] == [("numpy", "rich")]


def test_wheel_contents_are_judged(tmp_path: Path) -> None:
    import zipfile

    def wheel(*extra: str) -> Path:
        path = tmp_path / "rocketstore-1-py3.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name in (*wheel_test.IN_WHEEL, *extra):
                archive.writestr(name, "")
        return path

    module = "rocketstore/_native/message.cpython-311.so"
    wheel_test.check_contents(wheel(module))
    for bad in ("rocketstore/_native/message.c", "src/_native/base/rs_crc.h", "tests/conftest.py"):
        with pytest.raises(SystemExit, match=rf"lacks \[\] and holds \['{bad}'\]"):
            wheel_test.check_contents(wheel(module, bad))
    with pytest.raises(SystemExit, match=r"lacks \['message'\] and holds \[\]"):
        wheel_test.check_contents(wheel())


def test_the_allowlist_is_explained() -> None:
    assert tool("check_types").unexplained() == []
