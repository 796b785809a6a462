"""Detecting the geometry of index files from their content, even if some are corrupt."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.errors import ConfigError, MappedFileError
from rocketstore.files.durable import list_folder, look_at_file
from rocketstore.files.mapped_file import MappedFile
from rocketstore.index.index_file import IndexFile, IndexHeader

#: A pair is accepted if at most one in this many keys contradicts it.
_CREDIBLE_SHARE = 4
#: Number of entries whose links are examined to detect the slot count.
_LINKED_ENTRIES = 65_536
#: What to do if the defaults are used although there are files.
_ADVICE = "; if the broker uses others, configure max_hash_slot_num and max_index_num"
#: Index files up to this size are completely compared with a configured geometry.
JUDGED_WHOLE_NBYTES = 64 * 1024 * 1024


class Explanation(NamedTuple):
    """How well a pair of slots and entries explains files of one length."""

    pair: tuple[int, int]
    #: Numbers of the files without a contradiction, and of those with some.
    whole: tuple[int, ...]
    odd: tuple[int, ...]
    contradictions: int


def contradictions_of(
    files: Sequence[Any], nbytes: int, others: Sequence[tuple[int, int]] = ()
) -> dict[tuple[int, int], list[int]]:
    """Count the contradictions in every file to each possible pair, and to ``others``.

    Pairs of ``others`` are used if they give files of that length. The result is empty if no file
    has a key.

    Parameters
    ----------
    files : sequence of buffers of uint8, shape (nbytes,)
    nbytes : int
    others : sequence of (slots, entries)
    """
    fitting = [pair for pair in others if formats.index_file_nbytes(*pair) == nbytes]
    candidates = dict.fromkeys(fitting)
    for file in files:
        candidates.update(dict.fromkeys(detect_geometry(file, nbytes)))
    if not any(map(_key_count, files)):
        return {}
    return {
        pair: [kernels.index_file.contradictions(file, *pair) for file in files]
        for pair in candidates
    }


def explain(files: Sequence[Any], nbytes: int) -> Explanation | None:
    """Return the pair that explains files of one length best.

    ``None`` if no file has a key, or if every pair has so many contradictions that the length
    itself must be wrong.

    Each file without a contradiction has a vote, so a corrupt file cannot outvote it. Without such
    a file the links between entries decide: a corrupt header or corrupt slots do not affect them.
    """
    if nbytes < formats.INDEX_HEADER.nbytes:
        return None
    keys = list(map(_key_count, files))
    scores = contradictions_of(files, nbytes)
    if not scores:
        return None
    votes = {
        pair: sum(count > 0 and not odd for count, odd in zip(keys, against, strict=True))
        for pair, against in scores.items()
    }
    links = dict.fromkeys(scores, 0)
    if not any(votes.values()):
        links = {pair: sum(_links(file, *pair) for file in files) for pair in scores}
    best = max(scores, key=lambda pair: (votes[pair], links[pair], -sum(scores[pair])))
    against = scores[best]
    if not votes[best] and links[best] <= 0 and sum(against) > sum(keys) // _CREDIBLE_SHARE + 1:
        return None
    numbers = range(len(files))
    whole = tuple(number for number in numbers if keys[number] and not against[number])
    return Explanation(best, whole, tuple(n for n in numbers if against[n]), sum(against))


def _key_count(file: Any) -> int:
    return kernels.index_file.read_header(file)[5] - 1


def _links(file: Any, slots: int, entries: int) -> int:
    """Return how many entries link to an earlier one of the same slot, minus the other links.

    Only the right pair gives a large number: with a wrong one the numbers refer to other entries.
    """
    count = min(_key_count(file), entries - 1, _LINKED_ENTRIES)
    start = formats.index_file_nbytes(slots, 1)
    view = memoryview(file)[start : start + count * formats.INDEX_ENTRY.nbytes]
    rows = list(formats.INDEX_ENTRY.struct.iter_unpack(view))
    good = linked = 0
    for number, (key_hash, _, _, previous) in enumerate(rows, 1):
        if key_hash > 0 and previous:
            linked += 1
            is_former = 0 < previous < number
            good += is_former and rows[previous - 1][0] % slots == key_hash % slots
    return 2 * good - linked


def detect_geometry(file: Any, nbytes: int) -> list[tuple[int, int]]:
    """Return the (slots, entries) pairs that could explain an index file's bytes.

    The last entry ends where the file's content ends, so only a few slot counts are possible. The
    caller judges each with ``kernels.index_file.contradictions``. Without entries the list is
    empty.

    Parameters
    ----------
    file : buffer of uint8, shape (nbytes,)
    nbytes : int
    """
    if nbytes < formats.INDEX_HEADER.nbytes:
        return []
    count = IndexHeader(*kernels.index_file.read_header(file)).index_count
    end = _content_end(file, nbytes)
    if count <= 1 or end <= formats.INDEX_HEADER.nbytes:
        return []
    slot, entry = formats.INDEX_SLOT.nbytes, formats.INDEX_ENTRY.nbytes
    pairs = []
    # Entry count - 1 is the last one. It may end in zeros, so its end is known to 20 bytes only.
    first = end - formats.INDEX_HEADER.nbytes - entry * count
    for slots_nbytes in range(max(first, slot), first + 2 * entry):
        slots, rest = divmod(slots_nbytes, slot)
        entries, odd = divmod(nbytes - formats.INDEX_HEADER.nbytes - slots_nbytes, entry)
        if rest or odd or slots < 1 or entries < count:
            continue
        pairs.append((slots, entries))
    return pairs


def _content_end(file: Any, nbytes: int) -> int:
    """Return the position after the last non-zero byte."""
    view = memoryview(file)[:nbytes]
    step = 1 << 20
    stop = nbytes
    while stop > 0:
        start = max(0, stop - step)
        chunk = bytes(view[start:stop]).rstrip(b"\0")
        if chunk:
            return start + len(chunk)
        stop = start
    return 0


def index_paths(
    directory: Path,
    root: Path,
    skipped: list[Path],
    *,
    tolerant: bool = False,
    linked: list[Path] | None = None,
) -> list[tuple[Path, int]]:
    """Return (path, bytes) of the index files in order of name.

    Other entries are added to ``skipped``, with ``tolerant`` also unreadable and non-regular files.
    Files that are symbolic links or have hard links are added to ``linked``.
    """
    paths = []
    try:
        names = list_folder(directory)
    except PermissionError:
        if not tolerant:
            raise
        skipped.append(directory)
        return []
    for name in names:
        path = directory / name
        if not formats.is_index_name(name):
            skipped.append(path)
            continue
        try:
            nbytes, is_linked = look_at_file(path, root)
        except (PermissionError, FileNotFoundError, MappedFileError):
            if not tolerant:
                raise
            skipped.append(path)
            continue
        paths.append((path, nbytes))
        if is_linked and linked is not None:
            linked.append(path)
    return paths


class GeometryChoice(NamedTuple):
    """The (slots, entries) of new files and of each file length, and notes on doubtful files."""

    pair: tuple[int, int]
    by_nbytes: dict[int, tuple[int, int]]
    doubts: list[str]

    def of(self, nbytes: int) -> tuple[int, int] | None:
        """Return the pair of a file of ``nbytes``, ``None`` for an unknown length.

        New files, created since the geometry was chosen, are included.
        """
        pair = self.by_nbytes.get(nbytes)
        return self.pair if pair is None and self.pair_nbytes == nbytes else pair

    @property
    def pair_nbytes(self) -> int:
        """Bytes of a new file."""
        return formats.index_file_nbytes(*self.pair)


def choose_geometry(
    directory: Path,
    root: Path,
    given: tuple[int, int] | None,
    hints: list[tuple[int, int]],
    default: tuple[int, int],
    *,
    tolerant: bool = False,
) -> GeometryChoice:
    """Detect slots and entries of the index files.

    The first that applies is used:

    1. ``given``;
    2. ``hints`` (the state file) and ``default``, if the file length fits;
    3. the pair that explains most files of one length;
    4. the pair with the fewest contradictions.

    A file is ignored if no pair explains its length. It is also ignored if the length differs from
    other files with as many slots, or from what a full file holds. Its age does not matter.

    Raises ``ConfigError`` if ``given`` fits no file length although another pair explains one, or
    if another pair explains the content of the files of its length.
    """
    found = index_paths(directory, root, [], tolerant=tolerant)
    paths = [(path, nbytes) for path, nbytes in found if nbytes > formats.INDEX_HEADER.nbytes]
    lengths = sorted({nbytes for _, nbytes in paths})
    if given is not None:
        wanted = formats.index_file_nbytes(*given)
        others = [] if wanted in lengths else [
            nbytes for nbytes in lengths
            if _explaining_pair([p for p, n in paths if n == nbytes], nbytes, root, []) is not None
        ]  # fmt: skip
        if others:
            raise ConfigError(
                f"max_hash_slot_num {given[0]} and max_index_num {given[1]} make index files of "
                f"{wanted} bytes, but {directory} holds files of {others[0]}; leave both unset to "
                "have them detected"
            )
        _refuse_contradiction([p for p, n in paths if n == wanted], wanted, given, hints, root)
        hints = [given]
    by_nbytes: dict[int, tuple[int, int]] = {}
    doubts: list[str] = []
    for nbytes in lengths:
        known = [p for p in (*hints, default) if formats.index_file_nbytes(*p) == nbytes]
        if known:
            by_nbytes[nbytes] = known[0]
            continue
        pair = _explaining_pair([p for p, n in paths if n == nbytes], nbytes, root, doubts)
        if pair is not None:
            by_nbytes[nbytes] = pair
    full = _full_pairs(found[:-1], by_nbytes, root) if len(lengths) > 1 else Counter()
    for nbytes in _odd_lengths(by_nbytes, paths, full, [*hints, default]):
        del by_nbytes[nbytes]
    newest = [by_nbytes[size] for _, size in paths if size in by_nbytes]
    newest = newest or [pair for pair, _ in full.most_common(1)]
    pair = given or (newest[-1] if newest else (hints[0] if hints else default))
    source = "the other files" if newest else ("the state file" if hints else "RocketMQ's defaults")
    source = "the configuration" if given else source
    advice = "" if given or newest or hints else _ADVICE
    doubts += [
        f"{path} has {nbytes} bytes, and neither that length nor its content shows its slots and "
        f"entries; {pair[0]} slots and {pair[1]} entries "
        f"({formats.index_file_nbytes(*pair)} bytes) are used, from {source}{advice}"
        for path, nbytes in found
        # The newest file may just have been created: no doubt if the sizes are known otherwise.
        if nbytes not in by_nbytes and (nbytes or not (newest or hints) or path != found[-1][0])
    ]
    return GeometryChoice(pair, by_nbytes, doubts)


def _full_pairs(
    older: list[tuple[Path, int]], by_nbytes: dict[int, tuple[int, int]], root: Path
) -> Counter[tuple[int, int]]:
    """Count the pairs that the headers of ``older`` files show, regardless of their length.

    A broker starts a new file when the last one is full. So all files but the newest are full,
    and the header's count is their capacity. A file whose header and entries disagree is ignored,
    and so is a single file whose capacity gives a length that no file has.
    """
    full: Counter[tuple[int, int]] = Counter()
    for path, nbytes in older:
        pair = by_nbytes.get(nbytes)
        if pair is None:
            continue
        file = IndexFile(MappedFile(path, 0, nbytes, root), *pair)
        try:
            if file.looks_whole():
                full[file.slots, file.header.index_count] += 1
        finally:
            file.close()
    for pair in [pair for pair, count in full.items() if count == 1]:
        if formats.index_file_nbytes(*pair) not in by_nbytes:
            del full[pair]
    return full


def _odd_lengths(
    by_nbytes: dict[int, tuple[int, int]],
    paths: list[tuple[Path, int]],
    full: Counter[tuple[int, int]],
    known: list[tuple[int, int]],
) -> list[int]:
    """Return the file lengths that result from truncation or growth instead of a geometry.

    Another length then has as many slots and is more credible. Compared in this order: files that
    are ``full`` at that length, files of that length, ``known`` lengths, the greater length.
    """
    counts = Counter(size for _, size in paths)
    votes = {formats.index_file_nbytes(*pair): count for pair, count in full.items()}

    def weight(nbytes: int) -> tuple[int, int, bool, int]:
        count = counts[nbytes]
        is_known = any(formats.index_file_nbytes(*pair) == nbytes for pair in known)
        return votes.get(nbytes, 0), count if count > 1 else 0, is_known, nbytes

    pairs = {*known, *by_nbytes.values(), *full}
    return [
        nbytes
        for nbytes, (slots, _) in by_nbytes.items()
        if any(
            pair[0] == slots and weight(formats.index_file_nbytes(*pair)) > weight(nbytes)
            for pair in pairs
        )
    ]


def _refuse_contradiction(
    paths: list[Path],
    nbytes: int,
    given: tuple[int, int],
    hints: list[tuple[int, int]],
    root: Path,
) -> None:
    """Raise ``ConfigError`` if the content of files of one length contradicts a given pair.

    With a wrong pair, readers would not find keys and a writer would take good entries for corrupt
    ones. A corrupt file contradicts every pair, so another pair must explain it clearly better.
    """
    if not any(_looks_otherwise(path, nbytes, given, root) for path in {*paths[:1], *paths[-1:]}):
        return
    with _mapped(paths, nbytes, root) as files:
        each = contradictions_of(files, nbytes, [given, *hints])
    scores = {pair: sum(counts) for pair, counts in each.items()}
    best = min(scores, key=lambda pair: scores[pair], default=given)
    clearly = best in hints or not scores.get(best) or 2 * scores[best] < scores[given]
    if best != given and scores[best] < scores[given] and clearly:
        raise ConfigError(
            f"max_hash_slot_num {given[0]} and max_index_num {given[1]} contradict the content of "
            f"{paths[0].parent}; {best[0]} and {best[1]} explain it. Configure these, or leave "
            "both unset to have them detected"
        )


def _looks_otherwise(path: Path, nbytes: int, pair: tuple[int, int], root: Path) -> bool:
    """Return whether a file contradicts this geometry.

    Small files are checked completely. In large ones, only the entries that the header names and
    the newest entry's slot are checked. A full check takes a second at the default size.
    """
    file = MappedFile(path, 0, nbytes, root)
    try:
        if nbytes <= JUDGED_WHOLE_NBYTES:
            return bool(kernels.index_file.contradictions(file.mapping, *pair))
        index_file = IndexFile(file, *pair)
        return index_file.entry_count > 0 and not index_file.looks_whole()
    finally:
        file.close()


def _explaining_pair(
    paths: list[Path], nbytes: int, root: Path, doubts: list[str]
) -> tuple[int, int] | None:
    """Return the pair that explains the files of one length best, ``None`` without one."""
    with _mapped(paths, nbytes, root) as files:
        found = explain(files, nbytes)
    if found is None:
        return None
    slots, entries = found.pair
    if found.odd and found.whole:
        odd = ", ".join(paths[number].name for number in found.odd)
        doubts.append(
            f"{paths[0].parent}: the content of {odd} contradicts {slots} slots and {entries} "
            f"entries, which explain the other index files of {nbytes} bytes"
        )
    elif found.odd:
        doubts.append(
            f"no geometry explains the index files of {nbytes} bytes; {slots} slots and {entries} "
            f"entries have the fewest contradictions ({found.contradictions})"
        )
    return found.pair


@contextlib.contextmanager
def _mapped(paths: list[Path], nbytes: int, root: Path) -> Iterator[list[Any]]:
    """Yield the mappings of files of one length."""
    files = [MappedFile(path, 0, nbytes, root) for path in paths]
    try:
        yield [file.mapping for file in files]
    finally:
        for file in files:
            file.close()
