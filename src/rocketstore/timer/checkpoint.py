"""The timer's checkpoint: up to where wheel and queue were read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.errors import MappedFileError, UnsafePathError, error_text
from rocketstore.files.durable import READ_ONLY, naming, open_regular_file
from rocketstore.timer.findings import TimerFindings


class TimerCheckpoint(NamedTuple):
    """Content of ``config/timercheck``.

    Attributes
    ----------
    read_time : int
        Epoch ms; slots before this time were delivered.
    flushed_position : int
        Of the timer log.
    queue_offset, master_queue_offset : int
        The next message of the timer topic to be put into the wheel; -1 on a master that has read
        none.
    """

    read_time: int
    flushed_position: int
    queue_offset: int
    master_queue_offset: int


def checkpoint_path(root: Path) -> Path:
    """Return where the checkpoint of the store at ``root`` is."""
    return root / formats.CONFIG_DIR / formats.TIMER_CHECK_FILE


def read_checkpoint(root: Path, findings: TimerFindings) -> TimerCheckpoint | None:
    """Read the checkpoint; ``None`` if there is none, or none that makes sense.

    Source: RocketMQ ``store/timer/TimerCheckpoint.java``.
    """
    path = checkpoint_path(root)
    layout = formats.TIMER_CHECK
    try:
        fd = open_regular_file(path, READ_ONLY, root)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, MappedFileError, UnsafePathError) as error:
        findings.add("timer-check", path, 0, error_text(error))
        return None
    try:
        with naming(path):
            content = os.pread(fd, layout.nbytes, 0)
    except OSError as error:
        findings.add("timer-check", path, 0, error_text(error))
        return None
    finally:
        os.close(fd)
    if not content:
        return None  # created, but never written
    if len(content) < layout.nbytes:
        reason = f"{len(content)} bytes instead of {layout.nbytes} or more"
        findings.add("timer-check", path, len(content), reason)
        return None
    found = TimerCheckpoint(*layout.struct.unpack(content)[:4])
    wrong = [
        (name, value)
        for name, value in zip(found._fields, found, strict=True)
        if value < (-1 if name == "master_queue_offset" else 0)
    ]
    for name, value in wrong:
        reason = f"{name} is {value}, which must not be negative"
        findings.add("timer-check", path, layout.at(name), reason)
    return None if wrong else found
