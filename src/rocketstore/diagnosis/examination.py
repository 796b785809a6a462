"""``doctor``: examine a store and say what is wrong, what it means, and what to do next."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.arguments import Progress, threads_of
from rocketstore.config import MessageStoreConfig
from rocketstore.diagnosis.broker import Broker, BrokerOptions, LogContent
from rocketstore.diagnosis.codes import BLOCKING_CODES, CODES, DATA_EFFECTS
from rocketstore.diagnosis.full_check import FullCheck
from rocketstore.diagnosis.image import StoreImage, entries
from rocketstore.diagnosis.log_check import LogCheck
from rocketstore.diagnosis.missing_queues import MissingQueues
from rocketstore.diagnosis.next_steps import NextSteps, root_of_log
from rocketstore.diagnosis.pointers import Pointers
from rocketstore.diagnosis.quick_check import QuickCheck
from rocketstore.diagnosis.sizes import store_sizes
from rocketstore.diagnosis.verdict import (
    LEVELS,
    MOST_PLACES,
    BrokerForecast,
    DataEffect,
    Finding,
    Findings,
    Place,
    Verdict,
)
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.directory.access import StoreAccess
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.parts import is_store, store_parts
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import is_there
from rocketstore.errors import ConfigError, MappedFileError, UnsafePathError
from rocketstore.store.arguments import merge

#: Codes of damage that was put before the real brokers; forecasts of it are ``tested``.
_TESTED_CODES = frozenset(
    {
        *("checkpoint.future", "queue.missing", "store.unclean", "log.segment.empty"),
        *("store.foreign", "checkpoint.zero", "index.chain", "log.segment.short"),
        *("log.segment.missing", "log.segment.name", "config.consumer-beyond", "log.torn"),
        *("config.delay-beyond", "queue.file.short", "config.broken", "config.bak-used"),
        *("index.file.crashed", "queue.unit.wrong", "log.record.zeros", "queue.file.missing"),
        *("index.entry.missing", "queue.unit.gap", "queue.unit.zeros", "index.entry.wrong"),
        *("queue.behind", "index.behind", "queue.unit.beyond", "index.file.beyond"),
    }
)
_TESTED_VERSIONS = frozenset(("4.9.8", "5.1.4", "5.3.3", "5.5.0"))
_OLDEST_FORECAST = "4.9.8"
#: Options of a broker that decide its recovery, and the fields that they set.
_BROKER_OPTIONS = {
    "messageIndexSafe": "index_safe",
    "checkCRCOnRecover": "check_crc",
    "commitLogRecoverMaxNum": "recover_max_num",
    "enableAcceleratedRecovery": "accelerated",
    "maxMsgsNumBatch": "query_max",
}


def doctor(
    path: str | os.PathLike[str],
    *,
    level: str = "full",
    config: MessageStoreConfig | str | os.PathLike[str] | None = None,
    broker_versions: Sequence[str] | None = None,
    broker_options: dict[str, str] | None = None,
    limit: int = 1000,
    jobs: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Verdict:
    """Examine a store: what is wrong, what that means for its data, what a broker would do.

    Nothing is changed, no lock is taken, no link out of the store is followed, and neither a FIFO
    nor a device is opened.

    Parameters
    ----------
    path : path
        The store, a bare ``commitlog`` folder, or one segment of a log.
    level : str
        ``"quick"``: names, sizes, heads, checkpoint, tables. ``"full"``: log, queues, index and
        tables against each other, and the checksums of the last three segments, which a broker's
        recovery compares. ``"deep"``: every checksum.
    config : MessageStoreConfig or path, optional
        The broker's configuration or its file. Its options that decide recovery count.
    broker_versions : sequence of str, optional
        Versions for which to forecast; by default the store's own, 4.9.8 and the newest.
    broker_options : dict, optional
        Options that are not in the file: ``messageIndexSafe``, ``checkCRCOnRecover``,
        ``commitLogRecoverMaxNum``, ``maxMsgsNumBatch``.
    limit : int
        Findings that are listed; all count.
    jobs : int, optional
        Threads that read the log, at most 8; by default one for each processor, at most 2. The
        verdict is the same.
    progress : callable, optional
        ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    Verdict

    Raises
    ------
    FileNotFoundError
        There is nothing at ``path``.
    ConfigError
        For an unknown version or option.
    ValueError
        For an unknown level, and ``jobs`` below 1.

    Notes
    -----
    Forecasts play a broker's start in memory. Of a damaged store with more than 100,000 records
    only the log's part is played: ``queues`` and ``keys_not_found`` are ``None`` then.
    Threading: any number of calls at once.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS}, not {level!r}")
    settings, texts = _settings(config, options)
    decided = _decided({**texts, **(broker_options or {})})
    place = Path(path)
    if not is_there(place):
        raise FileNotFoundError(f"there is no store {place}")
    examination = _Examination(place, level, settings, texts, limit, threads_of(jobs), progress)
    examination.name_options(config, options.get("store_path_commit_log"))
    return examination.run(broker_versions, decided)


def _settings(
    config: MessageStoreConfig | str | os.PathLike[str] | None, options: dict[str, Any]
) -> tuple[MessageStoreConfig, dict[str, str]]:
    """Return the configuration, and the texts of the options of the broker's file."""
    texts: dict[str, str] = {}
    if config is None:
        settings = MessageStoreConfig()
    elif isinstance(config, MessageStoreConfig):
        settings = config
    else:
        settings = MessageStoreConfig.from_properties(config)
        with open(config, encoding="utf-8", errors="replace") as lines:
            pairs = [line.partition("=") for line in lines if not line.lstrip().startswith("#")]
        texts = {name.strip(): value.strip() for name, _, value in pairs}
    known = {name: texts[name] for name in texts if name in _BROKER_OPTIONS}
    return merge(settings, options), known


def _decided(texts: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in _BROKER_OPTIONS:
            named = ", ".join(_BROKER_OPTIONS)
            raise ConfigError(f"{name} does not decide what a broker does with a store; {named} do")
        is_number = name in ("commitLogRecoverMaxNum", "maxMsgsNumBatch")
        if is_number and not text.lstrip("-").isdecimal():
            raise ConfigError(f"{name} must be a number, not {text!r}")
        if not is_number and text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {text!r}")
        found[_BROKER_OPTIONS[name]] = int(text) if is_number else text.lower() == "true"
    return found


class _Examination:
    """One examination of one store."""

    def __init__(
        self,
        path: Path,
        level: str,
        config: MessageStoreConfig,
        texts: dict[str, str],
        limit: int,
        jobs: int,
        progress: Progress | None,
    ) -> None:
        self._jobs = jobs
        self._began = time.monotonic()
        self._path = path
        self._level = level
        self._config = config
        self._progress = progress
        self._limit = limit
        self._texts = texts
        self._option_words: list[str] = []
        self._findings = Findings(limit)
        self._verdict = Verdict(os.fspath(path), level, time.time_ns() // 1_000_000)
        self._content: LogContent | None = None
        self._full: FullCheck | None = None

    def name_options(self, config: object, commit_log: object) -> None:
        """Remember how the next commands name the configuration's file and the log's folder."""
        if isinstance(config, (str, os.PathLike)):
            self._option_words += ["--config", os.fspath(config)]
        if isinstance(commit_log, (str, os.PathLike)):
            self._option_words += ["--commit-log", os.fspath(commit_log)]

    def run(self, versions: Sequence[str] | None, decided: dict[str, Any]) -> Verdict:
        """Return the verdict."""
        verdict = self._verdict
        self._is_bare = _is_bare(self._path)
        if not self._is_bare and not self._is_a_store():
            return self._nothing()
        paths = self._paths()
        self._image = StoreImage(paths)
        if self._path.is_file():
            self._image.log = [one for one in self._image.log if one.name == self._path.name]
        if self._is_bare:
            self._image.queues, self._image.batch_queues = {}, {}
            self._image.index = []
        self._sizes = store_sizes(self._image, self._config)
        self._pointers = Pointers(self._image, self._sizes.slots)
        checkpoint = self._read_checkpoint(paths)
        self._is_unclean = os.path.lexists(paths.abort) and not self._is_bare
        self._check(paths, checkpoint)
        verdict.broker = self._forecasts(versions, decided, checkpoint)
        self._conclude()
        return verdict

    def _is_a_store(self) -> bool:
        if self._config.store_path_commit_log:
            return True
        if not self._path.is_dir():
            return False
        if is_store(store_parts(self._path)):
            return True
        names = (formats.COMMIT_LOG_DIR, formats.CONSUME_QUEUE_DIR, formats.INDEX_DIR)
        return any(os.path.lexists(self._path / name) for name in (*names, formats.CHECKPOINT_FILE))

    def _nothing(self) -> Verdict:
        verdict = self._verdict
        place = Place(".")
        self._findings.add("store.none", f"{self._path} is no store: no {formats.COMMIT_LOG_DIR}",
                           [place], data=DataEffect("none"))  # fmt: skip
        verdict.findings, verdict.counts = self._findings.listed(), dict(self._findings.counts)
        verdict.state, verdict.sentence = "unreadable", "there is no store here"
        self._add_actions()
        verdict.duration_s = time.monotonic() - self._began
        return verdict

    def _paths(self) -> StorePaths:
        root, config = self._path, self._config
        if self._is_bare:
            root = self._path if self._path.is_dir() else self._path.parent
            config = config.replace(store_path_commit_log=os.fspath(root))
            self._verdict.notes.append(
                "only a log was given: queues, index and tables were not examined"
            )
        return StorePaths.of(root, config).absolute()

    def _read_checkpoint(self, paths: StorePaths) -> StoreCheckpoint:
        try:
            return StoreCheckpoint.read(paths.checkpoint, paths.root)
        except (OSError, MappedFileError, UnsafePathError):
            return StoreCheckpoint()  # StoreAccess reports it

    # --- checks ---------------------------------------------------------------------------------

    def _check(self, paths: StorePaths, checkpoint: StoreCheckpoint) -> None:
        findings = self._findings
        if not self._is_bare:
            quick = QuickCheck(
                self._image, self._sizes, findings, StoreAccess.of(paths), self._pointers
            )
            quick.run(checkpoint)
            self._verdict.notes += quick.notes
            if self._level == "quick" or self._sizes.problem:
                quick.check_index_folder()
            if self._level == "quick":
                MissingQueues(
                    self._image, self._sizes, findings, self._pointers,
                    is_unclean=self._is_unclean,
                ).run()  # fmt: skip
        if self._sizes.problem:
            self._verdict.notes.append(self._sizes.problem)
            if "configure" in self._sizes.problem or "mapped_file_size" in self._sizes.problem:
                findings.add("store.geometry", self._sizes.problem, [Place(".")])
        if self._level == "quick":
            return
        if not self._is_bare and not self._sizes.problem:
            self._full = FullCheck(self._image, findings)
            self._full.run(
                self._config, level=self._level, limit=self._limit, jobs=self._jobs,
                progress=self._progress,
            )  # fmt: skip
            if self._full.problem:
                self._verdict.notes.append(self._full.problem)
        if self._needs_records():
            self._read_log()
        if self._full is not None:
            self._full.report_findings(skips_records=self._content is not None)
            self._full.check_transactions(self._config)
            self._verdict.notes += self._full.notes

    def _needs_records(self) -> bool:
        report = self._full.report if self._full is not None else None
        is_fine = report is not None and report.ok and not self._is_unclean
        grave = [one for one in self._findings.listed() if one.severity in ("error", "critical")]
        is_torn = self._full is not None and self._full.has_torn_end
        return not is_fine or bool(grave) or is_torn

    def _read_log(self) -> None:
        progress = self._progress

        def show(done: int, total: int) -> None:
            if progress is not None:
                progress("read records", done, total)

        report = self._full.report if self._full is not None else None
        least = report.records if report is not None else 0
        self._content = LogContent.read(self._image, self._config.delay_ms, show, least=least)
        LogCheck(
            self._image, self._content, self._findings, self._pointers, self._sizes.segment,
            is_unclean=self._is_unclean,
            condemned=self._full.condemned if self._full is not None else (),
            wrong_units=self._full.wrong_units if self._full is not None else (),
        ).run()  # fmt: skip

    # --- forecasts ------------------------------------------------------------------------------

    def _forecasts(
        self, versions: Sequence[str] | None, decided: dict[str, Any], checkpoint: StoreCheckpoint
    ) -> list[BrokerForecast]:
        if self._is_bare or self._level == "quick":
            return []
        own = self._sizes.dialect.name
        wanted = list(versions or dict.fromkeys((own, _OLDEST_FORECAST, DEFAULT_VERSION)))
        found = []
        for name in wanted:
            dialect = Dialect.for_version(name, allow_newer=True)
            found.append(self._forecast(dialect, decided, checkpoint))
        return found

    def _forecast(
        self, dialect: Dialect, decided: dict[str, Any], checkpoint: StoreCheckpoint
    ) -> BrokerForecast:
        if self._content is None:
            return self._short_forecast(dialect)
        sizes, config = self._sizes, self._config
        options = BrokerOptions(
            dialect.version, sizes.segment, sizes.queue, sizes.slots, sizes.entries,
            batch_nbytes=sizes.batch if self._image.batch_queues else 0,
            ext_nbytes=sizes.ext if self._image.ext_queues else 0,
            index_enable=config.message_index_enable,
            multi_dispatch=config.enable_multi_dispatch or self._has_light_queues(),
            delay_ms=config.delay_ms, **decided,
        )  # fmt: skip
        try:
            found = Broker(
                self._image, self._content, options, checkpoint, is_unclean=self._is_unclean
            ).forecast()
        except OverflowError:
            return self._short_forecast(dialect)
        self._judge_tables(found)
        found.confidence = self._confidence(found, options)
        return found

    def _has_light_queues(self) -> bool:
        return any(topic.startswith(formats.TOPIC_LMQ_PREFIX) for topic, _ in self._image.queues)

    def _confidence(self, found: BrokerForecast, options: BrokerOptions) -> str:
        if options.accelerated or self._image.batch_queues or self._sizes.assumed:
            return "guess"
        codes = {
            one.code for one in self._findings.listed() if one.severity in ("error", "critical")
        }
        assert self._content is not None
        if not self._content.is_complete:
            return "source"
        is_tested = codes <= _TESTED_CODES and found.version in _TESTED_VERSIONS
        return "tested" if is_tested else "source"

    def _judge_tables(self, found: BrokerForecast) -> None:
        if found.starts is False:
            return
        for one in self._findings.listed():
            if one.code == "config.broken":
                found.starts, found.by, found.why = False, "config", one.what
                found.log = found.truncates = found.queues = found.keys_not_found = None
                return

    def _short_forecast(self, dialect: Dialect) -> BrokerForecast:
        """Forecast without playing it through: of a sound store, or of one that is too large."""
        found = BrokerForecast(dialect.name)
        report = self._full.report if self._full is not None else None
        is_well = self._content is None and report is not None
        if report is not None:
            found.log = {"min": report.log_start, "max": report.log_end}
        if is_well and report is not None:
            found.truncates = {"bytes": 0, "messages": 0, "from": report.log_end}
            found.queues = {"changed": [], "unchanged": report.queues}
            found.keys_not_found = 0
            found.confidence = "tested" if dialect.name in _TESTED_VERSIONS else "source"
        else:
            found.confidence = "guess"
            self._refuse_by_findings(found)
        self._judge_tables(found)
        return found

    def _refuse_by_findings(self, found: BrokerForecast) -> None:
        for one in self._findings.listed():
            if CODES[one.code].broker == "refuses" and one.severity == "critical":
                found.starts, found.why = False, one.what
                part = one.code.partition(".")[0]
                found.by = {"log": "commitlog", "queue": "consumequeue"}.get(part, part)
                return

    # --- the verdict ----------------------------------------------------------------------------

    def _conclude(self) -> None:
        verdict, findings = self._verdict, self._findings
        for one in verdict.broker[:1]:
            if one.deletes and not findings.has("index.file.crashed"):
                verdict.notes.append(
                    f"RocketMQ {one.version} would delete: {', '.join(one.deletes[:5])}"
                )
        verdict.findings, verdict.gravest = findings.listed(), findings.gravest
        verdict.notes = self._plain_notes()
        verdict.counts, verdict.truncated = dict(findings.counts), findings.truncated
        verdict.data = _sum(verdict.findings)
        for finding in verdict.findings:
            finding.broker = [_effect(finding, one) for one in verdict.broker]
        verdict.store = self._describe()
        verdict.state = self._state()
        verdict.sentence = self._sentence()
        self._add_actions()
        verdict.duration_s = time.monotonic() - self._began

    def _plain_notes(self) -> list[str]:
        """Return the notes with relative paths, each once, without what a finding says."""
        said = " ".join(one.what for one in self._verdict.findings)
        root, found = str(self._image.root) + os.sep, dict[str, None]()
        for note in self._verdict.notes:
            text = note.replace(root, "").removeprefix(f"{formats.CONFIG_DIR}/")
            if text not in said:
                found[text] = None
        return list(found)

    def _add_actions(self) -> None:
        """Say what to do next: by hand what stops a plan, else what saves more, then commands."""
        verdict = self._verdict
        root = root_of_log(self._path) if self._is_bare else self._path
        paths = StorePaths.of(self._path, self._config)
        steps = NextSteps(
            root,
            self._option_words,
            log_is_elsewhere=paths.is_log_elsewhere,
            has_several_logs=bool(paths.more_logs),
        )
        for finding in verdict.findings:
            is_blocking = self._blocks(finding)
            finding.action = steps.action(finding.code, is_blocking=is_blocking)
            if finding.severity != "note" or is_blocking:
                steps.take(finding.code, finding.action, is_blocking=is_blocking)
        verdict.next = steps.in_order()
        names_doctor = any("doctor" in one.command for one in verdict.next)
        is_ill = verdict.findings and verdict.state != "unreadable"
        if self._level == "quick" and is_ill and root is not None and not names_doctor:
            verdict.next.append(steps.command("doctor"))

    def _blocks(self, finding: Finding) -> bool:
        """Return whether a person must act before a plan can be made."""
        if finding.code == "store.foreign":
            paths = [self._image.root / one.file for one in finding.where]
            return any(one.is_symlink() or not one.is_file() for one in paths)
        is_grave = finding.severity != "note" or finding.code == "store.in-use"
        return is_grave and finding.code in BLOCKING_CODES

    def _state(self) -> str:
        verdict = self._verdict
        own = verdict.broker[0] if verdict.broker else None
        if own is not None and own.starts is not True:
            return "refuses"
        is_cut = own is not None and own.truncates and own.truncates["messages"]
        if is_cut or "store.log-missing" in verdict.counts:
            return "loses"
        has_log = any(one.start is not None for one in self._image.log)
        if not has_log and verdict.unread(self._image.relative(self._image.paths.commit_log)):
            return "unreadable"
        graves = [one for one in verdict.findings if one.severity in ("error", "critical")]
        if own is None and any(CODES[one.code].broker == "refuses" for one in graves):
            return "refuses"
        if graves:
            return "degraded"
        return "recovers" if verdict.worst == "warning" else "well"

    def _sentence(self) -> str:
        verdict = self._verdict
        own = verdict.broker[0] if verdict.broker else None
        if verdict.state == "unreadable":
            hidden = verdict.unread(self._image.relative(self._image.paths.commit_log))
            return f"{hidden}: nothing is known of its messages; do not start a broker before it is"
        if verdict.state == "refuses":
            return f"RocketMQ {own.version} {own.sentence()}" if own else "a broker does not start"
        if "store.log-missing" in verdict.counts and verdict.state == "loses":
            what = next(one.what for one in verdict.findings if one.code == "store.log-missing")
            version = f"; RocketMQ {own.version} {own.sentence()}" if own is not None else ""
            return f"do not start a broker: {what}{version}"
        if verdict.state == "loses":
            assert own is not None
            assert own.truncates is not None
            return (
                f"do not start a broker: RocketMQ {own.version} deletes "
                f"{own.truncates['messages']:,} messages that are readable now"
            )
        lost = verdict.data
        if verdict.state == "degraded" and lost.effect == "lost" and lost.messages:
            about = "at least " if lost.estimated else ""
            return f"{about}{lost.messages:,} messages are lost"
        if verdict.state == "degraded":
            return f"{verdict.findings[0].what}; no message in the log is lost"
        if verdict.state == "recovers":
            return f"the next start mends it: {verdict.findings[0].what}"
        return "nothing is wrong" if self._level != "quick" else "names and sizes are in order"

    def _describe(self) -> dict[str, Any]:
        sizes, image = self._sizes, self._image
        report = self._full.report if self._full is not None else None
        found: dict[str, Any] = {
            "rocketmq": sizes.dialect.name,
            "rocketmqWhy": sizes.dialect_reason,
            "unclean": self._is_unclean,
            "bytes": sum(one.nbytes for one in image.log),
            "segments": sum(one.start is not None for one in image.log),
            "queues": len(image.queues) + len(image.batch_queues),
            "indexFiles": sum(one.kind == "file" for one in image.index),
            "sizes": {"commitLog": sizes.segment, "consumeQueue": sizes.queue,
                      "hashSlots": sizes.slots, "indexEntries": sizes.entries},
            "assumed": sizes.assumed,
        }  # fmt: skip
        if report is not None:
            found["log"] = [report.log_start, report.log_end]
            found["records"], found["units"] = report.records, report.units
            found["keys"] = report.keys
        elif self._content is not None:
            found["records"] = sum(one.records for one in self._content.intact())
        return found


def _is_bare(path: Path) -> bool:
    """Return whether ``path`` is a segment, or a folder of segments."""
    if path.is_file():
        return formats.file_name_to_offset(path.name) is not None
    if not path.is_dir() or os.path.lexists(path / formats.COMMIT_LOG_DIR):
        return False
    named = [one for one in entries(path, path) if one.start is not None and one.kind == "file"]
    return bool(named)


def _sum(findings: list[Finding]) -> DataEffect:
    """Return what all findings mean for data: the gravest effect, and its numbers."""
    graves = [one for one in findings if one.severity != "note"]
    worst = max((DATA_EFFECTS.index(one.data.effect) for one in graves), default=0)
    found = DataEffect(DATA_EFFECTS[worst])
    for one in graves:
        if one.data.effect != found.effect:
            continue
        found.messages += one.data.messages
        found.nbytes += one.data.nbytes
        found.unknown += one.data.unknown
        found.keys += one.data.keys
        found.topics = (found.topics + one.data.topics)[: 4 * MOST_PLACES]
        found.estimated |= one.data.estimated
        begins = [at for at in (found.begin, one.data.begin) if at is not None]
        ends = [at for at in (found.end, one.data.end) if at is not None]
        found.begin, found.end = min(begins, default=None), max(ends, default=None)
    return found


def _effect(finding: Finding, forecast: BrokerForecast) -> dict[str, str]:
    """Return what one broker does with one finding."""
    kind = CODES[finding.code]
    effect, sentence = kind.broker, kind.does
    names = [place.file for place in finding.where]
    if forecast.starts is False:
        is_it = any(name in (forecast.why or "") for name in names) or (
            forecast.by == "config" and finding.code == "config.broken"
        )
        effect = "refuses" if is_it else effect
        sentence = f"does not start: {forecast.why}" if is_it else sentence
    elif kind.broker == "refuses" and forecast.starts:
        effect, sentence = "none", "starts all the same"
    elif kind.broker == "deletes" and forecast.truncates is not None:
        number = forecast.truncates["messages"]
        effect = "deletes" if number else "hides"
        sentence = (
            f"starts after deleting {number:,} messages from offset {forecast.truncates['from']}"
            if number
            else "starts, and skips the place"
        )
    return {"version": forecast.version, "effect": effect, "sentence": sentence}
