"""What a section says, in a few words beside its heading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rocketstore.diagnosis.codes import SEVERITIES
from rocketstore.display.quantities import counted, format_size, format_span
from rocketstore.reporting.facts import Facts
from rocketstore.reporting.log_sections import periods, width_words


def summary(section: str, facts: Facts) -> str | None:
    """Return a section in a few words; ``None`` if it is short, or could not be read."""
    return _SUMMARIES[section](facts)


def _forecast(facts: Facts) -> str | None:
    brokers = facts.verdict.broker
    starting = sum(one.starts is True for one in brokers)
    return f"{starting} of {counted(len(brokers), 'version')} start" if brokers else None


def _findings(facts: Facts) -> str | None:
    found = Counter(one.severity for one in facts.verdict.findings)
    words = [f"{found[one]:,} {one}" for one in reversed(SEVERITIES) if found[one]]
    return ", ".join(words) or None


def _lost(facts: Facts) -> str | None:
    data = facts.verdict.data
    if data.effect != "lost":
        return None
    return f"{'at least ' if data.estimated else ''}{counted(data.messages, 'message')}"


def _map(facts: Facts) -> str | None:
    if facts.use is None or not facts.use.stretches:
        return None
    stretches = facts.use.stretches
    words = [counted(sum(one.segments for one in stretches), "segment")]
    damaged = sum(bool(one.damaged_nbytes) and not one.is_missing for one in stretches)
    missing = sum(one.segments for one in stretches if one.is_missing)
    words += [f"{count:,} {what}" for count, what in ((damaged, "damaged"), (missing, "missing"))
              if count]  # fmt: skip
    return ", ".join(words)


def _volume(facts: Facts) -> str | None:
    if facts.use is None or not facts.use.times:
        return None
    _, sums, width = periods(facts.use)
    most = max(one.nbytes for one in sums)
    return f"bytes in each {width_words(width)}, at most {format_size(most)}"


def _topics(facts: Facts) -> str | None:
    use = facts.use
    return counted(len(use.topics), "topic") if use is not None and use.topics else None


def _age(facts: Facts) -> str | None:
    if facts.use is None or facts.use.first is None:
        return None
    return f"the oldest message is {format_span(max(0, facts.at - facts.use.first))} old"


def _lag(facts: Facts) -> str | None:
    if facts.lag is None or not facts.lag.queues:
        return None
    groups = len({one.group for one in facts.lag.queues})
    return f"{facts.lag.messages:,} unread, {counted(groups, 'group')}"


def _delays(facts: Facts) -> str | None:
    if facts.delays is None:
        return None
    waiting, late = sum(one.pending for one in facts.delays.levels), facts.delays.dues[0]
    waiting, late = waiting + facts.delays.timed, late + facts.delays.timed_late
    return f"{waiting:,} waiting, {late:,} late" if waiting else None


def _transactions(facts: Facts) -> str | None:
    if not facts.halves:
        return None
    return f"{'more than ' if facts.more_halves else ''}{len(facts.halves):,} undecided"


def _index(facts: Facts) -> str | None:
    if facts.index is None:
        return None
    return f"{counted(facts.index.entries, 'key')} in {counted(len(facts.index.files), 'file')}"


def _config(facts: Facts) -> str | None:
    return counted(len(facts.remarks), "remark") if facts.remarks else None


_SUMMARIES: dict[str, Callable[[Facts], str | None]] = {
    "forecast": _forecast,
    "findings": _findings,
    "lost": _lost,
    "map": _map,
    "volume": _volume,
    "topics": _topics,
    "age": _age,
    "lag": _lag,
    "delays": _delays,
    "transactions": _transactions,
    "index": _index,
    "config": _config,
}
