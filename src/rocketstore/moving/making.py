"""The steps of making a new store from others: begun, copied, built, verified, named; resumable."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import CorruptionError, RepairRefusedError
from rocketstore.files.durable import sync_directory
from rocketstore.mending.journal import Journal
from rocketstore.moving.new_store import Source, build_rest, verified
from rocketstore.moving.workplace import Workplace
from rocketstore.store.read_only import ReadOnlyParts
from rocketstore.verify.report import VerifyReport

#: Appended to the destination's name for the map.
MAP_SUFFIX = ".map.csv"
_MAP_FILE = "map.csv"
_FIXED = ("messages", "nbytes", "log_start", "log_end")


@dataclass(kw_only=True)
class MadeReport:
    """What is the same in the reports of ``split`` and ``merge``."""

    destination: str
    state: str = "done"
    map: str = ""
    messages: int = 0
    nbytes: int = 0
    log_start: int = 0
    log_end: int = 0
    resumed: bool = False
    verify: VerifyReport | None = None
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the new store has no findings."""
        return self.verify is None or self.verify.ok


class Making:
    """One call; a subclass copies the records and tables.

    Parameters
    ----------
    sources : sequence of Source
    report : MadeReport
    map_path : Path or None
        Where the map goes; beside the destination by default.
    suffix : str
        Appended to the destination's name while it is made.
    asked : dict
        Arguments that an interrupted call must have had, too, to be gone on with.
    members : tuple of str
        Members of the report that a line ``copied`` in the journal has.
    progress : callable or None
    """

    def __init__(
        self,
        sources: Sequence[Source],
        report: Any,
        map_path: Path | None,
        *,
        suffix: str,
        asked: dict[str, Any],
        members: tuple[str, ...],
        progress: Progress | None,
    ) -> None:
        destination = Path(report.destination)
        self.report = report
        self.sources = sources
        self.progress = progress
        self._map = map_path or destination.with_name(destination.name + MAP_SUFFIX)
        report.map = str(self._map)
        self._workplace = Workplace(destination, suffix)
        self.place = self._workplace.place
        self.work_map = self._workplace.work / _MAP_FILE
        self._members = members
        self._asked = {
            **asked,
            "sources": [os.path.realpath(source.root) for source in sources],
            "map": os.path.abspath(self._map),
        }

    # --- what a subclass does -------------------------------------------------------------------

    def config_of(self, files: list[ReadOnlyParts]) -> MessageStoreConfig:
        """Return the configuration of the new store."""
        raise NotImplementedError

    def copy_records(self, journal: Journal, files: list[ReadOnlyParts]) -> None:
        """Write the log and the map; at the end, ``copied`` into the journal."""
        raise NotImplementedError

    def make_tables(self, copied: dict[str, Any]) -> None:
        """Write the tables below ``config``."""
        raise NotImplementedError

    def note_what_differs(self, copied: dict[str, Any]) -> None:
        """Add notes on what is not as in the sources, though its messages are."""
        raise NotImplementedError

    # --- the whole ------------------------------------------------------------------------------

    def run(self) -> None:
        """Make the store, or go on with it."""
        for source in self.sources:
            source.check()
        self._workplace.check(
            [folder for one in self.sources for folder in (one.root, *one.paths.log_folders)]
        )
        is_named = self._workplace.is_named()
        self._workplace.run(self._take_report if is_named else self._run_or_forget)

    def _take_report(self, journal: Journal) -> None:
        copied = journal.find("copied")
        self.report.state = "already"
        if copied is not None:
            self._fill_report(copied)

    def _fill_report(self, copied: dict[str, Any]) -> None:
        for name in (*_FIXED, *self._members):
            setattr(self.report, name, copied[name])

    def _run_or_forget(self, journal: Journal) -> None:
        """Make the store; what the same call could not go on with is deleted."""
        try:
            self._run(journal)
        except (ValueError, CorruptionError, RepairRefusedError):
            journal.path.unlink(missing_ok=True)
            raise

    def _run(self, journal: Journal) -> None:
        fingerprints = [source.fingerprint() for source in self.sources]
        journal = self._begun(journal, fingerprints)
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(one.opened(self.progress)) for one in self.sources]
            config = self.config_of(files)
            if not journal.has("copied"):
                self.copy_records(journal, files)
        for source, fingerprint in zip(self.sources, fingerprints, strict=True):
            source.check_unchanged(fingerprint)
        copied = journal.find("copied")
        assert copied is not None
        self.make_tables(copied)
        self.report.notes += build_rest(
            self.place, config, copied["log_end"], copied["newest"], self.progress
        )
        self.note_what_differs(copied)
        found = verified(self.place, self.progress)
        found.moved(self.place, self.report.destination)
        self.report.verify = found
        self._fill_report(copied)
        if self.work_map.exists():
            os.rename(self.work_map, self._map)
            sync_directory(self._map.parent)
        journal.write("finished")
        self._workplace.name_store()

    def _begun(self, journal: Journal, fingerprints: list[str]) -> Journal:
        begun = journal.find("begun")
        if begun is not None and {name: begun.get(name) for name in self._asked} != self._asked:
            raise FileExistsError(
                17, "it is an unfinished store of another call; delete it first",
                str(self._workplace.work),
            )  # fmt: skip
        if begun is not None and begun["fingerprints"] == fingerprints:
            self.report.resumed = True
            return journal
        if begun is not None:
            self.report.notes.append("the store had changed since; the new one was begun again")
        if os.path.lexists(self._map):
            raise FileExistsError(17, "it exists; name a new file for the map", str(self._map))
        if not self._map.parent.is_dir():
            raise FileNotFoundError(2, "there is no such folder", str(self._map.parent))
        self._workplace.begin_again([formats.LOCK_FILE])
        journal = Journal(self._workplace.work)
        journal.write("begun", **self._asked, fingerprints=fingerprints)
        return journal
