"""How objects travel to executors: by the name of their module, with a clear word where it is
missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _restore(
    module: str, name: str, arguments: tuple[Any, ...] | None, state: dict[str, Any] | None
) -> Any:
    """Make the object again; without ``arguments`` find the function.

    Travels by value, so that it can speak where rocketstore is not.
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


# cloudpickle writes what belongs to ``__main__`` by value, all else by its module's name.
_restore.__module__ = "__main__"


def shipped(
    module: str, name: str, arguments: tuple[Any, ...], state: dict[str, Any] | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return what ``__reduce__`` answers for an object that must be made where rocketstore may be
    missing.

    Parameters
    ----------
    module, name : str
        Where the class is.
    arguments : tuple
        Of its call, when there is no ``state``.
    state : dict, optional
        Its ``__dict__``, set without calling it.
    """
    return _restore, (module, name, arguments, state)


class Shipped:
    """Mixin: objects of the class travel to executors, and name the missing wheel there.

    Everything in ``__dict__`` must pickle, and plainly: no open file, session or lock.
    """

    def __reduce__(self) -> Any:
        return shipped(type(self).__module__, type(self).__qualname__, (), dict(self.__dict__))


def shipped_function(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Return a function of one argument that calls ``function(*arguments, it)`` on executors.

    Parameters
    ----------
    function : callable
        At the top of a module of rocketstore.
    arguments
        Plain values that come before the executors' own.

    Returns
    -------
    callable
        Travels by value, for ``mapInArrow`` and the like; raises ``ImportError`` with a sentence
        where rocketstore is missing.
    """
    restore, module, name = _restore, function.__module__, function.__qualname__

    def call(batches: Any) -> Any:
        return restore(module, name, None, None)(*arguments, batches)

    call.__module__ = "__main__"
    call.__qualname__ = call.__name__ = function.__name__
    return call
