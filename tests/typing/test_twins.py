"""Every kernel stub against both bodies: the same names, the same parameters in order."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any, TypeGuard

import pytest

STUBS = Path(__file__).resolve().parents[2] / "src" / "rocketstore" / "_native"
#: The guard catches signals, of which plain Python has no need.
WITHOUT_TWIN = {"guard"}
#: A slot in C that Python shows from 3.12 on; plain Python has it from there on only, too.
NOT_SHOWN = {"__buffer__"}


def stubs() -> list[str]:
    """Names of the kernel modules."""
    return sorted(path.stem for path in STUBS.glob("*.pyi"))


def declarations(module: str) -> tuple[dict[str, ast.FunctionDef], dict[str, ast.ClassDef]]:
    """Public functions and classes that a stub declares."""
    tree = ast.parse((STUBS / f"{module}.pyi").read_text(encoding="utf-8"))
    public = [node for node in tree.body if not getattr(node, "name", "_").startswith("_")]
    functions = {node.name: node for node in public if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in public if isinstance(node, ast.ClassDef)}
    return functions, classes


def is_method(item: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    """Tell methods from attributes; a property may be a plain attribute that objects get later."""
    if not isinstance(item, ast.FunctionDef) or item.name in NOT_SHOWN:
        return False
    return not any(isinstance(d, ast.Name) and d.id == "property" for d in item.decorator_list)


def declared_parameters(node: ast.FunctionDef) -> list[tuple[str, str]]:
    """Name and kind of each parameter in a stub."""
    arguments = node.args
    return [
        *((a.arg, "POSITIONAL_ONLY") for a in arguments.posonlyargs),
        *((a.arg, "POSITIONAL_OR_KEYWORD") for a in arguments.args),
        *((a.arg, "KEYWORD_ONLY") for a in arguments.kwonlyargs),
    ]


def real_parameters(function: Any) -> list[tuple[str, str]]:
    """Name and kind of each parameter of a function or method."""
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind.name) for parameter in parameters]


def body(package: str, module: str) -> Any:
    """The module of one body; the guard has no reference."""
    return importlib.import_module(f"rocketstore.{package}.{module}")


CASES = [
    (package, module)
    for module in stubs()
    for package in ("_native", "_reference")
    if package == "_native" or module not in WITHOUT_TWIN
]


@pytest.mark.parametrize(("package", "module"), CASES)
def test_functions_have_the_declared_parameters(package: str, module: str) -> None:
    functions, _ = declarations(module)
    found = body(package, module)
    for name, node in functions.items():
        assert real_parameters(getattr(found, name)) == declared_parameters(node), name


@pytest.mark.parametrize(("package", "module"), CASES)
def test_classes_have_the_declared_members(package: str, module: str) -> None:
    _, classes = declarations(module)
    found = body(package, module)
    for name, node in classes.items():
        kind = getattr(found, name)
        methods = [item.name for item in node.body if is_method(item)]
        missing = [method for method in methods if not hasattr(kind, method)]
        assert not missing, f"{module}.{name} lacks {missing}"


@pytest.mark.parametrize("module", [m for m in stubs() if m not in WITHOUT_TWIN])
def test_public_methods_take_the_same_parameters(module: str) -> None:
    _, classes = declarations(module)
    native, reference = body("_native", module), body("_reference", module)
    for name, node in classes.items():
        for item in node.body:
            if not is_method(item) or item.name.startswith("_"):
                continue
            twins = [getattr(getattr(b, name), item.name) for b in (native, reference)]
            left, right = (real_parameters(twin)[1:] for twin in twins)
            assert left == right == declared_parameters(item)[1:], f"{name}.{item.name}"
