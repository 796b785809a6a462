"""Sections about consumers, delayed messages, transactions, the index and the broker's file."""

from __future__ import annotations

from collections.abc import Sequence

from rocketstore.display.quantities import counted, format_size, format_span
from rocketstore.looking.consumer_lag import LagState, QueueLag
from rocketstore.reporting.charts import bar_cell
from rocketstore.reporting.facts import DUE_BOUNDS, Facts, Half
from rocketstore.reporting.markup import Cell, Child, Html, join, number, table, tag, when
from rocketstore.reporting.redaction import Redaction
from rocketstore.reporting.state_sections import sign_of

_LAG_STATES = {
    LagState.OK: ("✔", "good"),
    LagState.NEVER: ("·", "soft"),
    LagState.BELOW: ("▲", "warn"),
    LagState.BEYOND: ("✖", "bad"),
}
_SEVERITY_ORDER = ("note", "warning", "error")


def _missing(facts: Facts, part: str) -> Html:
    return tag("p", f"Not available: {facts.problems.get(part, 'unknown')}.")


def _left(count: int) -> Html | None:
    return tag("p", f"{count:,} more are not listed.", class_="soft") if count > 0 else None


def _notes(notes: Sequence[str], redaction: Redaction) -> list[Child]:
    return [tag("p", redaction.text(f"{one}."), class_="soft") for one in notes[:20]]


# --- consumers ------------------------------------------------------------------------------------


def lag_section(facts: Facts, redaction: Redaction, limit: int) -> Html:
    """Return the unread messages of each group, then of its queues."""
    report = facts.lag
    if report is None:
        return _missing(facts, "lag")
    if not report.queues:
        return join([tag("p", "No group has offsets."), *_notes(report.notes, redaction)])
    groups: dict[str, list[QueueLag]] = {}
    for one in report.queues:
        groups.setdefault(one.group, []).append(one)
    ordered = sorted(groups.items(), key=lambda pair: -sum(one.messages for one in pair[1]))
    most = max(sum(one.messages for one in queues) for queues in groups.values()) or 1
    rows = [_group_row(name, queues, most) for name, queues in ordered[:limit]]
    heads = ("group", "state", "unread", "", "bytes", "oldest", "lost unread", "queues")
    odd = sorted(report.queues, key=lambda one: (-_badness(one), -one.messages))
    details = [_queue_row(one) for one in odd[:limit]]
    queue_heads = (
        *("group", "topic", "queue", "state", "committed", "min", "max", "unread"),
        *("bytes", "oldest", "lost unread"),
    )
    return join((
        table(heads, rows, label="Lag by group", right=(2, 4, 5, 6, 7), sortable=True),
        _left(len(ordered) - limit),
        tag("details", tag("summary", counted(len(report.queues), "queue")), table(
            queue_heads, details, label="Lag by queue", right=(2, 4, 5, 6, 7, 8, 9, 10),
            sortable=True,
        ), _left(len(odd) - limit)),
        *_notes(report.notes, redaction),
    ))  # fmt: skip


def _badness(one: QueueLag) -> int:
    return tuple(_LAG_STATES).index(one.state)


def _lag_state(state: LagState) -> Html:
    sign, kind = _LAG_STATES[state]
    return tag("span", f"{sign} {state.value}", class_=kind)


def _age(queues: Sequence[QueueLag]) -> Cell:
    ages = [one.age_ms for one in queues if one.messages and one.age_ms is not None]
    oldest = max(ages, default=None)
    return Cell("–" if oldest is None else format_span(oldest), -1 if oldest is None else oldest)


def _group_row(name: str, queues: Sequence[QueueLag], most: int) -> list[Cell | Child]:
    messages, nbytes = sum(one.messages for one in queues), sum(one.nbytes for one in queues)
    worst = max(queues, key=_badness)
    return [
        name, Cell(_lag_state(worst.state), _badness(worst)), number(messages),
        bar_cell(f"{name}: {messages:,} unread", messages / most),
        Cell(format_size(nbytes), nbytes), _age(queues),
        number(sum(one.lost_unread for one in queues)), number(len(queues)),
    ]  # fmt: skip


def _queue_row(one: QueueLag) -> list[Cell | Child]:
    return [
        one.group, one.topic, number(one.queue_id), Cell(_lag_state(one.state), _badness(one)),
        number(one.committed), number(one.min_offset), number(one.max_offset),
        number(one.messages), Cell(format_size(one.nbytes), one.nbytes), _age([one]),
        number(one.lost_unread),
    ]  # fmt: skip


# --- delayed messages and transactions ------------------------------------------------------------


def delays_section(facts: Facts, redaction: Redaction) -> Html:
    """Return when delayed messages are due, and the state of each level."""
    delays = facts.delays
    if delays is None:
        return _missing(facts, "delays")
    pending = sum(one.pending for one in delays.levels)
    timed = f"{counted(delays.timed, 'message')} in the timer wheel, {delays.timed_late:,} late."
    wheel = tag("p", timed) if delays.timed or delays.timed_late else None
    if not pending and not delays.levels:
        return join((tag("p", "Nothing waits for a delay level."), wheel))
    most = max(delays.dues) or 1
    rows = [
        (
            tag("span", name, class_="name"),
            number(count),
            bar_cell(f"{name}: {count:,}", count / most),
        )
        for (_, name), count in zip(DUE_BOUNDS, delays.dues, strict=True)
    ]
    levels = [(
        number(one.level), "–" if one.delay_ms is None else format_span(one.delay_ms),
        number(one.pending), number(one.overdue), number(len(one.parked)), when(one.next_due),
        number(one.offset), number(one.max_offset),
    ) for one in delays.levels]  # fmt: skip
    heads = ("level", "delay", "waiting", "overdue", "parked", "next due", "offset", "max")
    return join((
        table(("due", "messages", ""), rows, label="Delayed messages by due time", right=(1,)),
        wheel,
        tag("details", tag("summary", counted(len(levels), "delay level")), table(
            heads, levels, label="Delay levels", right=(0, 1, 2, 3, 4, 6, 7), sortable=True
        )),
        *_notes(delays.notes, redaction),
    ))  # fmt: skip


def transactions_section(facts: Facts, redaction: Redaction, limit: int) -> Html:
    """Return the undecided transactions by group, then one by one, oldest first."""
    halves = facts.halves
    if halves is None:
        return _missing(facts, "transactions")
    if not halves:
        return tag("p", "Every transaction is decided.")
    groups: dict[tuple[str, str], list[Half]] = {}
    for one in halves:
        groups.setdefault((one.group, one.topic), []).append(one)
    most = max(len(found) for found in groups.values())
    rows = []
    for (group, topic), found in sorted(groups.items(), key=lambda pair: -len(pair[1]))[:limit]:
        oldest = min(one.stored for one in found)
        rows.append((
            group, topic, number(len(found)),
            bar_cell(f"{group}: {len(found):,}", len(found) / most),
            Cell(format_span(max(0, facts.at - oldest)), facts.at - oldest), when(oldest),
            number(max(one.checks for one in found)),
        ))  # fmt: skip
    single = [
        (one.group, one.topic, redaction.value(one.key), redaction.value(one.host),
         when(one.stored), number(one.checks))
        for one in sorted(halves, key=lambda one: one.stored)[:limit]
    ]  # fmt: skip
    more = f"There are more than {len(halves):,}; these are the oldest."
    return join((
        table(("group", "topic", "undecided", "", "oldest", "stored", "checks"), rows,
              label="Undecided transactions by group", right=(2, 4, 6), sortable=True),
        _left(len(groups) - limit),
        tag("p", more) if facts.more_halves else None,
        tag("details", tag("summary", counted(len(halves), "transaction")), table(
            ("group", "topic", "keys", "producer", "stored", "checks"), single,
            label="Undecided transactions, oldest first", right=(5,), sortable=True,
        ), _left(len(halves) - limit)),
    ))  # fmt: skip


# --- index and configuration ----------------------------------------------------------------------


def index_section(facts: Facts, redaction: Redaction, limit: int) -> Html:
    """Return fullness, chains and faults of the index files."""
    health = facts.index
    if health is None:
        return _missing(facts, "index")
    sign = (
        tag("span", "✔ Every chain is whole.")
        if health.ok
        else tag("b", "▲ Some keys are not found.")
    )
    parts: list[Child] = [tag("p", sign)]
    rows = [(
        tag("code", one.name, " (in memory)" if one.in_memory else None),
        bar_cell(f"{one.name}: {one.fullness:.0%} full", one.fullness),
        Cell(f"{one.fullness:.1%}", one.fullness), number(one.entries),
        number(one.longest_chain), Cell(f"{one.mean_chain:.2f}", one.mean_chain),
        number(one.collisions), number(one.broken), when(one.begin_timestamp),
        when(one.end_timestamp),
    ) for one in health.files[-limit:]]  # fmt: skip
    heads = (
        *("file", "", "full", "keys", "longest chain", "mean", "collisions", "broken"),
        *("first key", "last key"),
    )
    if rows:
        parts += [
            table(heads, rows, label="Index files", right=tuple(range(2, 8)), sortable=True),
            _left(len(health.files) - limit),
        ]
    parts += [
        tag("p", tag("code", redaction.text(path)), f": {why}.")
        for path, why in health.unreadable[:limit]
    ]
    parts += [
        tag("p", f"Log offsets {start:,} to {stop:,} are in no index file.")
        for start, stop in health.gaps[:limit]
    ]
    return join(parts)


def config_section(facts: Facts, redaction: Redaction, limit: int) -> Html:
    """Return the remarks about the broker's file."""
    if facts.config_path is None:
        words = "No configuration was given; --config broker.conf examines the broker's file."
        return tag("p", words)
    if facts.remarks is None:
        return _missing(facts, "config")
    if not facts.remarks:
        return tag("p", "There is nothing to remark.")
    rows = [(
        number(one.line), tag("code", one.option),
        Cell(sign_of(one.severity), _SEVERITY_ORDER.index(one.severity)), one.code,
        redaction.text(one.reason, quotes=True),
    ) for one in facts.remarks[:limit]]  # fmt: skip
    heads = ("line", "option", "severity", "code", "reason")
    return join((
        table(heads, rows, label="Remarks about the configuration", right=(0,), sortable=True),
        _left(len(facts.remarks) - limit),
    ))  # fmt: skip
