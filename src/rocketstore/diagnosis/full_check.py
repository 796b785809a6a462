"""The divergences of log, queues, index and tables: what ``verify`` finds, by its code."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.diagnosis.codes import CODES
from rocketstore.diagnosis.image import StoreImage
from rocketstore.diagnosis.verdict import DataEffect, Findings, Place
from rocketstore.errors import RocketStoreError
from rocketstore.store.arguments import now_ms
from rocketstore.store.default_message_store import open as open_store
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import Finding as Checked
from rocketstore.verify.report import Remark, VerifyReport

#: Age of undecided half messages: what to say, and the limit in milliseconds.
_AGES = (
    ("for less than an hour", 3_600_000),
    ("for less than a day", 86_400_000),
    ("for less than a week", 604_800_000),
    ("for longer", 2**63),
)
_MOST_HALVES = 100_000
_MOST_GROUPS = 1000
#: Kinds whose places the checks of names and sizes report.
_KNOWN = frozenset(("log-file", "queue-file", "config-table"))
#: Kinds about a whole file, which may have a finding from its name or size already.
_OF_FILES = frozenset(("foreign-file", "index-file", "odd-file"))
#: Segments at the end that the recovery of a sound store may read, with checksums.
_RECOVERED = 3
#: The codes of kinds whose findings carry none; ``missing-unit`` is decided by the files.
_CODES = {
    "record": "log.record.shape",
    "misnamed-segment": "log.segment.name",
    "foreign-segment": "store.mixed",
    "another-log": "store.mixed",
    "queue-offset": "queue.unit.gap",
    "doubled-offset": "queue.unit.repeat",
    "unit": "queue.unit.wrong",
    "index-file": "index.file.size",
    "index-header": "index.file.header",
    "index-chain": "index.chain",
    "index-entry": "index.entry.wrong",
    "missing-key": "index.entry.missing",
    "missing-folder": "queue.missing",
    "unreadable": "store.owner",
    "odd-file": "store.odd-file",
    "foreign-file": "store.foreign",
    "checkpoint": "checkpoint.zero",
    "config-offset": "config.consumer-beyond",
    "timer-file": "timer.beyond",
    "lost-queue": "queue.missing",
    "queue-type": "config.queue-type",
    "transaction-op": "transaction.undecided",
}
#: Remarks whose places the checks of names, tables and records judge.
_JUDGED_ELSEWHERE = frozenset(("log.torn", "config.bak-used"))
#: What a remark means for data, if not what its code means by default.
_EFFECTS = {"log.ghost": "none", "log.clock": "none", "index.file.header": "none"}


class FullCheck:
    """Turns the findings of ``verify`` into findings with codes.

    Parameters
    ----------
    image : StoreImage
    findings : Findings
    """

    def __init__(self, image: StoreImage, findings: Findings) -> None:
        self._image = image
        self._findings = findings
        self.notes: list[str] = []
        self.problem = ""
        self.report: VerifyReport | None = None

    def run(
        self,
        config: MessageStoreConfig,
        *,
        level: str,
        limit: int,
        jobs: int | None,
        progress: Progress | None,
    ) -> None:
        """Check the store; ``problem`` says why it could not be checked."""
        try:
            self.report = verify_files(
                self._image.root, config,
                level="crc" if level == "deep" else "structure", crc_segments=_RECOVERED,
                jobs=jobs, progress=progress, max_findings=max(limit, 1000) * 4,
            )  # fmt: skip
        except (RocketStoreError, OSError) as error:
            self.problem = str(error)

    @property
    def condemned(self) -> set[int]:
        """Log offsets of records that were found damaged."""
        found = () if self.report is None else self.report.findings
        return {one.offset for one in found if one.kind == "record" and one.offset is not None}

    @property
    def wrong_units(self) -> set[tuple[str, int, int]]:
        """Topic, queue id and queue offset of units that name no record of theirs."""
        found = () if self.report is None else self.report.findings
        return {
            (*one.queue, one.first + number)
            for one in found
            if one.queue is not None and one.first is not None and one.kind == "unit"
            for number in range(one.count)
        }

    @property
    def has_torn_end(self) -> bool:
        """Return whether bytes follow the log's end."""
        return self.report is not None and any(
            one.code == "log.torn" for one in self.report.remarks
        )

    def check_transactions(self, config: MessageStoreConfig) -> None:
        """Add the undecided half messages, by age; only a sound store shows which they are."""
        has_halves = any(topic == formats.TOPIC_HALF for topic, _ in self._image.queues)
        if self.report is None or not self.report.ok or not has_halves:
            return
        now, ages, groups, oldest = now_ms(), [0] * len(_AGES), set[str](), now_ms()
        try:
            with open_store(self._image.root, "r", config=config) as store:
                for one in itertools.islice(store.transactions(), _MOST_HALVES):
                    born = one.message.born_timestamp or 0
                    ages[next(n for n, (_, most) in enumerate(_AGES) if now - born < most)] += 1
                    groups.add(one.group)
                    oldest = min(oldest, born)
        except (RocketStoreError, OSError) as error:
            self.notes.append(f"undecided transactions could not be read: {error}")
            return
        if not (count := sum(ages)):
            return
        listed = ", ".join(
            f"{number:,} {name}" for number, (name, _) in zip(ages, _AGES, strict=True) if number
        )
        data = DataEffect("late", count, begin=oldest, groups=sorted(groups)[:_MOST_GROUPS])
        place = Place(self._image.relative(self._image.paths.consume_queue / formats.TOPIC_HALF))
        what = f"{count:,} half messages are undecided: {listed}"
        self._findings.add("transaction.undecided", what, [place], data=data)

    def report_findings(self, *, skips_records: bool) -> None:
        """Add what was found.

        ``skips_records``: damage of the log was reported already, from its parsed records; only
        what those do not show is added, such as a whole-record CRC or a negative queue id.
        """
        if self.report is None:
            return
        for one in self.report.findings:
            if one.kind == "record" and skips_records and self._is_known(one):
                continue
            self._add(one)
        remarks = {one.text: one for one in self.report.remarks}
        for note in self.report.notes:
            remark = remarks.get(note)
            if remark is None or remark.code in _JUDGED_ELSEWHERE:
                self.notes.append(note)
            else:
                self._take_remark(remark)

    def _is_known(self, one: Checked) -> bool:
        """Return whether a finding is about the bytes of a damaged record."""
        if one.offset is None:
            return False
        stop = one.offset + 1
        if one.code == "log.record.crc":
            with open(one.path, "rb") as file:  # a regular file: verify has read it
                file.seek(one.position)
                stop = one.offset + int.from_bytes(file.read(4), "big")
        elif self.report is not None:
            ends = [end for start, end in self.report.damaged if start == one.offset]
            stop = max([stop, *ends])
        known = self._findings.ranges
        return any(start < stop and one.offset < end for start, end in known)

    # --- findings -------------------------------------------------------------------------------

    def _add(self, one: Checked) -> None:
        code = self._code(one)
        is_beyond = code in ("queue.unit.beyond", "index.file.beyond")
        if not code or (is_beyond and self._findings.tells_offset(one.offset or 0)):
            return
        run = ""
        if one.queue and code.startswith("queue."):
            run = f"{one.queue[0]}\0{one.queue[1]}"
        elif code.startswith(("index.", "config.", "timer.", "checkpoint.")):
            run = one.path
        topic, queue_id = one.queue or (None, None)
        place = Place(
            self._image.relative(one.path), one.position, None, one.offset, topic, queue_id,
            one.first,
        )  # fmt: skip
        what = one.reason.replace(str(self._image.root) + "/", "")
        self._findings.add(code, what, [place], data=self._data(one, code), run=run)

    def _data(self, one: Checked, code: str) -> DataEffect | None:
        if one.kind == "missing-unit" and one.queue and one.first is not None:
            row = {
                "topic": one.queue[0],
                "queueId": one.queue[1],
                "queueOffsets": [[one.first, one.first + one.count]],
                "messages": one.count,
            }
            effect = "late" if code == "queue.behind" else "invisible"
            return DataEffect(effect, one.count, topics=[row])
        if code in ("queue.unit.wrong", "queue.unit.zeros"):
            return DataEffect("invisible", one.count)
        return DataEffect("none") if code == "queue.file.empty" else None

    def _code(self, one: Checked) -> str:
        if one.kind == "missing-unit":
            return self._code_of_missing(one)
        if one.kind in _KNOWN and not one.code.startswith("timer."):
            return ""
        if one.kind in _OF_FILES and self._findings.tells_any(self._image.relative(one.path)):
            return ""
        if one.kind == "unreadable" and self._findings.tells(
            self._image.relative(one.path), "store.owner"
        ):
            return ""
        if one.kind == "missing-key" and self._findings.has("index.file.size", "index.missing"):
            return ""
        return one.code or _CODES[one.kind]

    def _code_of_missing(self, one: Checked) -> str:
        """Return why a record has no unit: the queue or its file is missing, or it lags."""
        path = Path(one.path)
        if not path.parent.is_dir():
            return "queue.missing"
        if not path.exists():
            later = [
                start
                for name in path.parent.iterdir()
                if (start := formats.file_name_to_offset(name.name)) is not None
            ]
            here = formats.file_name_to_offset(path.name)
            has_later = here is not None and any(start > here for start in later)
            return "queue.file.missing" if has_later or not later else "queue.behind"
        file = self._image.relative(path)
        if self._findings.tells(file, "queue.file.short", "queue.file.empty"):
            return ""
        if self._ends_at(path, one.position):
            return "queue.behind"
        return "queue.unit.zeros" if self._is_zero(path, one.position) else "queue.unit.wrong"

    def _is_zero(self, path: Path, position: int) -> bool:
        with open(path, "rb") as file:  # a regular file: verify has read it
            file.seek(position)
            return not file.read(formats.CONSUME_QUEUE_UNIT.nbytes).strip(b"\0")

    def _ends_at(self, path: Path, position: int) -> bool:
        """Return whether nothing but zeros is in a queue file from ``position`` on."""
        try:
            with open(path, "rb") as file:
                file.seek(position)
                return not file.read(1 << 24).strip(b"\0")
        except OSError:
            return False

    # --- remarks --------------------------------------------------------------------------------

    def _take_remark(self, one: Remark) -> None:
        """Add a finding for what is allowed and has a code."""
        code = one.code
        if code == "index.behind" and not os.path.lexists(self._image.paths.index):
            code = "index.missing"
        if code == "index.missing" and self._findings.has(code):
            self.notes.append(one.text)
            return
        if one.code == "log.ghost" and self._findings.has("log.segment.name", "log.ghost"):
            return
        paths = self._image.paths
        folders = {"queue": paths.consume_queue, "index": paths.index, "log": paths.commit_log}
        config = self._image.root / formats.CONFIG_DIR
        path = one.path or folders.get(one.code.partition(".")[0], paths.commit_log)
        if one.code.startswith(("config.", "delay.")):
            path = config
        effect = _EFFECTS.get(code, CODES[code].data)
        severity = "note" if effect == "none" else ""
        what = one.text.replace(str(self._image.root) + "/", "")
        place = Place(self._image.relative(path))
        data = DataEffect(effect, one.count)
        self._findings.add(code, what, [place], data=data, severity=severity)
