"""The library that lets file operations fail: building it, and talking to it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("faults.c")
ROOT = Path(__file__).resolve().parents[3]
ONCE, STICKY, SHORT = range(3)


class CompilerMissingError(Exception):
    """No C compiler; the text is one sentence."""


class SyncRange(ctypes.Structure):
    """``struct sync_range`` of the C source."""

    _fields_ = (
        ("inode", ctypes.c_uint64),
        ("start", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("failed", ctypes.c_int32),
        ("is_directory", ctypes.c_int32),
    )


class Sync(NamedTuple):
    """One sync of a file's bytes ``start`` .. ``stop``, or of a directory."""

    inode: int
    start: int
    stop: int
    failed: int
    is_directory: bool


def build(folder: Path = ROOT / "build" / "faults") -> Path:
    """Compile the library, unless this very source was; return its path."""
    source = SOURCE.read_bytes()
    target = folder / f"faults-{hashlib.sha256(source).hexdigest()[:12]}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    made = target.with_suffix(f".{os.getpid()}")
    compiler = shlex.split(os.environ.get("CC", "") or sysconfig.get_config_var("CC") or "cc")
    options = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC"]
    command = [*compiler, *options, str(SOURCE), "-o", str(made), "-ldl", "-pthread"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CompilerMissingError(f"no C compiler {compiler[0]!r} to build {SOURCE}") from error
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")
    made.replace(target)
    return target


class Faults:
    """The library as this process loads it before the C library."""

    def __init__(self) -> None:
        loaded = ctypes.CDLL(None)
        self._library = loaded
        for name in ("count", "fired_count", "sync_count"):
            getattr(loaded, f"faults_{name}").restype = ctypes.c_long
        loaded.faults_fired.restype = ctypes.c_char_p
        loaded.faults_point.restype = ctypes.c_char_p
        loaded.faults_point.argtypes = (ctypes.c_long,)
        loaded.faults_arm.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int)
        loaded.faults_syncs.restype = ctypes.POINTER(SyncRange)

    def watch(self, folder: Path) -> None:
        """Number every operation below ``folder`` from 0 on."""
        self._library.faults_watch(os.fsencode(folder))

    def pause(self, paused: bool) -> None:
        """Neither number operations nor let them fail, for a while."""
        self._library.faults_pause(int(paused))

    def arm(self, number: int, error: int, mode: int) -> None:
        """Let operation ``number`` fail with ``error``; ``STICKY``: all later ones of its kind."""
        self._library.faults_arm(number, error, mode)

    def disarm(self) -> None:
        """Let everything succeed from now on."""
        self._library.faults_disarm()

    @property
    def points(self) -> list[str]:
        """Every operation so far: its kind and its path below the watched folder."""
        count = int(self._library.faults_count())
        return [os.fsdecode(self._library.faults_point(number)) for number in range(count)]

    @property
    def fired(self) -> str:
        """The operation that failed first, or nothing."""
        return os.fsdecode(self._library.faults_fired())

    @property
    def fired_count(self) -> int:
        """Operations that failed."""
        return int(self._library.faults_fired_count())

    @property
    def syncs(self) -> list[Sync]:
        """Every sync so far, failed ones too."""
        rows = self._library.faults_syncs()
        found = (rows[number] for number in range(int(self._library.faults_sync_count())))
        return [Sync(r.inode, r.start, r.stop, r.failed, bool(r.is_directory)) for r in found]
