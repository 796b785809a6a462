"""The sink: tasks stage their rows, and one commit on the driver appends each row once.

Spark creates a writer on the driver and sends it to the tasks. For a stream it creates another one
for each batch, and another for the commit. Whatever the commit needs must therefore travel in the
tasks' messages.
"""

from __future__ import annotations

import difflib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rocketstore import formats, kernels
from rocketstore.errors import ConfigError
from rocketstore.sources import files as sources
from rocketstore.spark.base.options import parse_write
from rocketstore.spark.base.shipping import Shipped
from rocketstore.spark.base.worker import begin_task
from rocketstore.spark.sink.commit import abort, commit
from rocketstore.spark.sink.ledger import STAGE_DIR
from rocketstore.spark.sink.stage import (
    COLUMN_TYPES,
    DEFAULT_QUEUES,
    StagedFile,
    encoder_settings,
    write_stage,
)

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_SPARK_TYPES = {
    "body": ("string", "binary"),
    "queueId": _INTEGERS,
    "properties": ("map<string,string>",),
    "flag": _INTEGERS,
    "bornTimestamp": ("timestamp", "bigint"),
    "delayLevel": _INTEGERS,
}
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_MAX_VERSION = 2**63 - 1


@dataclass
class StagedMessage(WriterCommitMessage):
    """A task's message to the commit.

    Attributes
    ----------
    file : StagedFile
    stage : str
        Folder of the file.
    query_id : str or None
        Id of the streaming query.
    """

    file: StagedFile
    stage: str
    query_id: str | None = None


class _Target(Shipped):
    """The target of the rows and their encoding; plain values only."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        given = parse_write(options)
        if overwrite:
            raise ConfigError(
                "mode overwrite would delete the messages of a store, which the sink never does; "
                'write with mode("append"), or to a new path'
            )
        self.topic = given.get("topic")
        check_schema(schema, self.topic)
        self.root = local_path("path", given["path"])
        self.queues = whole_number("queues", given.get("queues", str(DEFAULT_QUEUES)), 1, 2**31 - 1)
        self.app = given.get("txnAppId")
        self.version: int | None = None
        if "txnVersion" in given:
            self.version = whole_number("txnVersion", given["txnVersion"], 0, _MAX_VERSION)
        staging = given.get("stagingDir")
        inside = str(Path(self.root) / formats.SPARK_DIR / STAGE_DIR)
        self.staging = inside if staging is None else local_path("stagingDir", staging)
        self.settings = encoder_settings(self.root)
        self._check_topic()

    def _check_topic(self) -> None:
        """Refuse an invalid ``topic`` before any task runs."""
        import pyarrow

        encoder = kernels.staged_records.StageEncoder(topic=self.topic, **self.settings)
        if self.topic is not None:
            try:
                encoder.encode(pyarrow.record_batch({"body": pyarrow.array([b""])}))
            except ValueError:
                raise ConfigError(
                    f"option topic has {len(self.topic)} bytes, more than RocketMQ allows"
                ) from None

    def stage_rows(
        self, batches: Iterator[pyarrow.RecordBatch], stage: str, query_id: str | None
    ) -> StagedMessage:
        """Write the rows of this task into the folder ``stage``."""
        from pyspark import TaskContext

        begin_task()
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        attempt = context.taskAttemptId() if context is not None else 0
        file = write_stage(
            batches,
            stage,
            partition=partition,
            attempt=attempt,
            settings=self.settings,
            topic=self.topic,
            queues=self.queues,
        )
        return StagedMessage(file, stage, query_id)

    def commit_files(
        self, messages: Sequence[WriterCommitMessage | None], stage: str, **batch: Any
    ) -> None:
        """Append the rows that the tasks staged."""
        files = [message.file for message in messages if isinstance(message, StagedMessage)]
        version = self.settings["broker_version"]
        commit(Path(self.root), files, stage=stage, broker_version=version, **batch)


class StagedWriter(_Target, DataSourceArrowWriter):
    """Writer of a batch query.

    Parameters
    ----------
    options : mapping of str to str
        ``path``, ``topic``, ``queues``, ``txnAppId`` with ``txnVersion``, ``stagingDir``.
    schema : StructType
        Columns of ``COLUMN_TYPES``; ``body`` is required.
    overwrite : bool
        Must be False.

    Raises
    ------
    ConfigError
        For options or columns that cannot be written, before any task runs.

    Notes
    -----
    With ``txnAppId`` and ``txnVersion`` a batch is appended once, however often it is written:
    a version not above the application's last one is skipped. Without them, a write that the user
    repeats is appended again; Spark's own retries are not.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if (self.app is None) != (self.version is None):
            raise ConfigError("give both txnAppId and txnVersion, or neither")
        self.write_id = uuid.uuid4().hex
        self.stage = str(Path(self.staging) / self.write_id)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedMessage:
        """Stage the rows of one task."""
        return self.stage_rows(iterator, self.stage, None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the rows that all tasks staged."""
        if self.app is None or self.version is None:
            name = f"once:{self.write_id}"
            self.commit_files(messages, self.stage, app=name, once=True)
        else:
            name = f"txn:{self.app}"
            self.commit_files(messages, self.stage, app=name, version=self.version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the stage, unless a commit has begun with it."""
        abort(Path(self.root), self.stage)


class StagedStreamWriter(_Target, DataSourceStreamArrowWriter):
    """Writer of a stream's batches: each is appended once, identified by query id and batch id.

    Parameters
    ----------
    options, schema, overwrite
        As for ``StagedWriter``; ``txnAppId`` replaces the query id, and ``txnVersion`` is always
        the batch id.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if self.version is not None:
            raise ConfigError("txnVersion of a stream is the id of its batch; do not give it")

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedMessage:
        """Stage the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch_id = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if query_id is None or batch_id is None:
            raise ConfigError("Spark did not pass the ids of the query and its batch to the task")
        stage = str(Path(self.staging) / f"{query_id}-{batch_id}")
        return self.stage_rows(iterator, stage, query_id)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Append the rows that all tasks of the batch staged."""
        staged = [message for message in messages if isinstance(message, StagedMessage)]
        if staged:
            app = f"txn:{self.app}" if self.app is not None else f"query:{staged[0].query_id}"
            self.commit_files(messages, staged[0].stage, app=app, version=batchId)
            # Stages of this query's failed attempts, which ``abort`` was not called with.
            for left in Path(self.staging).glob(f"{staged[0].query_id}-*"):
                abort(Path(self.root), str(left))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the stages, unless a commit has begun with them."""
        for stage in {m.stage for m in messages if isinstance(m, StagedMessage)}:
            abort(Path(self.root), stage)


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuse a table whose columns are not those of messages.

    Parameters
    ----------
    schema : StructType
    topic : str or None
        The option ``topic``.

    Raises
    ------
    ConfigError
        The message names the column.
    """
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        if field.name not in COLUMN_TYPES:
            near = difflib.get_close_matches(field.name, COLUMN_TYPES, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(
                f"the sink does not support column {field.name!r}; it must be one of "
                f"{', '.join(COLUMN_TYPES)}{hint}"
            )
        kind = field.dataType.simpleString()
        if kind not in _SPARK_TYPES.get(field.name, ("string",)):
            raise ConfigError(
                f"column {field.name} is {kind}; it must be {COLUMN_TYPES[field.name]}"
            )
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"column {name} occurs more than once")
    if "body" not in names:
        raise ConfigError("the table has no column body (string or binary)")
    if topic is None and "topic" not in names:
        raise ConfigError("give the topic: a column topic, or option('topic', …)")


def local_path(name: str, value: str) -> str:
    """Return the absolute path that an option names.

    Raises
    ------
    ConfigError
        If it is a URI of a file system that is not mounted.
    """
    scheme, separator, rest = value.partition("://")
    path = sources.local_path(value)
    if path is None or (separator and (scheme.lower() != "file" or not rest.startswith("/"))):
        raise ConfigError(
            f"{name} is {value}; it must be a path on a mounted file system: the store's on the "
            "driver, the stage's on one that all executors share with the driver"
        )
    return os.path.abspath(path)


def whole_number(name: str, value: str, low: int, high: int) -> int:
    """Parse an option's integer.

    Raises
    ------
    ConfigError
        If it is not an integer, or out of range.
    """
    try:
        number = int(value)
    except ValueError:
        raise ConfigError(f"option {name} is {value!r}; it must be a whole number") from None
    if not low <= number <= high:
        raise ConfigError(f"option {name} is {number}; it must be from {low} to {high}")
    return number
