"""Changes files while a writer has them open; messages that it confirms later must not be lost."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import rocketstore
from rocketstore import RocketStoreError
from store_fuzz.records import Original

WAYS = ("lock", "renamed over", "unlinked", "folder", "clock")
_DAY_MS = 86_400_000
#: Cleaning at every hour, with a check every few milliseconds.
_CLEANING: dict[str, Any] = {
    "clean_resource_enable": True,
    "clean_resource_interval": 10,
    "delete_commit_log_files_interval": 0,
    "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
}


class Sabotage:
    """One kind of sabotage, on a store that opens for writing."""

    def __init__(
        self, root: Path, options: dict[str, int], originals: list[Original], rng: random.Random
    ) -> None:
        self._root = root
        self._options = options
        self._originals = originals
        self.way = rng.choice(WAYS)
        self.lost: list[int] = []

    def run(self) -> str:
        """Run it; return the broken promise, or an empty text."""
        return self._jump() if self.way == "clock" else self._take()

    # --- the clock --------------------------------------------------------------------------------

    def _jump(self) -> str:
        """Check that a jump of the clock does not expire messages."""
        newest = max((o.store_timestamp for o in self._originals), default=0)
        ahead = [0]
        options = {**self._options, **_CLEANING}
        before = self._segments()
        with (
            mock.patch("rocketstore.cleaning.clean_service.FIRST_LOOK_S", 0.01),
            rocketstore.open(self._root, "r+", clock=lambda: newest + ahead[0], **options),
        ):
            time.sleep(0.08)
            ahead[0] = 400 * _DAY_MS
            time.sleep(0.08)
        gone = before - self._segments()
        return f"a jump of the clock deleted {sorted(gone)[:3]}" if gone else ""

    def _segments(self) -> set[str]:
        return {path.name for path in (self._root / "commitlog").iterdir()}

    # --- files ------------------------------------------------------------------------------------

    def _take(self) -> str:
        confirmed: dict[int, bytes] = {}
        store = rocketstore.open(self._root, "r+", flush_disk_type="SYNC_FLUSH", **self._options)
        self._put(store, b"before", confirmed)
        back = self._away(store)
        for number in range(3):
            self._put(store, b"after %d" % number, confirmed)
        second = self._second(confirmed) if self.way == "lock" else None
        if second is not None:
            self._put(store, b"beside another", confirmed)
        for one in (second, store):
            if one is not None:
                self._try(one.close)
        back()
        return self._missing(confirmed)

    def _away(self, store: Any) -> Callable[[], Any]:
        """Remove something; return a function that restores it if possible."""
        logs = sorted((self._root / "commitlog").iterdir())
        last = [path for path in logs if len(path.name) == 20][-1]
        if self.way == "lock":
            (self._root / "lock").unlink()
        elif self.way == "renamed over":
            copy = self._root / "copy"
            shutil.copyfile(last, copy)
            os.replace(copy, last)
        elif self.way == "unlinked":
            copy = self._root / "copy"
            shutil.copyfile(last, copy)
            last.unlink()
            return lambda: last.exists() or os.replace(copy, last)
        else:
            away = self._root / "away"
            (self._root / "commitlog").rename(away)
            return lambda: (
                (self._root / "commitlog").exists() or away.rename(self._root / "commitlog")
            )
        return lambda: None

    def _second(self, confirmed: dict[int, bytes]) -> Any:
        second = self._try(
            lambda: rocketstore.open(
                self._root, "r+", flush_disk_type="SYNC_FLUSH", **self._options
            )
        )
        if second is not None:
            self._put(second, b"of another writer", confirmed)
        return second

    def _put(self, store: Any, body: bytes, confirmed: dict[int, bytes]) -> None:
        result = self._try(lambda: store.put("Orders", body))
        if result is not None and result.ok:
            if result.physical_offset in confirmed:
                self.lost.append(result.physical_offset)
            confirmed[result.physical_offset] = body

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (RocketStoreError, OSError, ValueError):
            return None

    def _missing(self, confirmed: dict[int, bytes]) -> str:
        if self.lost:
            return f"{self.way}: the offset {self.lost[0]} was confirmed twice"
        store = self._try(lambda: rocketstore.open(self._root, "r", **self._options))
        if store is None:
            return f"{self.way}: the store no longer opens"
        with store:
            shown = {m.physical_offset: bytes(m.body) for m in store.scan(on_corruption="skip")}
        gone = [offset for offset, body in confirmed.items() if shown.get(offset) != body]
        return f"{self.way}: what was confirmed at {gone[:3]} is gone" if gone else ""
