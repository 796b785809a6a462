# Hosts as text and as stored; message ids.
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, strlen

from rs_bytes cimport rs_load_be32, rs_store_be64
from rs_copy cimport rs_copied_buffer
from rs_formats cimport RS_HOST_V4_NBYTES, RS_HOST_V6_NBYTES, RS_HOST_V6_PORT_AT

cdef extern from "rs_hosts.h" nogil:
    int rs_parse_port(const char* p, uint8_t* stored)
    int rs_parse_host_v4(const char* text, uint8_t* host)


cdef inline bytes rs_parse_host_v6(str host):
    """Parse ``[2001:db8::1]:1234`` with Python's own parser, since it is rare; None if invalid."""
    import ipaddress

    cdef uint8_t[4] port
    address, closing, rest = host[1:].partition("]")
    if host[:1] != "[" or not closing or "%" in address or not rest.isascii():
        return None
    text = rest.encode()
    if not rs_parse_port(text, port):
        return None
    try:
        return ipaddress.IPv6Address(address).packed + port[:4]
    except ValueError:
        return None


cdef inline bytes rs_parse_host(object host):
    """Return the 8 or 20 stored bytes of a host."""
    cdef uint8_t[RS_HOST_V4_NBYTES] stored
    cdef Py_ssize_t length = 0
    cdef const char* text
    cdef bytes result = None
    if not PyUnicode_Check(host):
        raise TypeError(f"a host must be str, not {type(host).__name__}")
    if host.isascii():
        text = PyUnicode_AsUTF8AndSize(host, &length)
        if strlen(text) == <size_t>length:
            if rs_parse_host_v4(text, stored):
                return PyBytes_FromStringAndSize(<char*>stored, RS_HOST_V4_NBYTES)
            result = rs_parse_host_v6(str(host))
    if result is None:
        raise ValueError(f"host {host!r} is not like '10.0.0.1:1234' or '[2001:db8::1]:1234'")
    return result


cdef inline bytes rs_stored_host(object data):
    """Return a caller's stored host, checked."""
    cdef bytes host = rs_copied_buffer(data)
    if len(host) not in (RS_HOST_V4_NBYTES, RS_HOST_V6_NBYTES):
        raise ValueError(f"a stored host has 8 or 20 bytes, not {len(host)}")
    return host


cdef inline str rs_format_v6(const uint8_t* address):
    """Return hexadecimal groups; the first longest run of two or more zero groups is ``::``."""
    cdef int at, group, run = 0, longest_at = 0, longest = 1
    cdef list groups = []
    for at in range(RS_HOST_V6_PORT_AT // 2):
        group = address[2 * at] << 8 | address[2 * at + 1]
        groups.append(f"{group:x}")
        if group == 0:
            run += 1
        else:
            run = 0
        if run > longest:
            longest_at = at + 1 - run
            longest = run
    if longest == 1:
        return ":".join(groups)
    return ":".join(groups[:longest_at]) + "::" + ":".join(groups[longest_at + longest:])


cdef inline str rs_format_host(const uint8_t* host, Py_ssize_t nbytes):
    """Return the text of a stored host; the port is shown as stored."""
    cdef int32_t port = rs_load_be32(host + nbytes - 4)
    if nbytes == RS_HOST_V4_NBYTES:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}:{port}"
    return f"[{rs_format_v6(host)}]:{port}"


cdef inline str rs_message_id(const uint8_t* host, Py_ssize_t nbytes, int64_t physical_offset):
    """Return the offsetMsgId: upper-case hex of the stored host and the offset."""
    cdef uint8_t[RS_HOST_V6_NBYTES + 8] identifier
    memcpy(identifier, host, <size_t>nbytes)
    rs_store_be64(identifier + nbytes, physical_offset)
    return (<bytes>identifier[:nbytes + 8]).hex().upper()
