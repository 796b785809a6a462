"""The loop of all background services: bounded steps, sticky wake-ups, recorded failures."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator

from rocketstore.errors import ServiceFailedError, error_text
from rocketstore.lock_order import ReentrantLock
from rocketstore.services.waiting import Bell, Wakeup

_log = logging.getLogger(__name__)
#: Lower limit of pauses: with shorter ones an idle service would occupy a processor and the GIL.
_SHORTEST_PAUSE_S = 0.001
#: The pause of a service that ran out of memory.
_SHORT_OF_MEMORY_S = 0.05
#: Factor by which each pause of an idle service is longer than the one before.
_GROWTH = 1.1
#: Types and messages that CPython raises when its own code loses a ``MemoryError``. A caller's
#: mistake cannot cause any of them.
_DISGUISES = (
    (RuntimeError, re.compile("can't allocate lock")),
    (SystemError, re.compile("error return without exception set|without setting an exception")),
    (TypeError, re.compile("os.PathLike(?: object)?, not PosixPath")),
)


class ServiceThread:
    """A service that runs on its own thread or is stepped by the caller.

    Subclasses implement ``run_once() -> bool`` (one bounded step; True if it did something) and may
    extend ``drain()``.

    Parameters
    ----------
    name : str
        Name of the thread.
    interval_s : float
        Pause after a step that did nothing; at least a millisecond.
    longest_s : float, optional
        Pauses of an idle service grow up to this; by default they do not grow.
    on_failure : callable
        Called once with the exception that ended the service.
    bell : Bell, optional
        Ends pauses; by default one of its own.
    """

    def __init__(
        self,
        name: str,
        interval_s: float,
        on_failure: Callable[[BaseException], None],
        longest_s: float | None = None,
        bell: Bell | None = None,
    ) -> None:
        self.name = name
        self.interval_s = max(interval_s, _SHORTEST_PAUSE_S)
        self.longest_s = max(self.interval_s, 0.0 if longest_s is None else longest_s)
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        self._bell: Bell = Wakeup() if bell is None else bell
        self._stopping = False
        self._pause_s = self.interval_s
        self._lacks_memory = self._has_logged_memory = False
        self._thread: threading.Thread | None = None
        #: A flag of our own: an interrupt within ``Thread.is_alive`` can make a live thread look
        #: dead.
        self._running = False
        #: Held while the thread runs.
        self._ended = threading.Lock()
        #: Held while a step runs. Reentrant, because a listener may call the store.
        self._step_lock = ReentrantLock()

    @property
    def is_held_here(self) -> bool:
        """Whether the calling thread runs a step or keeps the service ``paused``."""
        # The method threading.Condition uses. A record of the owner could be interrupted.
        return bool(self._step_lock._is_owned())  # type: ignore[attr-defined]

    @property
    def is_interrupted_here(self) -> bool:
        """Like ``is_held_here``, but only for other threads while the service's thread runs."""
        own = self._thread
        return self.is_running and self.is_held_here and own is not threading.current_thread()

    @property
    def is_running(self) -> bool:
        """Whether a thread runs the service."""
        return self._running

    def run_once(self) -> bool:
        """Do one bounded step; return whether it did something."""
        raise NotImplementedError

    def step(self) -> bool:
        """Call ``run_once`` under the step lock: one step runs at a time."""
        with self._step_lock:
            return self.run_once()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the current step, and keep the service from starting another one."""
        with self._step_lock:
            yield

    def drain(self) -> None:
        """Run steps until there is nothing left to do."""
        while self.step():
            pass

    def start(self) -> None:
        """Start running on a daemon thread."""
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
        """End the current pause, or the next one if the service is busy."""
        self._bell.ring()

    def stop(self) -> None:
        """Ask the thread to stop after its current step (see ``shutdown``)."""
        self._stopping = True
        self._bell.ring()

    def shutdown(self, timeout_s: float = 60.0) -> None:
        """Stop the thread after its current step.

        Raises ``ServiceFailedError`` if the service failed or does not stop in time.
        """
        self.stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # After an interrupt within ``Thread.join`` the thread looks dead.
            if self._running and self._ended.acquire(timeout=timeout_s):
                self._ended.release()
            if self._running:
                raise ServiceFailedError(f"{self.name} did not stop within {timeout_s} s")
            thread.join(timeout_s)
        if self.failure is not None:
            raise ServiceFailedError(
                f"{self.name} failed: {error_text(self.failure)}"
            ) from self.failure

    def _run(self) -> None:
        try:
            self._step_and_pause()
        finally:
            self._running = False
            self._ended.release()

    def _step_and_pause(self) -> None:
        self._pause_s = self.interval_s
        while not self._stopping:
            # An interrupted step can be repeated, and the failing code remembers a failed sync.
            # So the service survives running out of memory; this handler allocates none.
            try:
                self._turn()
            # Also catches a SystemExit of a callback, which would end the thread silently.
            except BaseException as error:  # noqa: BLE001 - recorded, reported, raised later
                if is_lack_of_memory(error):
                    self._lacks_memory = True
                    continue
                self._fail(error)
                return

    def _turn(self) -> None:
        """Run one step, then pause if it did nothing; after running out of memory, pause first."""
        if self._lacks_memory:
            self._bell.listen(_SHORT_OF_MEMORY_S)
            if not self._has_logged_memory:
                self._has_logged_memory = True
                _log.warning("%s ran out of memory and retries", self.name)
            self._lacks_memory = False
            if self._stopping:
                return
        if self.step() or self._listen(self._pause_s):
            self._pause_s = self.interval_s
        else:
            self._pause_s = min(self._pause_s * _GROWTH, self.longest_s)
        self._has_logged_memory = False

    def _listen(self, timeout_s: float) -> bool:
        """Pause until ``wakeup``, at most ``timeout_s``; return whether there may be work."""
        return self._bell.listen(timeout_s)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        while True:
            try:
                self._on_failure(error)  # first: a log handler may raise
                break
            except MemoryError:  # retry: the failure must be reported to the store
                self._bell.listen(_SHORT_OF_MEMORY_S)
        _log.error("%s failed: %s", self.name, error_text(error), exc_info=error)


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, even if the interpreter reports another error."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, SystemError) and isinstance(error.__cause__, MemoryError):
        return True  # a type's constructor replaced the error
    words = str(error)
    return any(isinstance(error, kind) and form.search(words) for kind, form in _DISGUISES)
