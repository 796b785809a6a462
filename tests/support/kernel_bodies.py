"""Run kernels of both bodies on copies and compare result, exception and the bytes of buffers."""

from __future__ import annotations

import importlib
from array import array
from types import ModuleType
from typing import Any


class Bodies:
    """The kernel modules of one body, imported on first use."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, module: str) -> ModuleType:
        return importlib.import_module(f"rocketstore._{self.name}.{module}")

    def __repr__(self) -> str:
        return f"Bodies({self.name!r})"


NATIVE = Bodies("native")
REFERENCE = Bodies("reference")


def _copy(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytearray(value)
    if isinstance(value, array):
        return array(value.typecode, value)
    return value


def _outcome(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    copies = tuple(_copy(argument) for argument in arguments)
    try:
        result = ("returned", function(*copies))
    except Exception as error:  # noqa: BLE001 - the exception is the outcome compared
        result = ("raised", type(error).__name__, str(error))
    left = tuple(bytes(c) if isinstance(c, bytearray | array) else None for c in copies)
    return result, left


def both(module: str, function: str, *arguments: Any) -> Any:
    """Call ``module.function`` of both bodies on copies; assert equal outcomes; return the result.

    Raises what both bodies raised. Mutable buffers among the arguments get the resulting bytes.
    """
    native = _outcome(getattr(getattr(NATIVE, module), function), arguments)
    reference = _outcome(getattr(getattr(REFERENCE, module), function), arguments)
    assert native == reference, f"{module}.{function}: native {native!r} reference {reference!r}"
    for argument, left in zip(arguments, native[1], strict=True):
        if isinstance(argument, bytearray | array):
            memoryview(argument).cast("B")[:] = left
    outcome = native[0]
    if outcome[0] == "raised":
        getattr(getattr(NATIVE, module), function)(*(_copy(a) for a in arguments))
        raise AssertionError("the second call did not raise")
    return outcome[1]
