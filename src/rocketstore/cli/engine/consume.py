"""``rocketstore consume``: print a group's next messages, and commit what was printed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rocketstore.cli.common.opening import check_is_store, quieten, reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    check_words,
    complete_topics,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import Rows, chosen
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, parse_time
from rocketstore.cli.common.records import record_rows
from rocketstore.cli.common.streams import HeldInterrupt
from rocketstore.cli.common.where import WhereOption, compiled
from rocketstore.config import MessageStoreConfig
from rocketstore.consumer.consumer import Consumer
from rocketstore.message import StoredMessage
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store

#: Messages that are written and committed together.
_BATCH_COUNT = 1024
#: Seconds of one wait for messages with ``--follow``.
_WAIT_S = 3600.0
_WORDS = ("earliest", "latest")


def check_start(text: str | None) -> str | None:
    """Refuse what is neither a word nor a time, as the callback of an option."""
    if text is not None and text not in _WORDS:
        parse_time(text)
    return text


def consume(
    path: StorePath,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="Topic.", callback=check_words, autocompletion=complete_topics
        ),
    ],
    group: Annotated[
        str,
        typer.Option(
            "--group", "-g", metavar="GROUP", callback=check_words, help="Consumer group."
        ),
    ],
    where: WhereOption = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            callback=check_start,
            help='Where a group without offsets begins: "earliest", "latest", or a time '
            "[default: earliest].",
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--max", "-n", metavar="N", min=1, help="Maximum number of messages."),
    ] = None,
    no_commit: Annotated[
        bool,
        typer.Option(
            "--no-commit", help="Change nothing; works beside a running broker or writer."
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Wait for new messages until interrupted.")
    ] = False,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Print the messages that a group has not consumed yet, and commit what was printed.

    Messages come from all queues of the topic, and from the group's retry topic. Offsets are
    committed, on disk, when messages were written; what a closed pipe did not take comes again.
    Committing needs the store for itself: stop the broker first, or give --no-commit. Exit
    status 1 if nothing came.

    \b
    Examples:
      rocketstore consume /data/store Orders --group audit
      rocketstore consume /data/store Orders --group audit --where "total > 100" --max 10
      rocketstore consume /data/store Orders --group audit --no-commit --follow
    """
    if quiet:
        quieten()
    settings = store_config(config, commit_log)
    first = start if start is None or start in _WORDS else parse_time(start)
    with (
        _opened(path, settings, no_commit=no_commit, quiet=quiet) as store,
        compiled(where, store.filter, quiet=quiet) as made,
        _consumer(store, group, topic, made, first) as consumer,
        record_rows(chosen(form)) as out,
    ):
        if no_commit:
            quieten()  # each refresh would repeat the warnings
        with HeldInterrupt() as interrupt:
            _print(consumer, out, interrupt, most, follow=follow)
    if not out.count:
        if not quiet:
            complain(f"there is no message of {topic} that {group} has not consumed")
        raise typer.Exit(int(ExitCode.FINDINGS))


@contextlib.contextmanager
def _opened(
    path: Path, settings: MessageStoreConfig, *, no_commit: bool, quiet: bool
) -> Iterator[DefaultMessageStore]:
    if no_commit:
        with reading(path, quiet=quiet, config=settings) as store:
            yield store
        return
    check_is_store(path, config=settings)
    settings = settings.replace(schedule_message_enable=False, clean_resource_enable=False)
    with progress_bar(quiet=quiet) as progress:
        store = open_store(path, "r+", config=settings, progress=progress)
    with store:
        yield store


@contextlib.contextmanager
def _consumer(
    store: DefaultMessageStore, group: str, topic: str, made: object, start: str | int | None
) -> Iterator[Consumer]:
    """Yield the consumer; its refusal of a name is wrong usage."""
    try:
        consumer = store.consumer(
            group,
            topic,
            filter=made,  # type: ignore[arg-type]
            start="earliest" if start is None else start,  # type: ignore[arg-type]
            ack="manual",
            max_reconsume_times=0,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with consumer:
        yield consumer


def _print(
    consumer: Consumer, out: Rows, interrupt: HeldInterrupt, most: int | None, *, follow: bool
) -> None:
    """Print messages; settle each when it is written, and commit after each batch."""
    try:
        while most is None or out.count < most:
            left = _BATCH_COUNT if most is None else min(_BATCH_COUNT, most - out.count)
            messages = consumer.poll(left, _WAIT_S if follow else 0)
            if not messages and not follow:
                return
            _write(consumer, messages, out, interrupt)
            consumer.commit(sync=True)
    except KeyboardInterrupt:
        complain(f"interrupted after {counted(out.count, 'message')}")
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None


def _write(
    consumer: Consumer, messages: list[StoredMessage], out: Rows, interrupt: HeldInterrupt
) -> None:
    if out.is_table:
        with interrupt.held():
            for message in messages:
                out.write(message)
            out.flush()
            for message in messages:
                consumer.ack(message)
        return
    for message in messages:
        with interrupt.held():
            out.write(message)
            out.flush()
            consumer.ack(message)
