"""``rocketstore find``: messages by key, tag, topic, time and body."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from rocketstore.cli.commands.scan import (
    print_walk,
    progress_beside_output,
)
from rocketstore.cli.commands.walk import LogWalk
from rocketstore.cli.common.opening import reading
from rocketstore.cli.common.options import (
    BeginOption,
    BodyOption,
    CommitLogOption,
    ConfigOption,
    EndOption,
    FormatOption,
    KeyOption,
    LimitOption,
    OnCorruption,
    OnCorruptionOption,
    QuietOption,
    StorePath,
    TagsOption,
    UniqueKeyOption,
    check_words,
    complete_topics,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import chosen
from rocketstore.cli.common.quantities import parse_time
from rocketstore.cli.common.records import print_records
from rocketstore.cli.common.where import WhereOption, compiled
from rocketstore.query.conditions import Conditions


def find(
    path: StorePath,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            callback=check_words,
            help="Only this topic.",
            autocompletion=complete_topics,
        ),
    ] = None,
    key: KeyOption = None,
    unique_key: UniqueKeyOption = None,
    tags: TagsOption = None,
    body_contains: BodyOption = None,
    where: WhereOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    limit: LimitOption = None,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find messages that meet all given conditions. Exact: each hit is compared with its message.

    With --topic and a key the index answers at once. Without them the whole log is read;
    `rocketstore scan` reads it too, from any offset.

    \b
    Examples:
      rocketstore find /data/store --topic TopicA --key order-17
      rocketstore find /data/store --topic TopicA --tags TagB --begin -1d --limit 10
      rocketstore find /data/store --topic Orders --key c-7 --where "total BETWEEN 10 AND 20"
      rocketstore find /data/store --unique-key 7F0000010A3C18B4AAC21F5B2C400000
      rocketstore find /data/store --body-contains '"total": 12' --format table
    """
    first = None if begin is None else parse_time(begin)
    last = None if end is None else parse_time(end)
    conditions = Conditions.of(
        topics=None if topic is None else [topic],
        key=key,
        unique_key=unique_key,
        tags=tags,
        body_contains=body_contains,
        begin=first,
        end=last,
    )
    if conditions.empty and where is None and limit is None:
        raise typer.BadParameter("give at least one condition, or --limit")
    settings = store_config(config, commit_log)
    indexed = topic is not None and (key is not None or unique_key is not None)
    indexed = indexed and settings.message_index_enable
    with (
        reading(path, quiet=quiet, config=settings, message_index_enable=indexed) as store,
        compiled(where, store.filter, quiet=quiet) as made,
    ):
        if indexed:
            messages = store.find(
                topic=topic,
                key=key,
                unique_key=unique_key,
                tags=tags,
                body_contains=body_contains,
                begin=first,
                end=last,
                filter=made,
                on_corruption=on_corruption.value,
            )
            count = print_records(islice(messages, limit), chosen(form))
        else:
            with progress_beside_output(quiet=quiet) as progress:
                walk = LogWalk(
                    store,
                    conditions,
                    limit=limit,
                    on_corruption=on_corruption.value,
                    where=made,
                    progress=progress,
                )
                count = print_walk(walk, chosen(form), limit=limit, quiet=quiet)
    if not count:
        if not quiet:
            complain("no message meets these conditions")
        raise typer.Exit(int(ExitCode.FINDINGS))
