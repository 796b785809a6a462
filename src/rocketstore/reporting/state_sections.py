"""Sections about the store's state: verdict, forecasts, findings, and what was lost."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rocketstore.diagnosis.codes import CODES, SEVERITIES, Action, explanation
from rocketstore.diagnosis.verdict import BrokerForecast, Finding, Verdict
from rocketstore.display.quantities import counted, format_size, format_span
from rocketstore.reporting.charts import bar_cell
from rocketstore.reporting.facts import Facts
from rocketstore.reporting.markup import (
    MAX_COMMAND,
    Cell,
    Child,
    Html,
    both_times,
    join,
    moment,
    number,
    table,
    tag,
    text,
)
from rocketstore.reporting.redaction import Redaction

#: A sign, a colour's name and words for each state; the sign and the word say it without colour.
_STATES = {
    "well": ("✔", "good", "Well"),
    "recovers": ("↻", "warn", "Recovers by itself"),
    "degraded": ("▲", "bad", "Degraded"),
    "loses": ("✖", "bad", "A start loses data"),
    "refuses": ("✖", "bad", "A broker does not start"),
    "unreadable": ("✖", "bad", "Unreadable"),
}
_SEVERITIES = {
    "note": ("·", "soft"),
    "warning": ("↻", "warn"),
    "error": ("▲", "bad"),
    "critical": ("✖", "bad"),
}
#: Places of one finding that the page lists.
_PLACES = 3


def sign_of(severity: str) -> Html:
    """Return a severity as a sign and a word."""
    sign, kind = _SEVERITIES[severity]
    return tag("span", f"{sign} {severity}", class_=kind)


def verdict_section(facts: Facts, redaction: Redaction) -> Html:
    """Return the state, what to type next, and the store's figures."""
    verdict = facts.verdict
    sign, kind, words = _STATES[verdict.state]
    sentence = redaction.text(verdict.sentence)
    state = tag(
        "div",
        tag("b", f"{sign} {words}"),
        tag("p", sentence[:1].upper() + sentence[1:] + "."),
        class_=f"state {kind}",
    )
    steps = [_step(one, redaction) for one in verdict.next]
    parts = [state]
    if steps:
        parts += [tag("ol", *steps, class_="next")]
    parts.append(tag("dl", *(
        tag("div", tag("dt", name), tag("dd", value)) for name, value in _figures(facts)
    ), class_="facts"))  # fmt: skip
    return join(parts)


def _step(action: Action, redaction: Redaction) -> Html:
    why = _sentence(redaction.text(action.why))
    if not action.command:
        return tag("li", tag("p", why))
    command = tag("pre", _command(action), tabindex=0)
    return tag("li", command, tag("p", why, class_="soft"))


def _command(action: Action) -> Html:
    # A command is for copying, so it is whole: only what is not printable is written out.
    return tag("code", text(shlex.join(action.command), MAX_COMMAND))


def _figures(facts: Facts) -> list[tuple[str, Child]]:
    verdict, use = facts.verdict, facts.use
    store = verdict.store
    found: list[tuple[str, Child]] = []
    messages = store.get("records", None if use is None else use.messages)
    if messages is not None:
        found.append(("messages", f"{messages:,}"))
    if use is not None:
        found.append(("log", format_size(use.stop - use.start)))
        if use.last is not None:
            found.append(("newest message", f"{format_span(max(0, facts.at - use.last))} old"))
        if use.first is not None:
            found.append(("oldest message", f"{format_span(max(0, facts.at - use.first))} old"))
    if facts.capacity is not None:
        days = facts.capacity.days
        found.append(("puts are refused", "never" if days is None else f"in {days:.1f} days"))
    if facts.lag is not None and facts.lag.queues:
        found.append(("unread, all groups", f"{facts.lag.messages:,}"))
    if "rocketmq" in store:
        stop = "unclean stop" if store["unclean"] else "orderly stop"
        found.append((f"RocketMQ, {stop}", store["rocketmq"]))
    return found


def forecast_section(facts: Facts, redaction: Redaction) -> Html:
    """Return what brokers of each version do with the store."""
    brokers = facts.verdict.broker
    if not brokers:
        return tag("p", "Not forecast: only names and sizes, or a bare log, were examined.")
    rows = [(
        one.version, _starts(one), redaction.text(one.sentence()).removeprefix("starts; "),
        number(None if one.truncates is None else one.truncates["messages"]),
        number(len(one.deletes)),
        number(None if one.queues is None else len(one.queues["changed"])),
        number(one.keys_not_found), one.confidence,
    ) for one in brokers]  # fmt: skip
    heads = (
        *("version", "starts", "what happens", "messages deleted", "files deleted"),
        *("queues changed", "keys not found", "known from"),
    )
    return table(heads, rows, label="Forecast by RocketMQ version", right=(3, 4, 5, 6))


def _starts(one: BrokerForecast) -> Html:
    if one.starts:
        return tag("span", "✔ yes", class_="good")
    return tag("span", "✖ no" if one.starts is False else "✖ hangs", class_="bad")


def findings_section(facts: Facts, redaction: Redaction, limit: int) -> Html:
    """Return the findings, the gravest first."""
    verdict = facts.verdict
    if not verdict.findings:
        parts: list[Child] = [tag("p", "No findings.")]
    else:
        rows = [_finding(one, redaction) for one in verdict.findings[:limit]]
        heads = ("severity", "code", "what", "where", "places", "messages", "next")
        parts = [
            table(heads, rows, label="Findings", right=(4, 5), sortable=True),
            _more(len(verdict.findings) - limit, "finding"),
        ]
        parts += _meanings(verdict.findings[:limit], facts.path)
    if verdict.truncated:
        left = sum(verdict.counts.values()) - len(verdict.findings)
        parts.append(tag("p", f"{counted(left, 'more place')} only counted.", class_="soft"))
    notes = [tag("li", redaction.text(one)) for one in verdict.notes[:limit]]
    if notes:
        parts.append(tag("details", tag("summary", counted(len(verdict.notes), "note")),
                         tag("ul", *notes)))  # fmt: skip
    return join(parts)


def _finding(one: Finding, redaction: Redaction) -> list[Cell | Child]:
    is_key = one.code.startswith("index.")
    places: list[Child] = []
    for place in one.where[:_PLACES]:
        where = place.file if not place.position else f"{place.file} at {place.position:,}"
        folder, slash, name = where.rpartition("/")
        words = join((f"{folder}{slash}", tag("wbr"), name))
        places.append(tag("code", words, class_="where"))
    action = one.action
    step: Child = None if action is None else redaction.text(action.why)
    if action is not None and action.command:
        step = tag("code", shlex.join(action.command[:2]))
    meaning = CODES[one.code].means
    what = join((
        tag("span", redaction.text(one.what, quotes=is_key), class_="wide"),
        tag("small", meaning),
    ))  # fmt: skip
    return [
        Cell(sign_of(one.severity), SEVERITIES.index(one.severity)),
        tag("a", tag("code", one.code), href=f"#{_anchor(one.code)}"), what, join(places),
        number(one.count),
        number(one.data.messages or None), step,
    ]  # fmt: skip


def _anchor(code: str) -> str:
    return f"code-{code.replace('.', '-')}"


def _sentence(words: str) -> str:
    first = f"{words[:1].upper()}{words[1:]}"
    return first if first.endswith(".") else f"{first}."


def _meanings(findings: Sequence[Finding], path: str) -> list[Child]:
    """Return what the codes of the findings mean, as ``doctor --explain`` says it."""
    made = []
    for code in dict.fromkeys(one.code for one in findings):
        lines = [
            join((tag("dt", heading), tag("dd", *_meaning(action))))
            for heading, action in explanation(code, path)
        ]
        head = join((tag("b", f"{CODES[code].what}."), " ", tag("code", code)))
        made.append(tag("article", tag("p", head), tag("dl", *lines), id=_anchor(code)))
    return [tag("h3", "What the codes mean"), tag("div", *made, class_="codes")]


def _meaning(action: Action) -> list[Child]:
    if not action.command:
        return [_sentence(action.why)]
    return [_command(action), f": {action.why}."]


def _more(count: int, what: str) -> Html | None:
    if count <= 0:
        return None
    text = f"{counted(count, 'more ' + what)}; rocketstore doctor --format ndjson lists all."
    return tag("p", text, class_="soft")


def lost_section(facts: Facts, limit: int) -> Html:
    """Return what was lost, by topic and time."""
    data = facts.verdict.data
    concerned = [one for one in facts.verdict.findings if one.data.effect == "lost"]
    if data.effect != "lost" or not concerned:
        return tag("p", "Nothing is known to be lost.")
    about = "At least " if data.estimated else ""
    unknown = f", {data.unknown:,} of them of unknown topic" if data.unknown else ""
    lost = f"{counted(data.messages, 'message')} ({format_size(data.nbytes)})"
    parts: list[Child] = [tag("p", f"{about}{lost}{unknown}.")]
    if data.begin is not None or data.end is not None:
        is_whole = all(one.data.begin for one in concerned)
        words = "Stored " if is_whole else "Known times: "
        span = join((words, both_times(data.begin), " to ", both_times(data.end), "."))
        parts.append(tag("p", span))
    rows = _lost_rows(data.topics)
    sums = Counter[str]()
    for topic, _, _, messages in rows:
        sums[topic] += messages
    ordered, most = sums.most_common(), max(sums.values(), default=0) or 1
    if ordered:
        by_topic = [(
            topic, number(messages), bar_cell(f"{topic}: {messages:,} messages", messages / most),
        ) for topic, messages in ordered[:limit]]  # fmt: skip
        by_queue = [(topic, number(queue_id), ranges, number(messages))
                    for topic, queue_id, ranges, messages in rows[:limit]]  # fmt: skip
        parts += [
            table(("topic", "messages", ""), by_topic, label="Lost messages by topic", right=(1,),
                  sortable=True),
            tag("details", tag("summary", counted(len(rows), "range")),
                table(("topic", "queue", "queue offsets", "messages"), by_queue,
                      label="Lost messages by queue", right=(1, 3), sortable=True)),
        ]  # fmt: skip
    times = [(
        tag("code", one.code), number(one.data.messages), moment(one.data.begin),
        moment(one.data.end),
    ) for one in concerned[:limit]]  # fmt: skip
    spans = ("code", "messages", "stored from", "to")
    parts.append(tag("h3", "By finding and time"))
    parts.append(table(spans, times, label="Lost messages by finding and time", right=(1,)))
    return join(parts)


def _lost_rows(topics: Sequence[dict[str, Any]]) -> list[tuple[str, int, str, int]]:
    found = []
    for one in topics:
        ranges = ", ".join(f"{first:,}–{stop - 1:,}" for first, stop in one["queueOffsets"])
        found.append((str(one["topic"]), int(one["queueId"]), ranges, int(one["messages"])))
    return sorted(found, key=lambda row: -row[3])


def headline(verdict: Verdict) -> str:
    """Return the state as one word with its sign, for the page's title."""
    sign, _, words = _STATES[verdict.state]
    return f"{sign} {words}"
