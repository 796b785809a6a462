"""Rules of the sources that no other tool checks: twins, sizes, words out of place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.mapped_calls import UNSAFE, unsafe_calls

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "rocketstore"
NATIVE = ROOT / "src" / "_native"
MAX_COLUMNS = 100
MAX_LINES = 800
TEXT_SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".h", ".md", ".toml", ".yaml", ".yml", ".sh", ""}
TEXT_FOLDERS = (
    "src",
    "tests",
    "tools",
    "benchmarks",
    "docs",
    "changes.d",
    "fuzz",
    ".ci",
    ".github",
)
#: Generated, and long because they list everything.
GENERATED = {"rs_formats.h", "rs_formats.pxd", "rs_status.h", "rs_status.pxd", "formats.md"}
#: What a line must not hold. Spelled in pieces, so that this file passes its own test.
FOREIGN = re.compile("TO" + "DO|FIX" + "ME|(?<![a-z.])/(wor" + "k|roo" + "t|tmp/[gh])/[a-z.]")


def text_files() -> list[Path]:
    """Every text file of the project."""
    # (.git is a file in a worktree that shares its repository.)
    found = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    for folder in TEXT_FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    hidden = {"__pycache__", ".hypothesis"}
    return sorted(
        path
        for path in found
        if path.suffix in TEXT_SUFFIXES and not hidden.intersection(path.relative_to(ROOT).parts)
    )


def named(path: Path) -> str:
    """The path as messages and test ids show it."""
    return path.relative_to(ROOT).as_posix()


def lines(path: Path) -> list[str]:
    """The file's lines without their ends."""
    return path.read_text(encoding="utf-8").split("\n")


def package_modules() -> list[Path]:
    """The package's Python files."""
    return sorted(PACKAGE.rglob("*.py"))


def test_native_sources_do_not_import_the_reference() -> None:
    for path in sorted(NATIVE.rglob("*.p[yx]*")):
        for number, line in enumerate(lines(path), start=1):
            assert not re.search(r"\b(c?import)\b.*_reference", line), f"{named(path)}:{number}"


def test_every_kernel_has_stub_and_twin() -> None:
    kernels = {path.stem for path in NATIVE.rglob("*.pyx")}
    assert kernels
    stubs = {path.stem for path in (PACKAGE / "_native").glob("*.pyi")}
    twins = {path.stem for path in (PACKAGE / "_reference").glob("*.py")}
    assert kernels <= stubs, f"no .pyi for {kernels - stubs}"
    # The guard catches signals, of which plain Python has no need.
    assert kernels - {"guard"} <= twins, f"no reference for {kernels - twins}"


def test_lines_are_short_and_without_tabs() -> None:
    faults = []
    for path in text_files():
        if path.suffix not in {".py", ".pyx", ".pxd", ".h"} or path.name in GENERATED:
            continue
        for number, line in enumerate(lines(path), start=1):
            if len(line) > MAX_COLUMNS:
                faults.append(f"{named(path)}:{number} has {len(line)} columns")
            if "\t" in line:
                faults.append(f"{named(path)}:{number} has a tab")
    assert not faults, "\n".join(faults)


def test_files_are_not_too_long() -> None:
    counted = {named(path): len(lines(path)) for path in text_files() if path.name != "LICENSE"}
    long = {name: count for name, count in counted.items() if count > MAX_LINES}
    assert not {name for name in long if Path(name).name not in GENERATED}, long


def test_no_leftover_words_and_no_machine_paths() -> None:
    faults = []
    for path in text_files():
        if path == Path(__file__):
            continue
        for number, line in enumerate(lines(path), start=1):
            if FOREIGN.search(line):
                faults.append(f"{named(path)}:{number} {line.strip()[:80]}")
    assert not faults, "\n".join(faults)


def test_pxd_files_hold_no_classes() -> None:
    for path in sorted(NATIVE.rglob("*.pxd")):
        for number, line in enumerate(lines(path), start=1):
            assert not re.match(r"\s*cdef (public |final )?class\b", line), (
                f"{named(path)}:{number}"
            )


def test_native_sources_use_no_deprecated_words() -> None:
    words = re.compile(r"^\s*(DEF|IF|include)\s|cimport numpy")
    for path in sorted([*NATIVE.rglob("*.pyx"), *NATIVE.rglob("*.pxd")]):
        for number, line in enumerate(lines(path), start=1):
            assert not words.search(line), f"{named(path)}:{number} {line}"


def test_nothing_is_searched_in_a_mapping() -> None:
    """A bare Debian 12 has Python 3.11.2, whose ``mmap.find`` reads a byte past a mapping whose
    length is a whole number of pages: checking a store of the default size ended with SIGSEGV."""
    faults = [
        f"{named(path)}:{line} {method} of a mapping {UNSAFE[method]}"
        for path in text_files()
        if path.suffix == ".py"
        for line, method in unsafe_calls(path.read_text(encoding="utf-8"))
    ]
    for path in sorted(NATIVE.rglob("*.p[yx]*")):
        faults += [
            f"{named(path)}:{number} imports mmap: there the searches are not looked for"
            for number, line in enumerate(lines(path), start=1)
            if re.search(r"\bimport mmap\b", line)
        ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "source",
    [
        "import mmap\nm = mmap.mmap(0, 0)\nm.find(b'x')",
        "import mmap\nwith open('f') as f, mmap.mmap(f.fileno(), 0) as data:\n    data.rfind(b'x')",
        "def f(data: bytes | mmap.mmap, n: int):\n    return data.find(b'x', n)",
        "def f(data: 'mmap.mmap'):\n    def g():\n        return data.find(b'x')\n",
        "class C:\n    def __init__(self):\n        m = mmap.mmap(0, 0)\n        self.data = m\n"
        "    def f(self):\n        return self.data.find(b'x')",
        "from mmap import mmap as made\nfind = made(0, 0).find",
        "def f(file):\n    return file.mapping.find(b'x')",
        "mapping = kernels.mapping.Mapping(fd, 5)\nmapping.rfind(b'x')",
        "def make() -> mmap.mmap: ...\nif (m := make()).find(b'x'): ...",
        "class Own(mmap.mmap):\n    def f(self):\n        return self.find(b'x')",
        "m = stack.enter_context(mmap.mmap(0, 0))\nother = m\nother.resize(9)",
        "m = data if data else mmap.mmap(0, 0)\nm.find(b'x')",
    ],
)
def test_a_search_in_a_mapping_is_found(source: str) -> None:
    assert len(unsafe_calls(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import mmap\nm = mmap.mmap(0, 0)\nm[5:9].find(b'x')",
        "def f(m: mmap.mmap): ...\ndef g(m: bytes):\n    return m.find(b'x')",
        "def f(names: Mapping[str, int], text: str):\n    return text.find('x'), names",
        "window.find(1, 2)\nstore.find(topic='T')",
    ],
)
def test_another_search_is_not_in_a_mapping(source: str) -> None:
    assert not unsafe_calls(source)


def test_the_glossary_names_what_exists() -> None:
    sources = [*package_modules(), *PACKAGE.rglob("*.pyi")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8") for path in sources)))
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Names")[2]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE)[1:]
    assert len(rows) > 50
    ours = {name for _, right in rows for name in re.findall(r"`([a-z_]+|[A-Z]\w+)`", right)}
    missing = sorted(ours - words)
    assert not missing, f"docs/glossary.md names {missing}"
