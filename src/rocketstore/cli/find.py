"""``rocketstore find``: messages by key, tag, topic and time."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from rocketstore.cli.opening import reading
from rocketstore.cli.options import (
    BeginOption,
    EndOption,
    FormatOption,
    QuietOption,
    StorePath,
    TagsOption,
)
from rocketstore.cli.outcome import ExitCode, complain
from rocketstore.cli.output import chosen
from rocketstore.cli.quantities import parse_time
from rocketstore.cli.records import print_records


def find(
    path: StorePath,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="One of the message's keys.")
    ] = None,
    unique_key: Annotated[
        str | None, typer.Option("--unique-key", "-u", help="The message's unique key.")
    ] = None,
    tags: TagsOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Messages at most [default: all].")
    ] = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find messages; every condition given must hold. Exact: each hit is compared with its message.

    With --topic and a key the index answers at once; without them the log is read through.

    \b
    Examples:
      rocketstore find /data/store --topic TopicA --key order-17
      rocketstore find /data/store --topic TopicA --tags TagB --begin -1d --limit 10
      rocketstore find /data/store --unique-key 7F0000010A3C18B4AAC21F5B2C400000
    """
    first = None if begin is None else parse_time(begin)
    last = None if end is None else parse_time(end)
    if not any((topic, key, unique_key, tags, first, last)) and limit is None:
        raise typer.BadParameter("give at least one condition, or --limit")
    with reading(path, quiet=quiet) as store:
        messages = store.find(
            topic=topic, key=key, unique_key=unique_key, tags=tags, begin=first, end=last
        )
        if not print_records(islice(messages, limit), chosen(form)):
            if not quiet:
                complain("no message meets these conditions")
            raise typer.Exit(int(ExitCode.FINDINGS))
