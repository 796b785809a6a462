"""Sections about the log: its map, volume over time, bytes per topic, age."""

from __future__ import annotations

import datetime

from rocketstore.display.quantities import counted, format_size
from rocketstore.looking.expiry import ExpiringFile
from rocketstore.looking.usage import OTHER
from rocketstore.reporting.charts import (
    LEAST_COLUMNS,
    MAP_STATES,
    bar_cell,
    columns,
    log_map,
    round_size,
)
from rocketstore.reporting.facts import Facts
from rocketstore.reporting.log_use import LogUse, Stretch, Sums
from rocketstore.reporting.markup import (
    Cell,
    Child,
    Html,
    join,
    moment,
    number,
    table,
    tag,
    when,
)

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
#: Widths of a column of the chart of volume, ms.
_WIDTHS = tuple(
    60_000 * minutes
    for minutes in (1, 2, 5, 10, 15, 30, 60, 180, 360, 720, 1440, 7 * 1440, 30 * 1440)
)
_MAX_COLUMNS = 96
#: Parts of the axis of time that have a name at their ends.
_TICKS = 4
#: Bounds of age, and their names.
_AGES = (
    (_HOUR_MS, "less than an hour"),
    (6 * _HOUR_MS, "1 to 6 hours"),
    (_DAY_MS, "6 to 24 hours"),
    (2 * _DAY_MS, "1 to 2 days"),
    (3 * _DAY_MS, "2 to 3 days"),
    (7 * _DAY_MS, "3 to 7 days"),
    (30 * _DAY_MS, "7 to 30 days"),
    (None, "more than 30 days"),
)


def map_section(facts: Facts, limit: int) -> Html:
    """Return the map of the log, and a table of its stretches."""
    use = facts.use
    if use is None:
        return _missing(facts, "log")
    if not use.stretches:
        return tag("p", "The log is empty.")
    going = _going(facts)
    states = [_state(one, going) for one in use.stretches]
    cells = [
        (state, f"{one.file}: {MAP_STATES[state]}; {_shares(one)}")
        for one, state in zip(use.stretches, states, strict=True)
    ]
    rows = [(
        tag("code", one.file), number(one.segments), Cell(MAP_STATES[state]), number(one.messages),
        Cell(format_size(one.nbytes), one.nbytes),
        Cell(format_size(one.damaged_nbytes) if one.damaged_nbytes else "–", one.damaged_nbytes),
        when(one.first), when(one.last), _expiry(going.get(one.start)), _shares(one),
    ) for one, state in list(zip(use.stretches, states, strict=True))[:limit]]  # fmt: skip
    heads = (
        *("from segment", "segments", "state", "messages", "bytes", "damaged"),
        *("first stored", "last stored", "expires", "largest topics"),
    )
    each = max(one.segments for one in use.stretches)
    words = "each segment" if each == 1 else f"every {each} segments"
    kept = facts.retention.kept if facts.retention is not None else ""
    return join((
        tag("p", f"A square for {words}, oldest first."),
        log_map(cells),
        tag("details", tag("summary", "Table"), table(
            heads, rows, label="Map of the log", right=(1, 3, 4, 5), sortable=True
        ), _left(len(use.stretches) - limit)),
        tag("p", f"What follows stays: {kept}.", class_="soft") if kept else None,
    ))  # fmt: skip


def _left(count: int) -> Html | None:
    return tag("p", f"{count:,} more are not listed.", class_="soft") if count > 0 else None


def _missing(facts: Facts, part: str) -> Html:
    return tag("p", f"Not available: {facts.problems.get(part, 'unknown')}.")


def _going(facts: Facts) -> dict[int, ExpiringFile]:
    if facts.retention is None:
        return {}
    return {one.start: one for one in facts.retention.files}


def _expiry(file: ExpiringFile | None) -> Cell:
    return Cell("–", 2**62) if file is None else when(file.time)


def _state(one: Stretch, going: dict[int, ExpiringFile]) -> str:
    if one.is_missing:
        return "missing"
    if one.damaged_nbytes:
        return "damaged"
    if not one.messages:
        return "empty"
    first = min((file.time for file in going.values()), default=None)
    file = going.get(one.start)
    return "next" if file is not None and file.time == first else "healthy"


def _shares(one: Stretch) -> str:
    if not one.topics:
        return "no messages"
    whole = max(one.nbytes, 1)
    return ", ".join(f"{name} {nbytes / whole:.0%}" for name, nbytes in one.topics)


# --- volume ---------------------------------------------------------------------------------------


def volume_section(facts: Facts) -> Html:
    """Return messages and bytes over time."""
    use = facts.use
    if use is None:
        return _missing(facts, "log")
    if not use.times:
        return tag("p", "There are no messages.")
    starts, sums, width = periods(use)
    labels = [
        f"{_label(start, width)}: {format_size(one.nbytes)}, {counted(one.messages, 'message')}"
        for start, one in zip(starts, sums, strict=True)
    ]
    title = f"Bytes stored in each {width_words(width)}"
    top = round_size(max(one.nbytes for one in sums))
    rows = [(
        when(start), number(one.messages), Cell(format_size(one.nbytes), one.nbytes),
    ) for start, one in zip(starts, sums, strict=True) if one.messages]  # fmt: skip
    span = width * max(len(starts), LEAST_COLUMNS)
    ticks = [_label(starts[0] + span * place // _TICKS, width) for place in range(_TICKS + 1)]
    return join((
        columns(title, [one.nbytes for one in sums], labels, top=top, ticks=ticks,
                scale=[_round_words(top), _round_words(top // 2), "0"]),
        tag("details", tag("summary", "Table"), table(
            ("from", "messages", "bytes"), rows, label=title, right=(1, 2), sortable=True
        )),
    ))  # fmt: skip


def _round_words(nbytes: int) -> str:
    return format_size(nbytes).replace(".0 ", " ")


def periods(use: LogUse) -> tuple[list[int], list[Sums], int]:
    """Return beginnings and sums of at most 96 equal periods, and their width in ms."""
    first, last = min(use.times), max(use.times)
    span = last - first + use.period_ms
    width = next(
        (one for one in _WIDTHS if one >= use.period_ms and span <= one * _MAX_COLUMNS),
        -(-span // _MAX_COLUMNS),
    )
    base = first // width * width
    found: dict[int, Sums] = {}
    for begin, one in use.times.items():
        sums = found.setdefault((begin - base) // width, Sums())
        sums.messages += one.messages
        sums.nbytes += one.nbytes
    count = max(found) + 1
    starts = [base + place * width for place in range(count)]
    return starts, [found.get(place, Sums()) for place in range(count)], width


def width_words(width: int) -> str:
    """Return a width in ms as words: ``hour``, ``15 minutes``."""
    for unit, word in ((_DAY_MS, "day"), (_HOUR_MS, "hour"), (60_000, "minute")):
        if width % unit == 0:
            count = width // unit
            return word if count == 1 else f"{count:,} {word}s"
    return f"{width / _DAY_MS:,.1f} days"


def _label(start: int, width: int) -> str:
    try:
        found = datetime.datetime.fromtimestamp(start / 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return str(start)
    return found.strftime("%Y-%m-%d" if width >= _DAY_MS else "%Y-%m-%d %H:%MZ")


# --- topics and age -------------------------------------------------------------------------------


def topics_section(facts: Facts, limit: int) -> Html:
    """Return the bytes of each topic."""
    use = facts.use
    if use is None:
        return _missing(facts, "log")
    whole = max(use.stop - use.start, 1)
    ordered = sorted(use.topics.items(), key=lambda pair: -pair[1].nbytes)
    rows: list[list[Cell | Child]] = [_topic_row(name, one, whole) for name, one in ordered[:limit]]
    rest = ordered[limit:]
    if rest:
        sums = Sums(sum(one.messages for _, one in rest), sum(one.nbytes for _, one in rest))
        rows.append(_topic_row(f"{OTHER[1:-1]}: {counted(len(rest), 'topic')}", sums, whole))
    for name, nbytes in (
        ("(ends of segments)", use.filler_nbytes),
        ("(damaged or missing)", use.damaged_nbytes),
    ):
        if nbytes:
            rows.append(_topic_row(name, Sums(0, nbytes), whole))
    if not rows:
        return tag("p", "There are no messages.")
    heads = ("topic", "share", "bytes", "", "messages", "first stored", "last stored")
    return table(heads, rows, label="Bytes per topic", right=(1, 2, 4), sortable=True)


def _topic_row(name: str, one: Sums, whole: int) -> list[Cell | Child]:
    share = one.nbytes / whole
    return [
        name, Cell(f"{share:.1%}", share), Cell(format_size(one.nbytes), one.nbytes),
        bar_cell(f"{name}: {share:.1%}", share), number(one.messages), when(one.first),
        when(one.last),
    ]  # fmt: skip


def age_section(facts: Facts) -> Html:
    """Return how old the messages are."""
    use = facts.use
    if use is None:
        return _missing(facts, "log")
    if not use.times:
        return tag("p", "There are no messages.")
    sums = [Sums() for _ in _AGES]
    future = Sums()
    for begin, one in use.times.items():
        age = facts.at - min(begin + use.period_ms, facts.at)
        into = future if begin > facts.at else sums[_age_of(age)]
        into.messages += one.messages
        into.nbytes += one.nbytes
    named = [*zip((name for _, name in _AGES), sums, strict=True), ("in the future", future)]
    whole = max(sum(one.nbytes for _, one in named), 1)
    rows = [
        (
            tag("span", name, class_="name"),
            bar_cell(f"{name}: {one.nbytes / whole:.1%}", one.nbytes / whole),
            f"{one.nbytes / whole:.1%}",
            format_size(one.nbytes),
            number(one.messages),
        )
        for name, one in named
        if one.messages or name != "in the future"
    ]
    heads = ("age", "", "share", "bytes", "messages")
    oldest = join(("The oldest message was stored ", moment(use.first), ", the newest ",
                   moment(use.last), "."))  # fmt: skip
    return join((
        tag("p", oldest),
        table(heads, rows, label="Messages by age", right=(2, 3, 4)),
        _expiring(facts),
    ))  # fmt: skip


def _age_of(age: int) -> int:
    return next(place for place, (bound, _) in enumerate(_AGES) if bound is None or age < bound)


def _expiring(facts: Facts) -> Html | None:
    report = facts.retention
    if report is None or not report.files:
        return None
    following = report.files[0]
    words = join((
        "Next to expire: ", tag("code", following.path.rpartition("/")[2]), " at ",
        moment(following.time), f" ({following.explanation}).",
    ))  # fmt: skip
    lost = report.lost_unread
    loses = f" {counted(lost, 'unread message')} would go with the files listed above."
    return tag("p", words, loses if lost else None)
