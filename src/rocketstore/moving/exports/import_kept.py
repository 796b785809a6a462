"""``import --offsets keep``: a new store with the log of an export, byte for byte."""

from __future__ import annotations

import heapq
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import DEFAULT_COMMIT_LOG_FILE_SIZE, MessageStoreConfig
from rocketstore.errors import ConfigError, CorruptionError, MappedFileError, RepairRefusedError
from rocketstore.mending.journal import Journal
from rocketstore.moving.exports.import_log import LogBuilder, offset_in
from rocketstore.moving.exports.import_rows import ImportSource, Row
from rocketstore.moving.workplace import Workplace
from rocketstore.store.default_message_store import open as open_store
from rocketstore.store.verifying import verify_files

#: Files of one piece that are read side by side.
_MOST_MERGED = 500
#: Bytes of log between two marks of the journal.
MARK_NBYTES = 64 << 20
#: Refusals that would be the same again: nothing is kept to go on with.
_FINAL = (RepairRefusedError, MappedFileError, CorruptionError, ConfigError)


class Kept(NamedTuple):
    """What the new store has.

    Attributes
    ----------
    messages : int
    start, end : int
        Physical offsets of its log.
    resumed, already : bool
        An earlier call had been interrupted; it had made the store.
    """

    messages: int = 0
    start: int = 0
    end: int = 0
    resumed: bool = False
    already: bool = False


class KeepingImport:
    """One call.

    Parameters
    ----------
    source : ImportSource
    path : Path
        A path that does not exist, or an empty folder.
    suffix : str
        Appended to its name for the folder in which the store is made.
    config : MessageStoreConfig
    progress : callable, optional
    """

    def __init__(
        self,
        source: ImportSource,
        path: Path,
        suffix: str,
        config: MessageStoreConfig,
        progress: Progress | None,
    ) -> None:
        self._source = source
        self._path = path
        self._workplace = Workplace(path, suffix)
        self._place = self._workplace.place
        self._config = config
        self._progress = progress
        run = source.totals.run if source.totals is not None else None
        self._size: int = config.mapped_file_size_commit_log or (
            run["segmentSize"] if run is not None else DEFAULT_COMMIT_LOG_FILE_SIZE
        )
        self._made = Kept()

    def run(self) -> Kept:
        """Make the store, or go on with it."""
        self._refuse_export()
        self._workplace.check(())
        is_named = self._workplace.is_named()
        if not is_named and not Journal(self._workplace.work).has("begun"):
            self._source.check(lambda done: self._tell("checking", done, self._source.nbytes))
        self._workplace.run(lambda journal: self._run(journal, is_named=is_named))
        return self._made

    def _tell(self, what: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(what, done, total)

    def _refuse_export(self) -> None:
        totals = self._source.totals
        if totals is None or totals.run is None:
            return
        if "raw" not in totals.run["columns"]:
            raise RepairRefusedError(
                "the export has no column raw; export with --columns topic,raw"
            )
        if totals.lost:
            raise RepairRefusedError(
                f"the export lacks {totals.lost_nbytes} bytes of its log, so that the log cannot "
                "be the same; import it with new offsets"
            )
        chosen = [name for name in ("topics", "filter", "begin", "end")
                  if totals.run[name] is not None]  # fmt: skip
        if chosen or totals.run["records"] != "log":
            raise RepairRefusedError(
                f"the export is a selection ({', '.join(chosen) or 'records'}), so that the log "
                "cannot be the same; import it with new offsets"
            )

    def _run(self, journal: Journal, *, is_named: bool) -> None:
        if is_named:
            done = journal.find("finished")
            self._made = Kept(already=True) if done is None else Kept(
                done["messages"], done["start"], done["end"], already=True
            )  # fmt: skip
            return
        asked = {"offsets": "keep", "source": self._source.identity, "size": self._size}
        begun = journal.find("begun")
        if begun is not None and {name: begun.get(name) for name in asked} != asked:
            raise FileExistsError(
                17, "there is an unfinished import of another source, or with other sizes",
                str(self._workplace.work),
            )  # fmt: skip
        if begun is None:
            self._workplace.begin_again([formats.LOCK_FILE])
            journal = Journal(self._workplace.work)
            journal.write("begun", **asked)
        try:
            log = journal.find("log") or self._write_log(journal)
            made = {name: log[name] for name in ("messages", "start", "end")}
            self._build(log["end"])
            self._verify()
        except _FINAL:
            journal.path.unlink()
            raise
        journal.write("finished", **made)
        self._made = Kept(**made, resumed=begun is not None)
        self._workplace.name_store()

    # --- the log --------------------------------------------------------------------------------

    def _write_log(self, journal: Journal) -> dict[str, Any]:
        """Write the records after the last mark; return the line that says that all are there."""
        mark = journal.find("mark") or {"start": None, "end": 0, "messages": 0}
        builder = LogBuilder(self._place, self._size)
        messages, marked = mark["messages"], mark["end"]
        total = 0 if self._source.totals is None else self._source.totals.rows
        anchors = []
        try:
            builder.go_on(mark["start"], marked)
            for piece, files in self._source.pieces():
                if piece.get("anchor"):
                    anchors.append(piece["anchor"])
                if "log" in piece and piece["log"][1] <= mark["end"]:
                    continue
                for row in self._merged(files):
                    if offset_in(row) < mark["end"]:
                        continue
                    builder.add(row)
                    messages += 1
                    self._tell("importing", messages, total)
                    if builder.end - marked >= MARK_NBYTES:
                        marked = builder.end
                        builder.close()
                        journal.write("mark", start=builder.start, end=marked, messages=messages)
            for anchor in anchors:
                builder.check(anchor)
        finally:
            builder.close()
        journal.write("log", start=builder.start or 0, end=builder.end, messages=messages)
        return journal.lines[-1]

    def _merged(self, files: list[dict[str, Any]]) -> Iterator[Row]:
        if len(files) == 1:
            return self._source.rows(files)
        if len(files) > _MOST_MERGED:
            raise RepairRefusedError(
                f"{len(files)} files have messages of the same part of the log; to keep offsets, "
                "export it without partitions"
            )
        return heapq.merge(*(self._source.rows([one]) for one in files), key=offset_in)

    # --- the rest -------------------------------------------------------------------------------

    def _build(self, end: int) -> None:
        """Build queues, index and marks from the log: from nothing, also after a kill."""
        for name in os.listdir(self._place):
            if name != formats.COMMIT_LOG_DIR:
                path = self._place / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        config = self._config.replace(mapped_file_size_commit_log=self._size)
        run = self._source.totals.run if self._source.totals is not None else None
        if config.broker_version is None and run is not None:
            config = config.replace(broker_version=run.get("brokerVersion"))
        with open_store(self._place, "r+", config=config, start=False,
                        progress=self._progress) as store:  # fmt: skip
            if store.max_physical_offset != end:
                raise RepairRefusedError(
                    f"the log would end at {store.max_physical_offset} instead of {end}"
                )

    def _verify(self) -> None:
        found = verify_files(self._place, self._config, progress=self._progress)
        if not found.ok:
            raise RepairRefusedError(f"the new store has findings: {found.findings[0].reason}")
