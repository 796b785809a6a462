"""``DefaultMessageStore`` and ``open``: the library's front door."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from rocketstore.config import MessageStoreConfig
from rocketstore.directory.place import check_platform, check_root
from rocketstore.store.arguments import check_settings, merge
from rocketstore.store.maintenance import MaintainedStore
from rocketstore.store.reading import ReadingStore
from rocketstore.store.writing import WritingStore

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
        Read only (nothing is written, works beside a running broker); read and write; the same,
        created when absent; create, fail when it exists.
    config : MessageStoreConfig, optional
    clock : callable, optional
        Returns epoch ms; every time that is written comes from it.
    arriving_listener : callable, optional
        Called for every dispatched message, see ``ReputMessageService``.
    start : bool
        Start the services' threads; otherwise they are stepped by hand.
    derive : {"tail", "full", "none"}
        Mode "r" only (default "tail"): make in memory what queues and index lack.
    progress : callable, optional
        ``progress(what, done, total)`` while a long check runs.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    DefaultMessageStore

    Raises
    ------
    FileNotFoundError, NotADirectoryError, FileExistsError
        About ``path``.
    StoreLockedError
        Somebody else writes the store.
    ConfigError
        A wrong option, or sizes that contradict the files.
    CorruptionError
        Writing modes: a part of the log that was durable is damaged.
    MappedFileError, UnsafePathError
        Files of wrong size, name or kind; links that leave the root.
    """
    if os.fspath(path) == "":
        raise ValueError("the path of the store is empty")
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is none of {MODES}")
    if derive is not None and mode != "r":
        raise ValueError('derive is for mode "r"')
    if derive is not None and derive not in DERIVE_WORDS:
        raise ValueError(f"derive {derive!r} is none of {DERIVE_WORDS}")
    check_platform(mode)
    settings = merge(config, options)
    check_settings(settings)
    root = Path(path)
    check_root(root, mode)
    return DefaultMessageStore(
        root,
        mode,
        settings,
        clock=clock,
        arriving_listener=arriving_listener,
        start=start,
        derive=derive or "tail",
        progress=progress,
    )


class DefaultMessageStore(ReadingStore, WritingStore, MaintainedStore):
    """An open store; see ``open``. Use it as a context manager.

    Notes
    -----
    Threading: all methods may be called from any thread. A forked child must open its own
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
