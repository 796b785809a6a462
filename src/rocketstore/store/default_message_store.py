"""``DefaultMessageStore`` and ``open``: the library's entry point."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Unpack

from rocketstore.config import MessageStoreConfig
from rocketstore.directory.place import check_platform, check_root
from rocketstore.store.arguments import check_calls, check_settings, merge
from rocketstore.store.engine.consuming import ConsumingStore
from rocketstore.store.engine.held import HeldStore
from rocketstore.store.engine.timing import TimingStore
from rocketstore.store.engine.transacted import TransactedStore
from rocketstore.store.maintenance import MaintainedStore

if TYPE_CHECKING:
    from rocketstore.arguments import Derive, Mode, Progress, StoreOptions
    from rocketstore.dispatch.reput_service import ArrivingListener

MODES = ("r", "r+", "a", "x")
DERIVE_WORDS = ("tail", "full", "none")


def open(
    path: str | os.PathLike[str],
    mode: Mode = "r",
    *,
    config: MessageStoreConfig | None = None,
    clock: Callable[[], int] | None = None,
    arriving_listener: ArrivingListener | None = None,
    start: bool = True,
    derive: Derive | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> DefaultMessageStore:
    """Open a RocketMQ store directory.

    Parameters
    ----------
    path : path
        The store's root (the directory that holds ``commitlog``).
    mode : {"r", "r+", "a", "x"}
        ``"r"`` reads only: it writes nothing and works while a broker runs. ``"r+"`` reads and
        writes. ``"a"`` does the same and creates a missing store. ``"x"`` creates a store and fails
        if it exists.
    config : MessageStoreConfig, optional
    clock : callable, optional
        Returns epoch ms; every timestamp that is written comes from it.
    arriving_listener : callable, optional
        Called for every dispatched message, see ``ReputMessageService``.
    start : bool
        Start the services' threads; otherwise the caller steps the services.
    derive : {"tail", "full", "none"}
        Mode "r" only (default "tail"): which missing queue units and index entries are derived in
        memory.
    progress : callable, optional
        Called as ``progress(what, done, total)`` while a long check runs.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    DefaultMessageStore

    Raises
    ------
    FileNotFoundError, NotADirectoryError, FileExistsError
        ``path`` is missing, is not a directory, or exists in mode "x".
    StoreLockedError
        Another process writes the store.
    ConfigError
        An option is invalid, or a size contradicts the files.
    CorruptionError
        Writing modes: a durable part of the log is corrupt.
    MappedFileError, UnsafePathError
        A file has a wrong size, name or type, or a link leaves the root.
    """
    if os.fspath(path) == "":
        raise ValueError("the path of the store is empty")
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES}, not {mode!r}")
    if derive is not None and mode != "r":
        raise ValueError('derive is for mode "r"')
    if derive is not None and derive not in DERIVE_WORDS:
        raise ValueError(f"derive must be one of {DERIVE_WORDS}, not {derive!r}")
    check_calls(clock=clock, arriving_listener=arriving_listener, progress=progress)
    if not isinstance(start, bool):
        raise TypeError(f"start must be bool, not {type(start).__name__}")
    check_platform(mode)
    settings = merge(config, options)
    check_settings(settings)
    root = Path(path)
    check_root(root, mode)
    return DefaultMessageStore(
        Path(os.path.abspath(root)),  # the process may change its working directory
        mode,
        settings,
        clock=clock,
        arriving_listener=arriving_listener,
        start=start,
        derive=derive or "tail",
        progress=progress,
    )


class DefaultMessageStore(ConsumingStore, HeldStore, TransactedStore, MaintainedStore, TimingStore):
    """An open store; see ``open``. Use it as a context manager.

    Notes
    -----
    Threading: all methods may be called from any thread. A forked child must open the store itself
    (``ForkedStoreError``). Source: RocketMQ ``store/DefaultMessageStore.java``.
    """

    def __enter__(self) -> DefaultMessageStore:
        self._use()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"an open store cannot be copied or pickled: open {self.path} where it is needed"
        )

    def __repr__(self) -> str:
        if self._closed:
            return f"<DefaultMessageStore {str(self.path)!r} closed>"
        log = self._reader.log
        return (
            f"<DefaultMessageStore {str(self.path)!r} mode {self.mode!r}, RocketMQ "
            f"{self.broker_version}, log offsets {max(log.min_offset, 0)} to {log.max_offset}>"
        )

    def _repr_html_(self) -> str:
        from rocketstore.display.html import store_html

        return store_html(self)


__all__ = ["DefaultMessageStore", "open"]
