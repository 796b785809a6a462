"""Calls of ``mmap`` objects that some releases of Python do not survive, found in sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

#: What must not be called, and why.
UNSAFE = {
    "find": "reads a byte past the mapping in CPython 3.11.0 to 3.11.4 (gh-105235), which ends "
    "the process with SIGSEGV: copy a piece, and search that",
    "rfind": "shares the code of find: copy a piece, and search that",
    "resize": "gives pages that are not there in CPython before 3.14.1 (gh-138204), which end the "
    "process with SIGBUS: map the file again",
}
#: Names of classes whose objects are mappings: Python's, and the reference's, which inherits it.
_CLASS = re.compile(r"\b(mmap|Mapping)\b(?!\[)")
#: Attributes that hold one, wherever they come from.
_ATTRIBUTES = {"mapping", "_mapping", "mmap", "_mmap"}
_USES = re.compile(r"\.(find|rfind|resize)\b")
_KNOWN = re.compile(r"mmap|[mM]apping")
#: Calls whose result is what they are given.
_PASSING = {"enter_context", "closing", "push"}
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def unsafe_calls(source: str) -> list[tuple[int, str]]:
    """(line, method) of each use of an unsafe method of what is known to be a mapping.

    Known is what the file itself says: a value of ``mmap.mmap(...)`` or ``Mapping(...)``, an
    argument, variable or result annotated so, an attribute assigned so, and the usual attributes.
    """
    if not _USES.search(source) or not _KNOWN.search(source):
        return []  # most files, in no time
    tree = ast.parse(source)
    finder = _Finder(tree)
    finder.learn(tree, set())
    return sorted(finder.calls(tree, set()))


class _Finder:
    def __init__(self, tree: ast.Module) -> None:
        self._attributes = set(_ATTRIBUTES)
        self._makers: set[str] = set()
        self._inherited: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and _says(node.returns):
                self._makers.add(node.name)
            elif isinstance(node, ast.ImportFrom) and node.module == "mmap":
                self._makers.update(alias.asname or alias.name for alias in node.names)
            elif isinstance(node, ast.ClassDef) and any(map(_says, node.bases)):
                self._makers.add(node.name)
                self._inherited.update(map(id, ast.walk(node)))

    def learn(self, scope: ast.AST, outer: set[str]) -> None:
        """Which attributes the file assigns a mapping to."""
        names = outer | self._names(scope, outer)
        for target, value, annotation in _assignments(scope):
            if isinstance(target, ast.Attribute) and self._holds(value, annotation, names):
                self._attributes.add(target.attr)
        for node in _inside(scope):
            if isinstance(node, _INNER):
                self.learn(node, names)

    def calls(self, scope: ast.AST, outer: set[str]) -> Iterator[tuple[int, str]]:
        """Unsafe uses in a module, class or function, whose names end with it."""
        names = outer | self._names(scope, outer)
        for node in _inside(scope):
            if isinstance(node, _INNER):
                yield from self.calls(node, names)
            elif isinstance(node, ast.Attribute) and node.attr in UNSAFE:
                is_own = id(node) in self._inherited and _is_own(node.value)
                if is_own or self._is_mapping(node.value, names):
                    yield node.lineno, node.attr

    def _names(self, scope: ast.AST, outer: set[str]) -> set[str]:
        found = set()
        arguments = getattr(scope, "args", None)
        if isinstance(arguments, ast.arguments):
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            found |= {one.arg for one in every if _says(one.annotation)}
        for _ in range(2):  # the second time for names of names
            for target, value, annotation in _assignments(scope):
                if isinstance(target, ast.Name) and self._holds(value, annotation, outer | found):
                    found.add(target.id)
        return found

    def _holds(self, value: ast.AST | None, annotation: ast.AST | None, names: set[str]) -> bool:
        return _says(annotation) or (value is not None and self._is_mapping(value, names))

    def _is_mapping(self, node: ast.AST, names: set[str]) -> bool:
        if isinstance(node, ast.Name):
            return node.id in names
        if isinstance(node, ast.Attribute):
            return node.attr in self._attributes
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in _PASSING:
                return any(self._is_mapping(one, names) for one in node.args)
            return called in self._makers or _says(node.func)
        if isinstance(node, ast.NamedExpr):
            return self._is_mapping(node.value, names)
        if isinstance(node, ast.IfExp):
            return self._is_mapping(node.body, names) or self._is_mapping(node.orelse, names)
        return isinstance(node, ast.BoolOp) and any(
            self._is_mapping(value, names) for value in node.values
        )


def _says(node: ast.AST | None) -> bool:
    """Whether an annotation, a base class or what is called names a class of mappings."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_CLASS.search(node.value))
    readable = (ast.Name, ast.Attribute, ast.BinOp, ast.Subscript)
    return isinstance(node, readable) and bool(_CLASS.search(ast.unparse(node)))


def _is_own(node: ast.AST) -> bool:
    return ast.unparse(node) in ("self", "super()")


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Nodes below a scope; inner scopes are named, not entered."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _INNER):
            waiting += ast.iter_child_nodes(node)


def _assignments(scope: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | None, ast.AST | None]]:
    """(target, value, annotation) of what a scope itself assigns."""
    for node in _inside(scope):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value, None) for target in node.targets)
        elif isinstance(node, ast.AnnAssign):
            yield node.target, node.value, node.annotation
        elif isinstance(node, ast.NamedExpr):
            yield node.target, node.value, None
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield node.optional_vars, node.context_expr, None
