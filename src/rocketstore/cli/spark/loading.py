"""``rocketstore spark load``: create a store from rows that Spark reads."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketstore.cli.common.options import (
    ConfigOption,
    FormatOption,
    QuietOption,
    check_path_word,
    check_words,
)
from rocketstore.cli.common.output import chosen, print_document, print_fields
from rocketstore.cli.spark.options import ConfOption, MasterOption, configured_log
from rocketstore.cli.spark.session import spark_session
from rocketstore.spark.base.apart import check_apart


def load(
    source: Annotated[
        str,
        typer.Argument(
            callback=check_path_word,
            help="What Spark reads: a file, a directory, a pattern, or a URI.",
        ),
    ],
    path: Annotated[
        str, typer.Argument(callback=check_path_word, help="The new store; absent or empty.")
    ],
    from_: Annotated[
        str,
        typer.Option("--from", metavar="FORMAT", help="A format that Spark reads: parquet, json."),
    ] = "parquet",
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            callback=check_words,
            help="Topic for all rows [default: the column topic].",
        ),
    ] = None,
    queues: Annotated[
        int, typer.Option("--queues", min=1, help="Queues per topic, without a column queueId.")
    ] = 4,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Create a store from rows that Spark reads.

    Columns: body; optionally topic, queueId, tags, keys, properties, flag, bornTimestamp,
    delayLevel. Other columns are an error.

    \b
    Examples:
      rocketstore spark load /lake/orders /data/store --topic Orders --queues 8
      rocketstore spark load /lake/messages.json /data/store --from json
    """
    from rocketstore.spark import bulk_load

    check_apart(source, path)
    log, settings = configured_log(path, config)
    if log == path:  # PATH/commitlog, whatever the file calls it
        settings = settings.replace(store_path_commit_log=None)
    with spark_session(master, conf, quiet=quiet) as spark:
        frame = spark.read.format(from_).load(source)
        report = bulk_load(
            frame, path, topic=topic, queues=queues, config=None if config is None else settings
        )
    document = {
        "path": str(report.path),
        "rows": report.rows,
        "bytes": report.nbytes,
        "segments": report.segments,
    }
    if not print_document(document, chosen(form)):
        print_fields(document.items())
