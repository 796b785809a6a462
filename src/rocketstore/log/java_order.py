"""Properties of records that a broker writes again, in the order of its hash map."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rocketstore import formats, kernels

_NAME_VALUE = bytes([formats.NAME_VALUE_SEPARATOR])
_PAIR = bytes([formats.PROPERTY_SEPARATOR])


def rewritten(
    properties_text: bytes,
    *,
    set: Mapping[str, str] = {},
    remove: Collection[str] = (),
    buckets: int,
    trailing: bool,
) -> bytes:
    """Return stored properties as a broker stores them in a new record.

    A broker parses them into a hash map, changes the map, and writes what the map holds. Names and
    values keep their bytes. Unlike a broker, this keeps properties with an empty value (D-51).

    Parameters
    ----------
    properties_text : bytes
        As in a record.
    set : mapping of str to str
        Added or replaced, in this order. A name that exists keeps its place.
    remove : collection of str
        Names that are not written. The map had them, so they count for its size.
    buckets, trailing : int, bool
        ``Dialect.property_buckets`` and ``Dialect.trailing_separator``.

    Raises
    ------
    ValueError
        For properties of more than 32767 bytes.

    Notes
    -----
    Threading: any thread.
    """
    text = properties_text
    if set:
        added = [
            name.encode(errors="replace") + _NAME_VALUE + value.encode(errors="replace") + _PAIR
            for name, value in set.items()
        ]
        text = b"".join([text, b"" if text.endswith(_PAIR) else _PAIR, *added])
    ordered: bytes = kernels.message.reordered_properties(text, buckets, trailing)
    if not remove:
        return ordered
    gone = {name.encode(errors="replace") for name in remove}
    kept = [
        pair for pair in ordered.split(_PAIR) if pair and pair.partition(_NAME_VALUE)[0] not in gone
    ]
    return _PAIR.join([*kept, b""] if trailing and kept else kept)
