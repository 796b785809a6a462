# Whether a record carries a key: what an exact search compares after the index gave its hits.
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from rs_formats cimport RS_KEY_SEPARATOR, rs_parsed_record
from rs_key_query cimport rs_take_ascii
from rs_properties cimport rs_find_properties, rs_property_values

cdef struct rs_wanted_key:
    const uint8_t* topic
    size_t topic_nbytes
    const uint8_t* key
    size_t key_nbytes
    bint unique  # UNIQ_KEY, otherwise one of KEYS


cdef inline bint rs_want_key(object topic, object key, bint unique, rs_wanted_key* wanted) noexcept:
    """Point at the texts, which must outlive ``wanted``; return False if one is not plain ASCII."""
    wanted.unique = unique
    return (rs_take_ascii(topic, &wanted.topic, &wanted.topic_nbytes)
            and rs_take_ascii(key, &wanted.key, &wanted.key_nbytes))


cdef inline bint rs_is_text(
    const uint8_t* p, size_t nbytes, const uint8_t* text, size_t text_nbytes
) noexcept nogil:
    return nbytes == text_nbytes and memcmp(p, text, nbytes) == 0


cdef inline bint rs_is_among(
    const uint8_t* p, const uint8_t* end, const rs_wanted_key* wanted
) noexcept nogil:
    """Return whether the key is one of the keys in a value of KEYS."""
    cdef const uint8_t* stop
    while True:
        stop = <const uint8_t*>memchr(p, RS_KEY_SEPARATOR[0], <size_t>(end - p))
        if rs_is_text(p, <size_t>((end if stop == NULL else stop) - p), wanted.key,
                      wanted.key_nbytes):
            return True
        if stop == NULL:
            return False
        p = stop + 1


cdef inline bint rs_carries(
    const uint8_t* record, const rs_parsed_record* row, const rs_wanted_key* wanted
) noexcept nogil:
    """Return whether a record that passed rs_check has the topic and carries the key."""
    cdef rs_property_values values
    if not rs_is_text(record + row.topic_at, <size_t>row.topic_nbytes, wanted.topic,
                      wanted.topic_nbytes):
        return False
    rs_find_properties(record, row.properties_at, row.properties_nbytes, &values)
    if wanted.unique:
        return values.unique_key_at >= 0 and rs_is_text(
            record + values.unique_key_at, <size_t>values.unique_key_nbytes, wanted.key,
            wanted.key_nbytes)
    return values.keys_at >= 0 and rs_is_among(
        record + values.keys_at, record + values.keys_at + values.keys_nbytes, wanted)
