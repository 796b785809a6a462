"""Foreign entries in folders of mapped files, which keep a broker from starting.

RocketMQ loads every entry of such a folder. A file with another length prevents the start. One with
the right length is loaded as a part of the queue, or prevents the start by its name. 4.9 also loads
folders, and empty files at the end; 5.x skips them. Source: ``store/MappedFileQueue.java``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.dialect import Dialect
from rocketstore.directory.paths import StorePaths
from rocketstore.queues.directories import is_queue_id
from rocketstore.verify.beside.judgement import Judgement

_NUMBER = re.compile(r"[+-]?[0-9]+")


def judge_foreign(
    paths: StorePaths, foreign: Iterable[Path], dialect: Dialect
) -> Iterator[Judgement]:
    """Yield the entries in the folders of log, queues and index that keep a broker from starting.

    Parameters
    ----------
    paths : StorePaths
    foreign : iterable of Path
        Entries whose names are not offsets, from ``StoreAccess``.
    dialect : Dialect
        The broker's.
    """
    folders = {paths.consume_queue, paths.consume_queue_ext}
    if not dialect.loads_folders:
        folders.add(paths.batch_consume_queue)
    for path in sorted(foreign):
        if path.parent in paths.log_folders:
            # Do not skip empty files here: a kill leaves no file with such a name.
            if path.is_file() and not path.is_symlink():
                yield _foreign(path, "the log's folder", "segment", dialect)
            else:
                yield from judge_entry(path, "the log's folder", "segment", dialect)
        elif path.parents[2] in folders and is_queue_id(path.parent.name):
            yield from judge_entry(path, "a queue's folder", "queue file", dialect)
    if not dialect.loads_folders:
        yield from _judge_index(paths.index)


def judge_entry(path: Path, place: str, what: str, dialect: Dialect) -> Iterator[Judgement]:
    """Judge an entry of a folder of mapped files whose name is not an offset."""
    try:
        about = os.stat(path)
    except FileNotFoundError:
        if not path.is_symlink():
            return  # deleted meanwhile
        nbytes, is_folder = 0, False  # as Java sees a dangling link
    except OSError:
        return  # reported by StoreAccess
    else:
        nbytes, is_folder = about.st_size, stat.S_ISDIR(about.st_mode)
    passed = is_folder or (not nbytes and path.name == max(os.listdir(path.parent)))
    if dialect.loads_folders or not passed:
        yield _foreign(path, place, what, dialect)


def _foreign(path: Path, place: str, what: str, dialect: Dialect) -> Judgement:
    kind = "folder" if path.is_dir() else "file"
    if kind == "folder":
        means = f"RocketMQ {dialect.name} does not start with it"
    elif _NUMBER.fullmatch(path.name):
        means = "a broker loads it as one"
    else:
        means = "no broker starts with it"
    reason = f"a {kind} in {place} whose name is not a {what}'s: {means}"
    return Judgement("foreign-file", str(path), 0, reason)


def _judge_index(folder: Path) -> Iterator[Judgement]:
    """Judge the index folder for 5.x, which does not start if an index file cannot be opened.

    5.x skips names that are not numbers. Entries with an index file's name are judged elsewhere.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if formats.is_index_name(name) or formats.file_name_to_offset(name) is not None:
            continue
        is_number = _NUMBER.fullmatch(name) and -(2**63) <= int(name) < 2**63
        if is_number and (folder / name).is_dir():
            reason = "a folder in the index's folder with a number for a name: no broker of "
            yield Judgement(
                "foreign-file", str(folder / name), 0, f"{reason}RocketMQ 5 starts with it"
            )
