"""``rocketstore tail``: print the newest messages, and follow new ones."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rocketstore.cli.commands.scan import check_start
from rocketstore.cli.common.opening import quieten, reading
from rocketstore.cli.common.options import (
    BodyOption,
    CommitLogOption,
    ConfigOption,
    FormatOption,
    KeyOption,
    OnCorruption,
    OnCorruptionOption,
    QuietOption,
    StorePath,
    TagsOption,
    TopicsOption,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import Rows, chosen
from rocketstore.cli.common.records import record_rows
from rocketstore.cli.common.streams import HeldInterrupt
from rocketstore.cli.common.where import WhereOption, compiled
from rocketstore.errors import CorruptMessageError
from rocketstore.message import StoredMessage
from rocketstore.query.conditions import Conditions
from rocketstore.query.tail import LogTail, start_of_newest
from rocketstore.store.default_message_store import DefaultMessageStore

if TYPE_CHECKING:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

_GROWTH = 8


def tail(
    path: StorePath,
    topics: TopicsOption = None,
    key: KeyOption = None,
    tags: TagsOption = None,
    body_contains: BodyOption = None,
    where: WhereOption = None,
    count: Annotated[
        int,
        typer.Option(
            "--count", "-n", metavar="N", min=0, help="Number of newest messages to begin with."
        ),
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Wait for new messages until interrupted.")
    ] = False,
    start: Annotated[
        int | None,
        typer.Option(
            "--start",
            metavar="OFFSET",
            min=0,
            help="Begin at this log offset instead of the newest.",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", min=0.01, max=3600, help="Seconds between two polls."
        ),
    ] = 0.5,
    idle: Annotated[
        float | None,
        typer.Option(
            "--idle",
            metavar="SECONDS",
            min=0,
            help="With --follow: end after so many idle seconds.",
        ),
    ] = None,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show the newest messages in log order; with --follow also what a running broker adds.

    Files may be rolled and deleted meanwhile. If interrupted, it prints the --start that continues.

    \b
    Examples:
      rocketstore tail /data/store
      rocketstore tail /data/store --topic TopicA --follow
      rocketstore tail /data/store --topic Orders --where "total > 100" --follow
      rocketstore tail /data/store -n 0 -F --format ndjson | jq --unbuffered .body
    """
    count = min(count, sys.maxsize)
    if idle is not None and not follow:
        raise typer.BadParameter("--idle needs --follow")
    conditions = Conditions.of(topics=topics, key=key, tags=tags, body_contains=body_contains)
    options = {"derive": "none", "message_index_enable": False}
    with (
        reading(path, quiet=quiet, config=store_config(config, commit_log), **options) as store,
        compiled(where, store.filter, quiet=quiet) as made,
    ):
        quieten()  # each refresh would repeat the warnings
        check_start(store, start)
        with record_rows(chosen(form)) as out:
            position = max(store.min_physical_offset, 0) if start is None else start
            if start is None:
                found = Newest(store, count, conditions, made, on_corruption.value)
                for message in found:
                    out.write(message)
                position = store.max_physical_offset
                out.flush()
                follow = follow and not found.stopped
            if follow or start is not None:
                say = complain if not quiet else None

                interrupt = HeldInterrupt()

                def pause(seconds: float) -> None:
                    with interrupt.held():
                        out.flush()
                    time.sleep(seconds)

                follower = LogTail(
                    store,
                    start=position,
                    select=None if made is None else {"topics": topics, "filter": made},
                    on_corruption=on_corruption.value,
                    on_event=say,
                    wait=pause,
                )
                with interrupt:
                    _follow(follower, conditions, out, interrupt, interval, idle if follow else 0)
    if not out.count and not follow:
        if not quiet:
            complain("no message meets these conditions")
        raise typer.Exit(int(ExitCode.FINDINGS))


class Newest:
    """The last ``count`` messages of the log that meet the conditions, in log order.

    Only damage between the oldest of them and the log's end counts. With ``fail`` the messages
    before it are followed by an error; with ``stop`` they are the last.

    Attributes
    ----------
    stopped : bool
        Whether damage ended the iteration.
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        count: int,
        conditions: Conditions,
        where: Sql92Filter | None,
        on_corruption: str,
    ) -> None:
        self._store = store
        self._count = count
        self._conditions = conditions
        self._where = where
        self._on_corruption = on_corruption
        self.stopped = False

    def __iter__(self) -> Iterator[StoredMessage]:
        if self._count == 0:
            return
        begin, messages = self._find()
        if self._on_corruption == "skip":
            yield from messages
            return
        damage = self._first_damage(begin)
        for message in messages:
            if damage is not None and message.physical_offset > damage[0]:
                break
            yield message
        if damage is not None and self._on_corruption == "fail":
            raise damage[1]
        self.stopped = damage is not None

    def _find(self) -> tuple[int, deque[StoredMessage]]:
        """Return the messages and the offset of the first; of the log's first if they are fewer."""
        store, match = self._store, self._conditions.match
        first = max(store.min_physical_offset, 0)
        reach = self._count
        while True:
            start = start_of_newest(store, reach, self._conditions.topics)
            messages = store.scan(start=start, filter=self._where, on_corruption="skip")
            found = deque(filter(match, messages), maxlen=self._count)
            if len(found) == self._count:
                return found[0].physical_offset, found
            if start <= first:
                return first, found
            reach *= _GROWTH

    def _first_damage(self, begin: int) -> tuple[int, CorruptMessageError] | None:
        """Return the offset and error of the first corrupt range from ``begin`` on."""
        end = begin
        try:
            for message in self._store.scan(start=begin):
                end = message.physical_offset + message.store_size
        except CorruptMessageError as error:
            return end, error
        return None


def _follow(
    follower: LogTail,
    conditions: Conditions,
    out: Rows,
    interrupt: HeldInterrupt,
    interval_s: float,
    idle_s: float | None,
) -> None:
    position = follower.position
    try:
        for message in follower.follow(interval_s, idle_s):
            with interrupt.held():
                if conditions.match(message):
                    out.write(message)
                position = message.physical_offset + message.store_size
    except KeyboardInterrupt:
        out.flush()
        complain(f"interrupted; --start {position} continues here")
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
