"""``rocketstore transactions``: list undecided and decided transactions, or decide one."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_is_store, quieten, reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    check_span,
    check_words,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering, complain, fail
from rocketstore.cli.common.output import Rows, chosen, print_document, print_text
from rocketstore.cli.common.quantities import counted, format_time, now_ms, parse_span
from rocketstore.cli.common.table import Table
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import TransactionError, TransactionNotFoundError
from rocketstore.status import TransactionState
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store
from rocketstore.transaction.handle import Transaction

#: Field names of a transaction.
NAMES = (
    *("transactionId", "state", "group", "topic", "queueId", "checks", "ageMs"),
    *("bornTimestamp", "physicalOffset", "queueOffset", "committedOffset"),
)
_HEADINGS = ("transaction", "state", "group", "topic", "queue", "checks", "age", "begun")


class States(StrEnum):
    """Which transactions to list."""

    UNKNOWN = "unknown"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    DISCARDED = "discarded"
    ALL = "all"


def transactions(
    path: StorePath,
    state: Annotated[
        States, typer.Option("--state", "-s", help="unknown: undecided ones.")
    ] = States.UNKNOWN,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            callback=check_words,
            help="Only of this producer group.",
        ),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(
            "--commit",
            metavar="REF",
            callback=check_words,
            help="Commit one: its transaction id, message id or log offset.",
        ),
    ] = None,
    rollback: Annotated[
        str | None,
        typer.Option(
            "--rollback", metavar="REF", callback=check_words, help="Roll one back, likewise."
        ),
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            "--max-age",
            metavar="TIME",
            callback=check_span,
            help="Exit with 1 if one is undecided for longer [default: the time in which a broker "
            "gives up].",
        ),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """List transactions, by default undecided ones, with their age and checks; or decide one.

    Listing changes nothing and works beside a running broker. --commit and --rollback write the
    store: stop the broker first. Deciding again, the same way, shows the first result. Exit status
    1 if a transaction is undecided for longer than --max-age, if there is none of the name, if it
    was decided the other way, or if the store refuses the decision.

    \b
    Examples:
      rocketstore transactions /data/store
      rocketstore transactions /data/store --state all --format ndjson | jq .state
      rocketstore transactions /data/store --commit 7F0000010A5318B4AAC24CBE7B1E0000
    """
    if commit is not None and rollback is not None:
        raise typer.BadParameter("--commit and --rollback are alternatives")
    if quiet:
        quieten()
    settings = store_config(config, commit_log)
    form = chosen(form)
    if commit is not None or rollback is not None:
        _decide(path, settings, commit, rollback, form, quiet=quiet)
        return
    wanted = None if state is States.ALL else TransactionState[state.name]
    with reading(path, quiet=quiet, config=settings) as store:
        limit = _limit(store, settings, max_age)
        table = Table(_HEADINGS, right=("queue", "checks", "age"), shrink=("topic", "group"))
        now, old = now_ms(), 0
        with Rows(form, NAMES, table=table, row=_cells) as out:
            for one in store.transactions(state=wanted, group=group):
                document = _document(one, now)
                is_open = document["state"] == TransactionState.UNKNOWN.name
                old += is_open and document["ageMs"] > limit
                out.write(document)
        if not out.count and not quiet:
            complain("there is no such transaction")
    if old:
        if not quiet:
            complain(f"{counted(old, 'transaction')} undecided for more than {_age(limit)}")
        raise typer.Exit(int(ExitCode.FINDINGS))


def _limit(store: DefaultMessageStore, settings: MessageStoreConfig, given: str | None) -> int:
    """Return the age in milliseconds at which an undecided transaction is a finding."""
    if given is not None:
        return parse_span(given)
    interval = settings.transaction_check_interval
    if interval is None:
        interval = store.facts.dialect.transaction_check_interval_ms
    return settings.transaction_time_out + settings.transaction_check_max * interval


def _document(one: Transaction, now: int) -> dict[str, Any]:
    message, outcome = one.message, one.outcome
    born = message.born_timestamp or 0
    values = (
        *(message.unique_key or message.msg_id, one.state.name, one.group, one.topic),
        *(one.queue_id, one.checks, now - born, born),
        *(message.physical_offset, message.queue_offset),
        None if outcome is None else outcome.physical_offset,
    )
    return dict(zip(NAMES, values, strict=True))


def _cells(document: dict[str, Any]) -> tuple[Any, ...]:
    return (
        document["transactionId"],
        document["state"].lower(),
        document["group"],
        document["topic"],
        document["queueId"],
        document["checks"],
        _age(document["ageMs"]),
        format_time(document["bornTimestamp"]),
    )


def _age(milliseconds: int) -> str:
    """Return a duration in its two largest units: ``3 d 4 h``, ``12 s``."""
    seconds = max(0, milliseconds) // 1000
    for large, small, size, part in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60)):
        if seconds >= size:
            return f"{seconds // size} {large} {seconds % size // part} {small}"
    return f"{seconds // 60} m {seconds % 60} s" if seconds >= 60 else f"{seconds} s"


def _find(store: DefaultMessageStore, reference: str) -> Transaction:
    """Return the transaction of a log offset, or of a unique key or message id."""
    if reference.isascii() and reference.isdigit() and len(reference) < 20:
        with contextlib.suppress(TransactionNotFoundError):  # a unique key may look like one
            return store.transaction(int(reference))
    return store.transaction(reference)


def _decide(
    path: Any,
    settings: MessageStoreConfig,
    commit: str | None,
    rollback: str | None,
    form: Any,
    *,
    quiet: bool,
) -> None:
    check_is_store(path, config=settings)
    settings = settings.replace(clean_resource_enable=False, schedule_message_enable=False)
    reference = commit if commit is not None else rollback
    assert reference is not None
    with open_store(path, "r+", config=settings) as store:
        try:
            one = _find(store, reference)
            outcome = None
            if commit is not None:
                outcome = one.commit()
            else:
                one.rollback()
        except TransactionError as error:
            raise fail(ExitCode.FINDINGS, str(error)) from None
        if outcome is not None and not outcome.appended:
            raise fail(
                ExitCode.FINDINGS,
                f"the commit was refused: {outcome.status}; the transaction stays undecided",
            )
        document = _document(one, now_ms())
    did = "committed" if commit is not None else "rolled back"
    with answering(f"{document['transactionId']} is {did}"):
        if not print_document(document, form) and not quiet:
            print_text(f"{document['transactionId']} is {did}")
    if outcome is not None and not outcome.ok:
        raise fail(ExitCode.FINDINGS, f"the message is stored, with the status {outcome.status}")
