"""``rocketstore info``: describe a store directory."""

from __future__ import annotations

from typing import Any

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, exit_code_of
from rocketstore.cli.common.output import (
    chosen,
    print_document,
    print_fields,
    print_rows,
    print_text,
)
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size, format_time
from rocketstore.cli.store_facts.facts import Facts, gather
from rocketstore.directory.parts import DERIVED


def info(
    path: StorePath,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Describe a store: RocketMQ version, sizes, last exit, extent, topics. Changes nothing.

    Works on broken stores too. It lists what is wrong or unreadable; the exit status is then 1.
    It is 3 if PATH is not a store or its log is missing, and 4 if links lead out of the store.

    \b
    Examples:
      rocketstore info /data/store
      rocketstore info /data/store --format json | jq .rocketmq.version
    """
    settings = store_config(config, commit_log)
    quieten()  # the answer contains what the library would log
    with progress_bar(quiet=quiet) as progress:
        facts = gather(path, progress, settings)
    if not print_document(facts.document, chosen(form)):
        _print_table(facts)
    if not facts.document["isStore"]:
        check_is_store(path, config=settings)
    refused = facts.refused_with
    if refused is not None and exit_code_of(refused) in (ExitCode.USAGE, ExitCode.UNSAFE):
        raise typer.Exit(int(exit_code_of(refused)))
    if facts.has_no_log:
        raise typer.Exit(int(ExitCode.CANNOT_READ))
    if facts.refusals or facts.findings:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print_table(facts: Facts) -> None:
    document = facts.document
    print_fields(_fields(document))
    if document.get("topics"):
        print_text()
        print_rows(
            ("topic", "type", "queues", "messages", "queue offsets"),
            [
                (
                    row["topic"],
                    row["type"],
                    len(row["queues"]),
                    _of_all(row),
                    _offsets(row["queues"]),
                )
                for row in document["topics"]
            ],
            right=("queues", "messages"),
            shrink=("queue offsets", "topic"),
        )
    for heading, lines in (
        ("Besides:", [_part(row) for row in document.get("parts", []) if _is_special(row)]),
        ("Notes:", document.get("notes", [])),
        ("Wrong:", facts.findings),
        ("Could not be read:", facts.refusals),
    ):
        if lines:
            print_text()
            print_text(heading)
            for line in lines:
                print_text(f"  {line}")


#: Parts that every plain store has; not listed.
_PLAIN_PARTS = frozenset(
    ("commitLog", "consumeQueue", "index", "checkpoint", "abort", "lock", "state")
)


def _is_special(part: dict[str, str]) -> bool:
    return part["kind"] not in _PLAIN_PARTS


def _part(part: dict[str, str]) -> str:
    return f"{part['name']}: {part['what']}; {part['treatment']}"


def _fields(document: dict[str, Any]) -> list[tuple[str, Any]]:
    fields: list[tuple[str, Any]] = [("store", document["path"])]
    if not document["isStore"]:
        return [*fields, ("what", "not a RocketMQ store: it has none of a store's files")]
    if "rocketmq" in document:
        line = document["rocketmq"]
        fields.append(("likely RocketMQ", f"{line['version']}: {line['because']}"))
    in_use = {True: "yes: a broker or another writer holds the lock", False: "no", None: "unknown"}
    fields += [("last exit", document["lastExit"]), ("in use", in_use[document["inUse"]])]
    if "geometry" in document:
        fields.append(("file sizes", _sizes(document)))
    return [*fields, *_extent(document)]


def _sizes(document: dict[str, Any]) -> list[str]:
    """Return the file sizes; assumed ones are marked."""
    sizes = document["geometry"]
    assumed = {name: " (assumed: no file shows it)" for name in sizes.get("assumed", ())}

    def shown(text: str, name: str) -> str:
        return text + assumed.get(name, "")

    found = [shown(f"log {format_size(sizes['commitLogFileSize'])}", "commitLogFileSize")]
    if not any(part["treatment"] == DERIVED for part in document["parts"]):
        queue = f"queue {format_size(sizes['consumeQueueFileSize'])}"
        found.append(shown(queue, "consumeQueueFileSize"))
    index = f"index {sizes['hashSlots']:,} slots, {sizes['indexEntries']:,} entries"
    return [*found, shown(index, "hashSlots")]


def _of_all(row: dict[str, Any]) -> str:
    """Return the number of readable messages, and the total if some are lost."""
    lost = row.get("lostMessages", 0)
    if not lost:
        return f"{row['messages']:,}"
    return f"{row['messages']:,} of {row['messages'] + lost:,} ({lost:,} lost)"


def _extent(document: dict[str, Any]) -> list[tuple[str, Any]]:
    log = document.get("log", {})
    fields: list[tuple[str, Any]] = []
    if "maxOffset" in log:
        fields.append(
            (
                "log",
                f"{counted(log['files'], 'file')}, offsets {log['minOffset']} to "
                f"{log['maxOffset']} ({format_size(log['bytes'])}"
                + (f"; {format_size(log['lostBytes'])} lost)" if log["lostBytes"] else ")"),
            )
        )
        times = [log["firstTimestamp"], log["lastTimestamp"]]
        if None not in times:
            fields.append(("stored", " to ".join(format_time(time) for time in times)))
    elif log:
        sizes = ", ".join(format_size(size) for size in log["fileSizes"])
        fields.append(("log", f"{counted(log['files'], 'file')} of {sizes}"))
    if "messages" in document:
        topics = counted(len(document["topics"]), "topic")
        fields.append(("messages", f"{_of_all(document)} in queues of {topics}"))
    elif "topicNames" in document:
        fields.append(("topics", document["topicNames"]))
    if "timer" in document:
        timer = document["timer"]
        due = f"next at {format_time(timer['nextDue'])}, {timer['overdue']:,} overdue"
        fields.append(("timer", f"{counted(timer['pending'], 'message')} pending, {due}"))
    if "delays" in document:
        delays = document["delays"]
        parked = f", {delays['parked']:,} undeliverable" if delays["parked"] else ""
        waiting = f"{counted(delays['pending'], 'message')} pending, {delays['overdue']:,} overdue"
        fields.append(("delayed", waiting + parked))
    if "index" in document:
        index = document["index"]
        fields.append(
            ("index", f"{counted(index['files'], 'file')}, {counted(index['keys'], 'key')}")
        )
    if "transactions" in document:
        fields.append(("transactions", _transactions(document["transactions"])))
    return fields


def _transactions(found: dict[str, Any]) -> str:
    if not found["undecided"]:
        return "none undecided"
    ages = found["byAge"]
    counts = [f"{ages[name]} within a {name}" for name in ages if name != "older" and ages[name]]
    counts += [f"{ages['older']} older"] if ages["older"] else []
    oldest = format_time(found["oldestBornTimestamp"])
    return f"{found['undecided']} undecided ({', '.join(counts)}), the oldest from {oldest}"


def _offsets(queues: list[dict[str, int]], limit: int = 8) -> str:
    shown = [f"{one['queueId']}: {one['minOffset']}..{one['maxOffset']}" for one in queues[:limit]]
    return "  ".join(shown) + ("  …" if len(queues) > limit else "")
