"""``rocketstore stats``: a store's runtime figures, as a broker shows them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rocketstore.cli.common.opening import quieten, reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    store_config,
)
from rocketstore.cli.common.output import Format, chosen, print_document, print_fields, print_text
from rocketstore.store.default_message_store import DefaultMessageStore

#: Longest pause of ``--watch``: a day.
MOST_SECONDS = 86_400


def stats(
    path: StorePath,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            help="Print the figures again after so many seconds, until interrupted.",
        ),
    ] = None,
    prometheus: Annotated[
        bool,
        typer.Option("--prometheus", help="Print metrics in Prometheus' text format."),
    ] = False,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show a store's runtime figures under RocketMQ's names. Changes nothing.

    The figures come from the files: offsets, disk usage, delay levels. Counts of puts and gets are
    known only to the process that holds the store. --prometheus needs the extra "metrics".

    \b
    Examples:
      rocketstore stats /data/store
      rocketstore stats /data/store --watch 5
      rocketstore stats /data/store --prometheus
    """
    if quiet:
        quieten()
    if prometheus and form is not None:
        raise typer.BadParameter("--prometheus has a format of its own", param_hint="'--format'")
    if watch is not None and not 0 < watch <= MOST_SECONDS:
        raise typer.BadParameter(
            f"{watch:g} is not a number of seconds above 0, at most {MOST_SECONDS:,}",
            param_hint="'--watch'",
        )
    with reading(path, quiet=quiet, config=store_config(config, commit_log)) as store:
        _print(store, prometheus, form)
        while watch is not None:
            time.sleep(watch)
            store.refresh()
            if chosen(form) is Format.TABLE:
                print_text()
            _print(store, prometheus, form)


def _print(store: DefaultMessageStore, prometheus: bool, form: Format | None) -> None:
    if prometheus:
        try:
            from rocketstore.metrics import StoreCollector, exposition
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("prometheus_client"):
                raise
            raise typer.BadParameter(
                'prometheus-client is missing: install "rocketstore[metrics]"',
                param_hint="'--prometheus'",
            ) from error
        print(exposition(StoreCollector(store)), end="", flush=True)
        return
    info = store.runtime_info()
    if not print_document(dict(info), chosen(form)):
        print_fields(info.items())
