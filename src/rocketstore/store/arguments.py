"""Checks of the arguments of ``open`` and of a store's methods."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import Any

from rocketstore import kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import ConfigError
from rocketstore.query.results import MAX_TIMESTAMP

CORRUPTION_WORDS = ("fail", "skip", "stop")


def now_ms() -> int:
    """Return the system clock's time in epoch ms."""
    return time.time_ns() // 1_000_000


def check_int(name: str, value: Any) -> None:
    """Raise ``TypeError`` unless ``value`` is an int and not a bool."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")


def check_calls(**given: Any) -> None:
    """Raise ``TypeError`` for what is given and cannot be called."""
    for name, value in given.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, not {type(value).__name__}")


def check_corruption_word(word: str) -> None:
    """Raise ``ValueError`` unless ``word`` is a corruption policy."""
    if word not in CORRUPTION_WORDS:
        raise ValueError(f"on_corruption must be one of {CORRUPTION_WORDS}, not {word!r}")


def check_times(begin: int | None, end: int | None) -> None:
    """Raise ``TypeError`` unless both are ints or ``None``."""
    for name, value in (("begin", begin), ("end", end)):
        if value is not None:
            check_int(name, value)


def check_wait(seconds: Any, name: str = "wait_s") -> None:
    """Raise unless ``seconds`` is a number, from 0 on, that a thread can wait."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    if threading.TIMEOUT_MAX < seconds != math.inf:
        most = int(threading.TIMEOUT_MAX)
        raise ValueError(f"{name} is more than {most} seconds; math.inf waits without end")
    if seconds < 0 or math.isnan(seconds):
        raise ValueError(f"{name} is {seconds}; it must be 0 or more seconds")


def clamp(timestamp: int) -> int:
    """Return the nearest store time that a record can have, in epoch ms."""
    return max(-MAX_TIMESTAMP - 1, min(timestamp, MAX_TIMESTAMP))


def merge(config: MessageStoreConfig | None, options: Mapping[str, Any]) -> MessageStoreConfig:
    """Return ``config`` updated with ``options``; raise ``ConfigError`` for invalid options."""
    if config is None:
        return MessageStoreConfig(**options)
    if not isinstance(config, MessageStoreConfig):
        raise ConfigError(f"config must be a MessageStoreConfig, not {type(config).__name__}")
    if "store_path_commit_log" in options:  # of the store that is opened, not of the file's
        of_the_file = ("store_path_root_dir", "read_only_commit_log_store_paths")
        options = {**dict.fromkeys(of_the_file), **options}
    return config.replace(**options) if options else config


def check_settings(config: MessageStoreConfig) -> None:
    """Raise ``ValueError`` for settings that only opening would detect, before it creates files."""
    kernels.message.parse_host(config.store_host)
    if config.broker_version is not None:
        Dialect.for_version(config.broker_version, allow_newer=config.allow_newer)
