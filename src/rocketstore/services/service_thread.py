"""The loop every background service shares: bounded steps, sticky wake-ups, failures that are
kept."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator

from rocketstore.errors import ServiceFailedError, told
from rocketstore.lock_order import ReentrantLock
from rocketstore.services.waiting import Bell

_log = logging.getLogger(__name__)
#: No pause is shorter: a service without work would take a processor, and the GIL, for itself.
_SHORTEST_PAUSE_S = 0.001
#: The pause of a service that met a lack of memory.
_SHORT_OF_MEMORY_S = 0.05
#: By how much an idle service's next pause is longer.
_GROWTH = 1.1
#: What CPython raises where its own code met a failed allocation and lost the ``MemoryError``: type
#: and words, none of which a caller's mistake can give.
_DISGUISES = (
    (RuntimeError, re.compile("can't allocate lock")),
    (SystemError, re.compile("error return without exception set|without setting an exception")),
    (TypeError, re.compile("os.PathLike(?: object)?, not PosixPath")),
)


class ServiceThread:
    """A service that can run on a thread or be stepped by hand.

    Subclasses write ``run_once() -> bool`` (one bounded step; True when there was something to do)
    and may extend ``drain()``.

    Parameters
    ----------
    name : str
        Of the thread.
    interval_s : float
        Pause after a step that had nothing to do; a millisecond at the least.
    longest_s : float, optional
        Pauses grow up to this while there is nothing to do (default: they do not grow).
    on_failure : callable
        Told once of the exception that ended the service.
    """

    def __init__(
        self,
        name: str,
        interval_s: float,
        on_failure: Callable[[BaseException], None],
        longest_s: float | None = None,
    ) -> None:
        self.name = name
        self.interval_s = max(interval_s, _SHORTEST_PAUSE_S)
        self.longest_s = max(self.interval_s, 0.0 if longest_s is None else longest_s)
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        self._bell = Bell()
        self._stopping = False
        self._pause_s = self.interval_s
        self._lacks_memory = self._told_of_memory = False
        self._thread: threading.Thread | None = None
        #: A flag, since an interrupt within ``Thread.is_alive`` can make a live thread look dead.
        self._running = False
        #: Held while the thread runs.
        self._ended = threading.Lock()
        #: Held while a step runs; again by the same thread, as a listener may call the store.
        self._step_lock = ReentrantLock()

    @property
    def is_held_here(self) -> bool:
        """Whether this thread runs a step, or keeps the service ``paused``."""
        # What threading.Condition asks of its lock; a note of the owner could be interrupted.
        return bool(self._step_lock._is_owned())  # type: ignore[attr-defined]

    @property
    def is_interrupted_here(self) -> bool:
        """The same on a thread that is not the service's own, while that runs."""
        own = self._thread
        return self.is_running and self.is_held_here and own is not threading.current_thread()

    @property
    def is_running(self) -> bool:
        """Whether a thread runs the service."""
        return self._running

    def run_once(self) -> bool:
        """Do one bounded step; True when it did something."""
        raise NotImplementedError

    def step(self) -> bool:
        """``run_once`` for callers without the thread; one step runs at a time."""
        with self._step_lock:
            return self.run_once()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the service between two steps."""
        with self._step_lock:
            yield

    def drain(self) -> None:
        """Step until there is nothing left to do."""
        while self.step():
            pass

    def start(self) -> None:
        """Run on a daemon thread from now on."""
        self._thread = threading.Thread(
            target=self._run, name=f"rocketstore-{self.name}", daemon=True
        )
        self._running = True
        self._ended.acquire()
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            self._running = False
            self._ended.release()
            raise

    def wakeup(self) -> None:
        """End the pause; sticky when the service is busy."""
        self._bell.ring()

    def stop(self) -> None:
        """Ask the thread to stop after its current step (see ``shutdown``)."""
        self._stopping = True
        self._bell.ring()

    def shutdown(self, timeout_s: float = 60.0) -> None:
        """Stop the thread after its current step.

        Raises ``ServiceFailedError`` when the service had failed, or does not stop in time.
        """
        self.stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # Behind an interrupt within ``Thread.join`` the thread looks dead.
            if self._running and self._ended.acquire(timeout=timeout_s):
                self._ended.release()
            if self._running:
                raise ServiceFailedError(f"{self.name} did not stop within {timeout_s} s")
            thread.join(timeout_s)
        if self.failure is not None:
            raise ServiceFailedError(f"{self.name} failed: {told(self.failure)}") from self.failure

    def _run(self) -> None:
        try:
            self._step_and_pause()
        finally:
            self._running = False
            self._ended.release()

    def _step_and_pause(self) -> None:
        self._pause_s = self.interval_s
        while not self._stopping:
            # A step can be repeated wherever it was left, and a failed sync is remembered where it
            # failed. So a lack of memory ends nothing; this takes none.
            try:
                self._turn()
            # Also a SystemExit of somebody's callback, which ends a thread without a word.
            except BaseException as error:  # noqa: BLE001 - kept, told to the store, raised later
                if is_lack_of_memory(error):
                    self._lacks_memory = True
                    continue
                self._fail(error)
                return

    def _turn(self) -> None:
        """Take one step, then pause if there was nothing to do; first get over a lack of memory."""
        if self._lacks_memory:
            self._bell.wait(_SHORT_OF_MEMORY_S)
            if not self._told_of_memory:
                self._told_of_memory = True
                _log.warning("%s met a lack of memory, and tries again", self.name)
            self._lacks_memory = False
            if self._stopping:
                return
        if self.step() or self._bell.wait(self._pause_s):
            self._pause_s = self.interval_s
        else:
            self._pause_s = min(self._pause_s * _GROWTH, self.longest_s)
        self._told_of_memory = False

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        while True:
            try:
                self._on_failure(error)  # first: a log handler may raise
                break
            except MemoryError:  # whatever comes of it, the store must hear of the failure
                self._bell.wait(_SHORT_OF_MEMORY_S)
        _log.error("%s failed: %s", self.name, told(error), exc_info=error)


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, also where the interpreter calls it something else."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, SystemError) and isinstance(error.__cause__, MemoryError):
        return True  # a type's constructor overlooked it
    words = str(error)
    return any(isinstance(error, kind) and form.search(words) for kind, form in _DISGUISES)
