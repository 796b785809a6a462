# Properties of a put as a dict that is checked. The messages are those of
# _reference/put_arguments.py.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from rs_formats cimport (
    RS_KEY_SEPARATOR,
    RS_NAME_VALUE_SEPARATOR,
    RS_PROPERTY_DELAY,
    RS_PROPERTY_KEYS,
    RS_PROPERTY_SEPARATOR,
    RS_PROPERTY_TAGS,
    RS_PROPERTY_UNIQUE_KEY,
    RS_PROPERTY_WAIT,
)
from rs_properties cimport rs_parse_int
from rs_put_text cimport rs_scratch, rs_scratch_pair, rs_utf8

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object thing)
    void PyErr_Clear()


cdef inline bytes rs_java_utf8(str text):
    """Encode as Java does: surrogate pairs are one character, an unpaired surrogate is ``?``."""
    cdef Py_ssize_t size = 0
    cdef const char *utf8 = rs_utf8(text, &size)
    if utf8 != NULL:
        return PyBytes_FromStringAndSize(utf8, size)
    PyErr_Clear()
    units = text.encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass").encode("utf-8", "replace")


cdef inline str rs_check_text(str what, object value):
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, not {type(value).__name__}")
    if "\x00" in value or "\x01" in value or "\x02" in value:
        raise ValueError(f"{what} {value!r} holds \\x00, \\x01 or \\x02")
    cdef str text = str.__str__(value)
    cdef Py_ssize_t size = 0
    if rs_utf8(text, &size) == NULL:
        PyErr_Clear()
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{what} {value!r} holds half a surrogate pair, which UTF-8 cannot store") from None
    return text


cdef inline int rs_check_relayed(list messages) except -1:
    """Raise for a record whose properties are not UTF-8: as text they would differ."""
    for message in messages:
        for item in message.properties_bytes.split(bytes([RS_PROPERTY_SEPARATOR])):
            try:
                item.decode()
            except UnicodeDecodeError:
                name = item.partition(bytes([RS_NAME_VALUE_SEPARATOR]))[0]
                raise ValueError(
                    f"property {name!r} of the record at offset {message.physical_offset} is not "
                    "UTF-8: a put would store other bytes than were read") from None
    return 0


cdef inline str rs_join_keys(object keys):
    from collections.abc import Iterable
    cdef str separator = RS_KEY_SEPARATOR.decode()
    cdef list items = []
    if isinstance(keys, str):
        return rs_check_text("keys", keys)
    if not isinstance(keys, Iterable):
        raise TypeError(f"keys must be str or an iterable of str, not {type(keys).__name__}")
    for key in keys:
        items.append(rs_check_text("a key", key))
        if not key or separator in key:
            raise ValueError(f"a key {key!r} is empty or holds a space")
    return separator.join(items)


cdef inline dict rs_check_properties(object properties):
    """Return a dict of the pairs, in their order; names and values are str."""
    cdef dict pairs = {}
    if properties is None:
        return pairs
    if not isinstance(properties, dict):
        from collections.abc import Mapping
        if not isinstance(properties, Mapping):
            raise TypeError(f"properties must be a mapping, not {type(properties).__name__}")
    for name, value in list(properties.items()):
        text = rs_check_text("a property name", name)
        if not text:
            raise ValueError("a property name is empty")
        pairs[text] = rs_check_text(f"property {name}", value)
    return pairs


cdef inline int rs_add_pair(dict pairs, const char *key, str value) except -1:
    cdef str name = key.decode()
    if name in pairs:
        raise ValueError(f"property {name} is given twice")
    pairs[name] = value
    return 0


cdef inline dict rs_gather_properties(object properties, object unique_key, object tags,
                                      object keys, bint waits, int64_t delay_level,
                                      object unique_key_maker):
    """Append the arguments to ``properties``, in stored order."""
    cdef dict pairs = rs_check_properties(properties)
    if unique_key is True:
        if unique_key_maker is None:
            raise ValueError("unique_key=True needs a unique_key_maker")
        if RS_PROPERTY_UNIQUE_KEY.decode() not in pairs:
            rs_add_pair(pairs, RS_PROPERTY_UNIQUE_KEY,
                        rs_check_text("unique_key", unique_key_maker()))
    elif unique_key is not None and unique_key is not False:
        rs_add_pair(pairs, RS_PROPERTY_UNIQUE_KEY, rs_check_text("unique_key", unique_key))
    if tags is not None:
        rs_add_pair(pairs, RS_PROPERTY_TAGS, rs_check_text("tags", tags))
    if keys is not None:
        rs_add_pair(pairs, RS_PROPERTY_KEYS, rs_join_keys(keys))
    if not waits:
        rs_add_pair(pairs, RS_PROPERTY_WAIT, "false")
    if delay_level > 0:
        rs_add_pair(pairs, RS_PROPERTY_DELAY, str(delay_level))
    return pairs


cdef inline int32_t rs_delay_level(dict pairs) except? -1:
    """Return the delay level, ``Integer.parseInt`` of ASCII digits; 0 if invalid or absent."""
    cdef bytes text
    value = pairs.get(RS_PROPERTY_DELAY.decode())
    if value is None:
        return 0
    text = rs_java_utf8(value)
    if len(text) > INT32_MAX:
        return 0
    return rs_parse_int(<const uint8_t *> PyBytes_AS_STRING(text), <int32_t> len(text))


cdef inline bint rs_wants_wait(dict pairs) except -1:
    """Return whether the producer waits for the flush (``WAIT`` absent or ``true``, any case)."""
    value = pairs.get(RS_PROPERTY_WAIT.decode())
    return value is None or (value.isascii() and value.lower() == "true")


cdef inline int rs_encode_pairs(rs_scratch *scratch, dict pairs,
                                bint trailing_separator) except -1:
    """Append the properties as stored; empty values are also written."""
    cdef bytes name, value
    cdef size_t start = scratch.used
    for key, text in pairs.items():
        name = rs_java_utf8(key)
        value = rs_java_utf8(text)
        if rs_scratch_pair(scratch, <const uint8_t *> PyBytes_AS_STRING(name),
                           <size_t> len(name), <const uint8_t *> PyBytes_AS_STRING(value),
                           <size_t> len(value)) < 0:
            raise MemoryError()
    if not trailing_separator and scratch.used > start:
        scratch.used -= 1
    return 0
