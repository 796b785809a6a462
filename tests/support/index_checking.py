"""The index part of the fsck job alone: a walk over the splits, and the index files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import Split
from rocketstore.spark.jobs.fsck.index import IndexCheck, IndexFindings
from rocketstore.spark.jobs.fsck.index_files import judge_file
from rocketstore.spark.jobs.fsck.log import Reading
from rocketstore.spark.jobs.fsck.split import look_at
from rocketstore.spark.jobs.tasks import run_tasks


def check_index(
    spark: Any,
    log: LogFiles,
    splits: Sequence[Split],
    *,
    check_crc: bool = False,
    **options: Any,
) -> IndexFindings:
    """Compare index and log; ``options`` are those of ``IndexCheck``."""
    check = IndexCheck(spark, log, splits, **options)
    how = Reading((), check_crc, options.get("storage_options"))
    items = [(split, how, item) for split, item in zip(splits, check.items, strict=True)]
    found = [found.keys for found in run_tasks(spark, look_at, items)]
    again = check.judged(list(run_tasks(spark, judge_file, check.files)), found)
    items = [(splits[number], how, check.items[number]) for number in again]
    for number, one in zip(again, run_tasks(spark, look_at, items), strict=True):
        found[number] = one.keys
    return check.finish(found)
