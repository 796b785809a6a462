"""Pickle objects for executors by module name, with a clear error if rocketstore is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _restore(
    module: str, name: str, arguments: tuple[Any, ...] | None, state: dict[str, Any] | None
) -> Any:
    """Recreate the object; without ``arguments`` return the function.

    Pickled by value, so that it can raise its error where rocketstore is missing.
    """
    import importlib

    try:
        kind = getattr(importlib.import_module(module), name)
    except ImportError as error:
        import platform
        import sys

        raise ImportError(
            f"rocketstore cannot be imported on {platform.node()} by {sys.executable}: {error}. "
            "Every executor needs the rocketstore wheel, in the version of the driver: install it "
            "in the executors' Python, or ship a packed environment by spark.archives "
            "(a zip with native code cannot be imported)"
        ) from None
    if arguments is None:
        return kind
    if state is None:
        return kind(*arguments)
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


# cloudpickle pickles what belongs to ``__main__`` by value, all else by its module's name.
_restore.__module__ = "__main__"


def shipped(
    module: str, name: str, arguments: tuple[Any, ...], state: dict[str, Any] | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a ``__reduce__`` value for an object that is unpickled where rocketstore may be
    missing.

    Parameters
    ----------
    module, name : str
        The class.
    arguments : tuple
        Arguments of its call, if there is no ``state``.
    state : dict, optional
        Its ``__dict__``, set without a call.
    """
    return _restore, (module, name, arguments, state)


class Shipped:
    """Mixin for objects that travel to executors; their unpickling reports a missing wheel.

    Everything in ``__dict__`` must be picklable: no open file, session or lock.
    """

    def __reduce__(self) -> Any:
        return shipped(type(self).__module__, type(self).__qualname__, (), dict(self.__dict__))


def shipped_function(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Return a function of one argument that runs ``function(*arguments, it)`` on executors.

    Parameters
    ----------
    function : callable
        A module-level function of rocketstore.
    arguments
        Plain values to pass before the executor's argument.

    Returns
    -------
    callable
        Pickled by value, for ``mapInArrow`` and the like; raises ``ImportError`` with an
        explanation if rocketstore is missing.
    """
    restore, module, name = _restore, function.__module__, function.__qualname__

    def call(batches: Any) -> Any:
        return restore(module, name, None, None)(*arguments, batches)

    call.__module__ = "__main__"
    call.__qualname__ = call.__name__ = function.__name__
    return call
