"""Which geometry explains the content of index files, also when some of them are damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.index_file import detect_geometry

#: A pair is believed while no more than one in so many keys speaks against it.
_CREDIBLE_SHARE = 4
#: Links of this many entries are enough to know slots by.
_LINKED_ENTRIES = 65_536


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
