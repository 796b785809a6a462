"""The house: every module has a room, imports lead downward, no file leads back to itself."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from support.rooms import (
    GROUND,
    INNER_ROOMS,
    MAX_FLOORS,
    NATIVE_ROOMS,
    ROOMS,
    floors,
    room_of,
)

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
NATIVE = SOURCES / "_native"
UNIT = ROOT / "tests" / "unit"
LEAST_LINES, MOST_LINES, MOST_FILES, MOST_FUNCTION_LINES = 40, 600, 20, 60
#: What a ground module may import of the ground: each its own tuple's and those before.
GROUND_ORDER = (
    ("formats", "errors", "status", "lock_order", "arguments", "version", "display"),
    ("broker_file",),
    ("dialect", "config", "record_filters", "command_start", "sql92_program"),
    ("transaction_records", "timer_rules", "message_copy", "body_codec"),
    ("_native", "_reference"),
    ("kernels",),
    ("message",),
    ("inner_batch",),
)
#: Files that may be shorter or longer, and why.
ODD_LENGTHS = {
    "rocketstore._reference.commit_log": "the twin of one kernel",
    "rocketstore._reference.message": "the twin of one kernel",
    "rocketstore.arrow.columns": "hands on names of a room below",
    "rocketstore.__main__": "Python looks for it by this name",
    "rocketstore.cli.__main__": "Python looks for it by this name",
    "rocketstore.cli.commands.completion": "one command, one file",
    "rocketstore.cli.demo.writer": "a program of its own",
    "rocketstore.cli.spark.answers": "one subject",
    "rocketstore.config": "every option, described once",
    "rocketstore.command_start": "must import next to nothing",
    "rocketstore.dispatch.notes": "one class, for those who read reports",
    "rocketstore.formats": "every format, declared once",
    "rocketstore.files.memory_lock": "one system call",
    "rocketstore.spark.base.worker": "runs in every Python worker",
    "rocketstore.version": "one line",
    "rocketstore.verify.beside.judgement": "one class, below all judges",
}
#: Functions that may be longer, and why.
LONG_FUNCTIONS: dict[str, str] = {}


class Import(NamedTuple):
    """One import: the module that is imported, and the line."""

    module: str
    line: int


def modules(sources: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name; of kernels the stub."""
    package = sources / "rocketstore"
    found = {}
    for path in [*package.rglob("*.py"), *(package / "_native").glob("*.pyi")]:
        parts = path.relative_to(sources).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.setdefault(name, path)
    return found


def imports(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[Import]:
    """Everything of the package that a module imports, in functions and for types too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno} imports by dots"
            base = node.module or ""
            full = [f"{base}.{alias.name}" for alias in node.names]
            names = [one if one in known else base for one in full]
        else:
            continue
        for one in names:
            if one == "rocketstore" or one.startswith("rocketstore."):
                yield Import(one, node.lineno)


class House(NamedTuple):
    """The modules of a package, and what each imports."""

    modules: dict[str, Path]
    imports: dict[str, list[Import]]

    @classmethod
    def of(cls, sources: Path) -> House:
        known = modules(sources)
        return cls(known, {name: list(imports(name, path, known)) for name, path in known.items()})


@pytest.fixture(scope="module")
def house() -> House:
    return House.of(SOURCES)


# --- rooms ----------------------------------------------------------------------------------------


def _ground_step(module: str) -> int:
    name = module.split(".")[1]
    return next(step for step, names in enumerate(GROUND_ORDER) if name in names)


def room_faults(house: House) -> list[str]:
    """Modules without a room, and imports that no room's line allows."""
    faults = []
    for name, found in house.imports.items():
        own = room_of(name)
        if own not in ("", "ground") and own not in ROOMS:
            faults.append(f"{name} is in no room: give {own} a line in tests/support/rooms.py")
            continue
        for other, line in found:
            room = room_of(other)
            if room == "" and own != "":
                faults.append(f"{name}:{line} imports the package's face")
            elif own == "ground":
                if room != "ground" or _ground_step(other) > _ground_step(name):
                    faults.append(f"{name}:{line} imports {other}, which stands above it")
                elif {"_native", "_reference"} == {name.split(".")[1], other.split(".")[1]}:
                    faults.append(f"{name}:{line} imports its twin {other}")
            elif own and room != own and room not in ROOMS[own].may_import:
                faults.append(f"{name}:{line} imports {other}: {own} may not import {room}")
    return faults


def unused_allowances(house: House) -> list[str]:
    """What a room's line allows and nothing in the room imports."""
    used: dict[str, set[str]] = {name: set() for name in ROOMS}
    for name, found in house.imports.items():
        used.setdefault(room_of(name), set()).update(room_of(other) for other, _ in found)
    return [
        f"{name} may import {other}, and does not"
        for name, room in ROOMS.items()
        for other in sorted(room.may_import - used[name])
    ]


def inner_faults(house: House) -> list[str]:
    """Imports inside ``cli`` and ``spark`` against the order of their rooms."""
    faults = []
    for outer, rooms in INNER_ROOMS.items():
        prefix = f"rocketstore.{outer}."
        for name, found in house.imports.items():
            own = name.removeprefix(prefix).split(".")[0]
            if not name.startswith(prefix) or own not in rooms:
                continue
            allowed = {own, *rooms[own].split()}
            faults += [
                f"{name}:{line} imports {other}: {own} may not"
                for other, line in found
                if other.startswith(prefix)
                and other.removeprefix(prefix).split(".")[0] not in allowed
            ]
    return faults


def circles(house: House) -> list[list[str]]:
    """Files that import each other in a circle (Tarjan's components of more than one)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other, _ in house.imports[name]:
            if other not in house.imports or other == name:
                continue
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                found.append(sorted(component))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for name in house.imports:
            if name not in order:
                visit(name)
    finally:
        sys.setrecursionlimit(limit)
    return found


def test_imports_keep_to_the_rooms(house: House) -> None:
    faults = room_faults(house)
    assert not faults, "\n".join(faults)


def test_rooms_are_allowed_nothing_that_they_do_not_use(house: House) -> None:
    faults = unused_allowances(house)
    assert not faults, "\n".join(faults)


def test_rooms_inside_rooms_keep_their_order(house: House) -> None:
    faults = inner_faults(house)
    assert not faults, "\n".join(faults)


def test_no_file_leads_back_to_itself(house: House) -> None:
    assert circles(house) == []


def test_the_house_has_few_floors() -> None:
    assert max(floors({name: room.may_import for name, room in ROOMS.items()}).values()) <= (
        MAX_FLOORS
    )


def test_a_room_says_what_it_is_for() -> None:
    for name, room in ROOMS.items():
        path = SOURCES / "rocketstore" / name / "__init__.py"
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert text.split("\n\n")[0].replace("\n", " ") == room.charter, path


def test_ground_names_what_exists() -> None:
    package = SOURCES / "rocketstore"
    for name in GROUND:
        assert (package / f"{name}.py").is_file() or (package / name).is_dir(), name
    assert sorted(name for names in GROUND_ORDER for name in names) == sorted(GROUND)


# --- the tests of the test ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("formats.py", "from rocketstore.store.writer import X\n", "stands above it"),
        ("formats.py", "from rocketstore import kernels\n", "stands above it"),
        ("files/durable.py", "def f():\n    import rocketstore.log.scan\n", "may not import log"),
        (
            "log/scan.py",
            "if TYPE_CHECKING:\n    from rocketstore.store.marks import StoreMarks\n",
            "may not import store",
        ),
        ("log/scan.py", "import rocketstore\n", "face"),
        ("_reference/message.py", "from rocketstore._native import message\n", "twin"),
        ("strange/file.py", "", "in no room"),
    ],
)
def test_an_upward_import_is_found(name: str, source: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "rocketstore" / name
    path.parent.mkdir(parents=True)
    path.write_text(source)
    for other in ("kernels.py", "log/scan.py", "store/writer.py", "_native/message.pyi"):
        beside = tmp_path / "rocketstore" / other
        beside.parent.mkdir(parents=True, exist_ok=True)
        if not beside.exists():
            beside.write_text("")
    assert [fault in found for found in room_faults(House.of(tmp_path))] == [True]


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "rocketstore" / "log"
    package.mkdir(parents=True)
    (package / "a.py").write_text("from rocketstore.log import b\n")
    (package / "b.py").write_text("def f():\n    from rocketstore.log.c import X\n")
    (package / "c.py").write_text("if TYPE_CHECKING:\n    import rocketstore.log.a\n")
    names = [f"rocketstore.log.{name}" for name in "abc"]
    assert circles(House.of(tmp_path)) == [names]


def test_an_unused_allowance_is_found(tmp_path: Path) -> None:
    (tmp_path / "rocketstore").mkdir()
    faults = unused_allowances(House.of(tmp_path))
    assert "queues may import files, and does not" in faults


def test_a_wrong_neighbour_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rocketstore" / "spark" / "base" / "a.py"
    path.parent.mkdir(parents=True)
    path.write_text("from rocketstore.spark.sink.stage import X\n")
    assert len(inner_faults(House.of(tmp_path))) == 1


# --- sizes ----------------------------------------------------------------------------------------


def test_files_have_one_subject_s_length(house: House) -> None:
    odd = {}
    for name, path in house.modules.items():
        count = len(path.read_text(encoding="utf-8").rstrip("\n").split("\n"))
        if path.suffix == ".py" and path.name != "__init__.py":
            odd[name] = count if not LEAST_LINES <= count <= MOST_LINES else 0
    unknown = {name: count for name, count in odd.items() if count and name not in ODD_LENGTHS}
    assert not unknown, unknown
    assert not [name for name in ODD_LENGTHS if not odd[name]], "these are of common length"


def test_folders_are_not_crowded() -> None:
    folders = [path for path in (SOURCES, ROOT / "tests" / "unit") for path in path.rglob("*")]
    for folder in folders:
        if folder.is_dir() and folder.name not in ("__pycache__", "_native", "_reference"):
            files = [
                path
                for path in folder.iterdir()
                if path.is_file() and path.name not in (".DS_Store", "__main__.py")
            ]
            assert len(files) <= MOST_FILES, folder


def function_lengths(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of every function of a file, without its signature and docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has_doc = ast.get_docstring(node) is not None
            body = node.body[1:] if has_doc and len(node.body) > 1 else node.body
            yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_functions_fit_a_screen(house: House) -> None:
    long = {
        f"{name}.{function}": count
        for name, path in house.modules.items()
        for function, count in function_lengths(path)
        if count > MOST_FUNCTION_LINES
    }
    unknown = {name: count for name, count in long.items() if name not in LONG_FUNCTIONS}
    assert not unknown, unknown
    assert not set(LONG_FUNCTIONS) - set(long), "these are short"


# --- native sources -------------------------------------------------------------------------------


def native_uses(path: Path) -> set[str]:
    """Names of the files of ``src/_native`` that one includes or cimports."""
    form = (
        r'#include "(\w+\.h)"|cdef extern from "(\w+\.h)"|^from (rs_\w+) cimport|^cimport (rs_\w+)'
    )
    found = set()
    for match in re.finditer(form, path.read_text(encoding="utf-8"), re.MULTILINE):
        name = next(group for group in match.groups() if group)
        found.add(name if name.endswith(".h") else f"{name}.pxd")
    return found


def test_native_folders_keep_to_their_lines() -> None:
    files = {path.name: path.parent.name for path in NATIVE.rglob("*") if path.is_file()}
    assert set(files.values()) == set(NATIVE_ROOMS)
    used: dict[str, set[str]] = {name: set() for name in NATIVE_ROOMS}
    for path in (path for path in NATIVE.rglob("*") if path.is_file()):
        used[path.parent.name] |= {files[name] for name in native_uses(path) if name in files}
    for name, allowed in NATIVE_ROOMS.items():
        assert used[name] - {name} == set(allowed.split()), name


# --- tests ----------------------------------------------------------------------------------------


def test_unit_tests_are_named_after_what_they_test(house: House) -> None:
    kernels = {
        name.split(".")[2]
        for name in house.modules
        if name.startswith("rocketstore._") and name.count(".") == 2
    }
    for path in UNIT.rglob("test_*.py"):
        room = ".".join(path.parent.relative_to(UNIT).parts)
        stem = path.stem.removeprefix("test_")
        if room == "kernels":
            names = kernels
        elif room == "ground":
            names = {name for name in GROUND if not name.startswith("_")}
        else:
            names = {
                name.rsplit(".", 1)[1]
                for name in house.modules
                if name.startswith(f"rocketstore.{room}.")
            }
        fits = any(stem == name or stem.startswith(f"{name}_") for name in names)
        assert fits, f"{path.relative_to(ROOT)} names no module of {room}"


def test_every_room_can_be_imported(house: House) -> None:
    for name in ROOMS:
        assert importlib.util.find_spec(f"rocketstore.{name}") is not None


# --- kernels --------------------------------------------------------------------------------------

#: Reference bodies whose docstrings state how they differ from the native body.
DIFFERENT_BODIES = frozenset({"mapping.Mapping", "mapping.allocate"})


def docstrings(path: Path) -> dict[str, str]:
    """Docstrings of the public classes, methods and functions of a file, by name."""
    found = {}

    def visit(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                found[f"{prefix}.{node.name}"] = ast.get_docstring(node) or ""
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}.{node.name}")

    visit(ast.parse(path.read_text(encoding="utf-8")).body, path.stem)
    return found


def test_a_kernel_s_contract_stands_in_the_stub_alone() -> None:
    package = SOURCES / "rocketstore"
    stubs = list((package / "_native").glob("*.pyi"))
    assert stubs
    for stub in stubs:
        contracts = docstrings(stub)
        body = package / "_reference" / stub.name.replace(".pyi", ".py")
        for name, text in (docstrings(body) if body.exists() else {}).items():
            if name in contracts and name not in DIFFERENT_BODIES:
                assert "\n" not in text, f"{name}: one line; the rest belongs in {stub.name}"
