"""Which geometry explains the content of index files, also when some of them are damaged."""

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

#: A pair is believed while no more than one in so many keys speaks against it.
_CREDIBLE_SHARE = 4
#: Links of this many entries are enough to know slots by.
_LINKED_ENTRIES = 65_536
#: What to do where the defaults are taken although there are files.
_ADVICE = "; if the broker has others, configure max_hash_slot_num and max_index_num"
#: Index files up to this size are judged by their whole content against a geometry that is given.
JUDGED_WHOLE_NBYTES = 64 * 1024 * 1024


class Explanation(NamedTuple):
    """How well a pair of slots and entries explains files of one length."""

    pair: tuple[int, int]
    #: Numbers of the files that it explains without a contradiction, and of those with some.
    whole: tuple[int, ...]
    odd: tuple[int, ...]
    contradictions: int


def contradictions_of(
    files: Sequence[Any], nbytes: int, others: Sequence[tuple[int, int]] = ()
) -> dict[tuple[int, int], list[int]]:
    """Count what speaks against each pair that is possible, and each of ``others`` of that length,
    in every file (empty when no file says anything).

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
    """Return the pair that explains files of one length best; ``None`` when they say nothing, or
    when so much speaks against every pair that the length itself is wrong.

    Each whole file has a vote, however much a damaged one says against all pairs. Without a whole
    file the links between entries decide, which a damaged header or damaged slots leave alone.
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
    """How many entries name a former one of their own slot, less those that name another one.

    The right pair alone has these links in large number: in a file of another one a number stands
    for another entry.
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

    The last entry ends where the file's content ends, so only a few slot counts are possible; each
    is then judged by ``kernels.index_file.contradictions``. A file without entries says nothing:
    ``[]``.

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
    # Entry count - 1 is the last one; its fields may end in zeros, so its end is within 20 bytes.
    first = end - formats.INDEX_HEADER.nbytes - entry * count
    for slots_nbytes in range(max(first, slot), first + 2 * entry):
        slots, rest = divmod(slots_nbytes, slot)
        entries, odd = divmod(nbytes - formats.INDEX_HEADER.nbytes - slots_nbytes, entry)
        if rest or odd or slots < 1 or entries < count:
            continue
        pairs.append((slots, entries))
    return pairs


def _content_end(file: Any, nbytes: int) -> int:
    """Position behind the last byte that is not zero."""
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
    """Return (path, bytes) of the index files in order of name; other entries go to ``skipped``,
    those that are symbolic links or have hard links to ``linked`` as well.

    With ``tolerant`` also those that may not be read, and what is no regular file.
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
    """The (slots, entries) of new files, of each length seen, and what was not clear about it."""

    pair: tuple[int, int]
    by_nbytes: dict[int, tuple[int, int]]
    doubts: list[str]

    def of(self, nbytes: int) -> tuple[int, int] | None:
        """Return the pair of a file of ``nbytes``, also of one made after the others were looked
        at; ``None`` for a length that no file here has."""
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
    """Find the slots and entries of the index files from what they hold.

    Order: ``given``; ``hints`` (the state file) and ``default`` as far as the length fits; the pair
    that explains most files of one length; else the one with the fewest contradictions. A file of a
    length that nothing explains, or that is longer or shorter than what others of as many slots
    have, or than what a full one holds, says nothing, whichever is newest.

    Raises ``ConfigError`` when ``given`` has another length than every file, or the length of some
    files whose content another pair explains.
    """
    found = index_paths(directory, root, [], tolerant=tolerant)
    paths = [(path, nbytes) for path, nbytes in found if nbytes > formats.INDEX_HEADER.nbytes]
    lengths = sorted({nbytes for _, nbytes in paths})
    if given is not None:
        wanted = formats.index_file_nbytes(*given)
        if lengths and wanted not in lengths:
            raise ConfigError(
                f"max_hash_slot_num {given[0]} and max_index_num {given[1]} make index files of "
                f"{wanted} bytes, but {directory} holds files of {lengths[0]}; leave both unset to "
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
    source = "what is configured" if given else source
    advice = "" if given or newest or hints else _ADVICE
    doubts += [
        f"{path} has {nbytes} bytes, and neither that length nor its content tells its slots and "
        f"entries; {pair[0]} slots and {pair[1]} entries, a file of "
        f"{formats.index_file_nbytes(*pair)} bytes, are those of {source}{advice}"
        for path, nbytes in found
        # The newest may just have been made; where the state file tells the sizes, it says nothing.
        if nbytes not in by_nbytes and (nbytes or not (newest or hints) or path != found[-1][0])
    ]
    return GeometryChoice(pair, by_nbytes, doubts)


def _full_pairs(
    older: list[tuple[Path, int]], by_nbytes: dict[int, tuple[int, int]], root: Path
) -> Counter[tuple[int, int]]:
    """Count the pairs that ``older`` files tell by their entries, whatever their length is.

    A broker begins a new file when the one before is full, so each but the newest is; its header
    counts what it has room for. One whose header and entries disagree tells nothing, nor does a
    single one that tells a length which no file has.
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
    """Return the lengths that a file has because it was cut or grew, not because of its entries:
    another length has as many slots, and more files are ``full`` at it, or more agree on it, or
    what is known tells it, or it is longer."""
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
    """Raise ``ConfigError`` when the content of files of one length is against a given pair.

    Slots and entries of another pair lie elsewhere in a file of the same length: keys would not be
    found, and a writer would take good entries for damaged ones. A damaged file contradicts every
    pair, so another one must explain it clearly better.
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
            f"{paths[0].parent}; {best[0]} and {best[1]} explain it: configure these, or leave "
            "both unset to have them detected"
        )


def _looks_otherwise(path: Path, nbytes: int, pair: tuple[int, int], root: Path) -> bool:
    """Whether a file does not look like one of this geometry.

    Small files are looked at as a whole, of large ones the entries that the header names and the
    slot of the newest: the whole of a file of the default size takes a second.
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
    """Return the pair that explains the files of one length best; ``None`` when nothing does."""
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
    """The content of files of one length."""
    files = [MappedFile(path, 0, nbytes, root) for path in paths]
    try:
        yield [file.mapping for file in files]
    finally:
        for file in files:
            file.close()
