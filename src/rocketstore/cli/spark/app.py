"""``rocketstore spark``: heavy work on a store, as Spark jobs on this machine or a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketstore.cli.common.options import (
    BeginOption,
    ConfigOption,
    EndOption,
    FormatOption,
    OnCorruption,
    OnCorruptionOption,
    QuietOption,
    check_path_word,
    check_span,
    check_words,
)
from rocketstore.cli.common.outcome import ExitCode, reporting
from rocketstore.cli.common.output import (
    Format,
    chosen,
    print_document,
    print_fields,
    print_line,
    print_text,
)
from rocketstore.cli.common.quantities import parse_size, parse_span, parse_time
from rocketstore.cli.common.where import WhereOption, compiled
from rocketstore.cli.spark.answers import print_frame
from rocketstore.cli.spark.loading import load
from rocketstore.cli.spark.options import (
    BrokerOption,
    ConfOption,
    KeysOption,
    MasterOption,
    SourcePath,
    SplitOption,
    StorageOption,
    TagsOption,
    TopicsOption,
    UnpackOption,
    configured_log,
)
from rocketstore.cli.spark.session import pairs, spark_session
from rocketstore.filter.sql92.sql92_filter import Sql92Filter
from rocketstore.spark.base.apart import check_apart
from rocketstore.spark.base.local import require

_HELP = """Count, check, rebuild, export, replay, compact and load stores with Spark.

PATH is a store or its commitlog: a directory that the driver and all executors see, or a URI
such as s3://bucket/store. Without --master Spark runs on all cores of this machine and needs no
installed Java. --master names a cluster (spark://host:7077, yarn, local[4]) or Spark Connect
(sc://host). Under spark-submit the default is its own master.

Needs pip install "rocketstore[spark]".

\b
Examples:
  rocketstore spark stats /data/store --by topic
  rocketstore spark fsck /data/store --master spark://head:7077
  rocketstore spark export /data/store /lake/messages --columns core --compression zstd
  rocketstore spark replay /data/store /data/new --key order-17 --to-topic Orders
"""

app = typer.Typer(
    name="spark",
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


_SPLIT = "256MiB"


def stats(
    path: SourcePath,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="NAMES",
            help="Count per value of topic, queueId, tags and bodySize; separate with commas.",
        ),
    ] = "topic,queueId",
    bucket: Annotated[
        str | None,
        typer.Option(
            "--bucket",
            metavar="TIME",
            callback=check_span,
            help="Also count per interval of storeTimestamp, e.g. 1h.",
        ),
    ] = None,
    measures: Annotated[
        str,
        typer.Option(
            "--measures",
            metavar="NAMES",
            help="Any of count, bytes, bodyBytes, minStoreTimestamp, maxStoreTimestamp, "
            "minQueueOffset, maxQueueOffset.",
        ),
    ] = "count,bytes",
    split_size: SplitOption = _SPLIT,
    corruption: OnCorruptionOption = OnCorruption.FAIL,
    storage: StorageOption = None,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Count messages and bytes by topic, queue, tag, body size and time.

    \b
    Examples:
      rocketstore spark stats /data/store
      rocketstore spark stats /data/store --by topic,tags --bucket 1h --format csv
      rocketstore spark stats s3://backup/store --by topic --master spark://head:7077
    """
    from rocketstore.spark import stats as run

    log, _ = configured_log(path, config)
    with spark_session(master, conf, quiet=quiet) as spark:
        frame = run(
            spark,
            log,
            by=_names(by),
            bucket=None if bucket is None else parse_span(bucket),
            measures=_names(measures),
            split_bytes=parse_size(split_size),
            on_corruption=corruption.value,
            storage_options=pairs(storage),
        )
        groups = [name for name in frame.columns if name not in _names(measures)]
        print_frame(frame.orderBy(*groups) if groups else frame, form)


def fsck(
    path: SourcePath,
    level: Annotated[
        str, typer.Option("--level", help="structure: lengths, offsets; crc: bodies too.")
    ] = "crc",
    queues: Annotated[
        bool, typer.Option("--queues/--no-queues", help="Compare the log with the queues.")
    ] = True,
    index: Annotated[
        bool, typer.Option("--index/--no-index", help="Compare the log with the index.")
    ] = True,
    split_size: SplitOption = _SPLIT,
    storage: StorageOption = None,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Check every record of the log, and the queues and the index against it. Changes nothing.

    Each finding names its file and position. The exit status is 1 if there is any finding. In
    NDJSON the last line, of kind "summary", has the counts.

    \b
    Examples:
      rocketstore spark fsck /data/store
      rocketstore spark fsck /data/store --level structure --no-index
      rocketstore spark fsck s3://backup/store --master spark://head:7077
      rocketstore spark fsck /data/store --format ndjson | jq -r .path
    """
    from rocketstore.spark import fsck as run

    wanted = (("consumequeue", queues), ("index", index))
    log, _ = configured_log(path, config)
    if log != path and (queues or index):
        raise typer.BadParameter(
            f"the log is in {log}, queues and index in {path}: Spark cannot compare them. Pass "
            "--no-queues --no-index, or use rocketstore verify",
            param_hint="'--config'",
        )
    with spark_session(master, conf, quiet=quiet) as spark:
        report = run(
            spark,
            log,
            level=level,
            # None: compare what can be compared; a remote store's queues cannot.
            cross_check=None
            if queues and index
            else tuple(name for name, asked in wanted if asked),
            split_bytes=parse_size(split_size),
            storage_options=pairs(storage),
        )
        print_frame(report.findings, form)
        summary = {"ok": report.ok, "findingCounts": dict(report.finding_counts), **report.summary}
    if chosen(form) is Format.NDJSON:
        print_line({"kind": "summary", **summary})
    elif chosen(form) is Format.TABLE:
        print_fields((name, value) for name, value in summary.items())
        for note in report.notes:
            print_text(f"Note: {note}.")
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def rebuild_queues(
    path: SourcePath,
    out: Annotated[
        str,
        typer.Argument(
            callback=check_path_word, help="The new consumequeue directory; absent or empty."
        ),
    ],
    broker_version: BrokerOption = None,
    split_size: SplitOption = _SPLIT,
    storage: StorageOption = None,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Rebuild the consume queues from the log, exactly as the store writes them.

    The store is not changed: stop the broker, replace its consumequeue with OUT, and restart the
    broker.

    \b
    Example:
      rocketstore spark rebuild-queues /data/store /data/consumequeue.new
    """
    from rocketstore.spark import rebuild_consume_queues as run

    log, settings = configured_log(path, config)
    with spark_session(master, conf, quiet=quiet) as spark:
        frame = run(
            spark,
            log,
            out,
            broker_version=broker_version or settings.broker_version,
            split_bytes=parse_size(split_size),
            storage_options=pairs(storage),
        )
        print_frame(frame, form)


def rebuild_index(
    path: SourcePath,
    out: Annotated[
        str,
        typer.Argument(callback=check_path_word, help="The new index directory; absent or empty."),
    ],
    slots: Annotated[
        int | None,
        typer.Option("--max-hash-slot-num", min=1, help="Hash slots [default: the store's]."),
    ] = None,
    entries: Annotated[
        int | None,
        typer.Option("--max-index-num", min=2, help="Entries per file [default: the store's]."),
    ] = None,
    broker_version: BrokerOption = None,
    split_size: SplitOption = _SPLIT,
    storage: StorageOption = None,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Rebuild the index files from the log, exactly as the store writes them.

    The store is not changed: stop the broker, replace its index with OUT, and restart the broker.

    \b
    Example:
      rocketstore spark rebuild-index /data/store /data/index.new
    """
    from rocketstore.spark import rebuild_index as run

    log, settings = configured_log(path, config)
    with spark_session(master, conf, quiet=quiet) as spark:
        frame = run(
            spark,
            log,
            out,
            max_hash_slot_num=slots or settings.max_hash_slot_num,
            max_index_num=entries or settings.max_index_num,
            broker_version=broker_version or settings.broker_version,
            split_bytes=parse_size(split_size),
            storage_options=pairs(storage),
        )
        print_frame(frame, form)


def export(
    path: SourcePath,
    destination: Annotated[
        str,
        typer.Argument(callback=check_path_word, help="An absent or empty directory, or a URI."),
    ],
    columns: Annotated[
        str, typer.Option("--columns", help="core, full, kafka, or names separated by commas.")
    ] = "core",
    partition_by: Annotated[
        str,
        typer.Option(
            "--partition-by",
            metavar="NAMES",
            help="A directory per topic, queueId or date; separate with commas, or leave empty.",
        ),
    ] = "topic",
    compression: Annotated[
        str,
        typer.Option(
            "--compression", metavar="NAME", help="snappy, zstd, gzip, lz4, brotli or none."
        ),
    ] = "snappy",
    topics: TopicsOption = None,
    tags: TagsOption = None,
    keys: KeysOption = None,
    where: WhereOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    split_size: SplitOption = _SPLIT,
    corruption: OnCorruptionOption = OnCorruption.FAIL,
    storage: StorageOption = None,
    destination_option: Annotated[
        list[str] | None,
        typer.Option(
            "--destination-option",
            metavar="NAME=VALUE",
            help="Like --storage-option, for DESTINATION; repeatable.",
        ),
    ] = None,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write messages to Parquet files, one for each split and topic.

    The files become visible once all of them are written.

    \b
    Examples:
      rocketstore spark export /data/store /lake/messages
      rocketstore spark export /data/store /lake/orders --topic Orders --begin -24h
      rocketstore spark export /data/store s3://lake/all --partition-by topic,date --columns full
    """
    from rocketstore.spark import export_parquet

    log, _ = configured_log(path, config)
    check_apart(path, destination)
    with (
        compiled(where, Sql92Filter, quiet=quiet) as made,
        spark_session(master, conf, quiet=quiet) as spark,
    ):
        frame = export_parquet(
            spark,
            log,
            destination,
            columns=_columns(columns),
            partition_by=_names(partition_by),
            compression=compression,
            topics=topics,
            tags=tags,
            keys=keys,
            filter=made,
            begin=_time(begin),
            end=_time(end),
            split_bytes=parse_size(split_size),
            on_corruption=corruption.value,
            storage_options=pairs(storage),
            destination_options=pairs(destination_option),
        )
        print_frame(frame, form)


def replay(
    path: SourcePath,
    out: Annotated[
        str,
        typer.Argument(
            callback=check_path_word, help="The store to write to; created if it does not exist."
        ),
    ],
    to_topic: Annotated[
        str | None,
        typer.Option(
            "--to-topic",
            metavar="TOPIC",
            callback=check_words,
            help="Topic for all messages [default: their own].",
        ),
    ] = None,
    where: WhereOption = None,
    spark_where: Annotated[
        str | None,
        typer.Option(
            "--spark-where",
            metavar="SQL",
            callback=check_words,
            help="An additional condition on the columns, in Spark SQL.",
        ),
    ] = None,
    topics: TopicsOption = None,
    tags: TagsOption = None,
    keys: KeysOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    once: Annotated[
        str | None,
        typer.Option(
            "--once",
            metavar="NAME",
            help="A name for this replay: repeated with it, nothing is written twice.",
        ),
    ] = None,
    unpack: UnpackOption = True,
    split_size: SplitOption = _SPLIT,
    corruption: OnCorruptionOption = OnCorruption.FAIL,
    storage: StorageOption = None,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write messages of a store again, selected by key, tag, topic, time or SQL.

    --where applies to properties while the log is read, --spark-where to columns later, in Spark.
    The messages are appended to OUT, which no other process may use meanwhile.

    \b
    Examples:
      rocketstore spark replay /backup/store /data/store --key order-17 --key order-18
      rocketstore spark replay /backup/store /data/new --begin -2h --end -1h
      rocketstore spark replay /backup/store /data/new --topic Orders --to-topic Again \\
          --where "state = 'PAID'" --spark-where "bodySize > 1000"
    """
    require("pyspark")
    import pyspark.sql.functions as sf
    from pyspark.sql import Observation

    from rocketstore.spark import replay as run

    seen = Observation()
    log, _ = configured_log(path, config)
    check_apart(path, out)
    with (
        compiled(where, Sql92Filter, quiet=quiet) as made,
        spark_session(master, conf, quiet=quiet) as spark,
    ):
        frame = run(
            spark,
            log,
            where=spark_where,
            filter=made,
            topic=to_topic,
            topics=topics,
            tags=tags,
            keys=keys,
            begin=_time(begin),
            end=_time(end),
            unpack=unpack,
            split_bytes=parse_size(split_size),
            on_corruption=corruption.value,
            storage_options=pairs(storage),
        )
        counted = frame.observe(seen, sf.count(sf.lit(1)).alias("messages"))
        writer = counted.write.format("rocketstore").mode("append")
        if once is not None:
            writer = writer.option("txnAppId", f"replay {once}").option("txnVersion", "1")
        writer.save(out)
        messages = seen.get["messages"]
    document = {"path": path, "out": out, "messages": messages}
    if not print_document(document, chosen(form)):
        print_fields(document.items())


def compact(
    path: SourcePath,
    out: Annotated[
        str, typer.Argument(callback=check_path_word, help="The new store; absent or empty.")
    ],
    topics: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC", callback=check_words, help="A topic; repeatable."
        ),
    ],
    key: Annotated[
        str, typer.Option("--by", help="keys (all of KEYS as one key) or uniqKey.")
    ] = "keys",
    keep_unkeyed: Annotated[
        bool,
        typer.Option("--keep-unkeyed/--drop-unkeyed", help="Keep or drop messages without a key."),
    ] = True,
    unpack: UnpackOption = True,
    split_size: SplitOption = _SPLIT,
    corruption: OnCorruptionOption = OnCorruption.FAIL,
    storage: StorageOption = None,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write the latest message of each key to a new store.

    A key whose latest message has an empty body is dropped.

    \b
    Example:
      rocketstore spark compact /data/store /data/prices --topic Prices
    """
    from rocketstore.spark import compact as run

    log, _ = configured_log(path, config)
    check_apart(path, out)
    with spark_session(master, conf, quiet=quiet) as spark:
        frame = run(
            spark,
            log,
            out,
            key=key,
            topics=topics,
            keep_unkeyed=keep_unkeyed,
            unpack=unpack,
            split_bytes=parse_size(split_size),
            on_corruption=corruption.value,
            storage_options=pairs(storage),
        )
        print_frame(frame, form)


for _name, _command in (
    ("stats", stats),
    ("fsck", fsck),
    ("rebuild-queues", rebuild_queues),
    ("rebuild-index", rebuild_index),
    ("export", export),
    ("replay", replay),
    ("compact", compact),
    ("load", load),
):
    app.command(_name, no_args_is_help=True)(reporting(_command))


# --- values -----------------------------------------------------------------------------------


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _columns(text: str) -> str | list[str]:
    names = list(_names(text))
    return names[0] if len(names) == 1 else names


def _time(text: str | None) -> int | None:
    return None if text is None else parse_time(text)


# --- answers ----------------------------------------------------------------------------------
