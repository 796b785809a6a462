"""Hosts as stored (address bytes, then the port in four bytes) and as text."""

from __future__ import annotations

import ipaddress
import re

from rocketstore import formats
from rocketstore._reference.arguments import Buffer, check_int64, readable

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):([0-9]{1,5})")


def parse_host(host: str, /) -> bytes:
    """Return the 8 or 20 stored bytes of ``"10.0.0.1:1234"`` or ``"[2001:db8::1]:1234"``."""
    if not isinstance(host, str):
        raise TypeError(f"a host must be str, not {type(host).__name__}")
    match = _HOST.fullmatch(host)
    try:
        if match is None or int(match.group(3)) > 65535:
            raise ValueError
        six, four, port = match.groups()
        address = ipaddress.IPv6Address(six) if six else ipaddress.IPv4Address(four)
    except ValueError:
        raise ValueError(
            f"host {host!r} is not like '10.0.0.1:1234' or '[2001:db8::1]:1234'"
        ) from None
    return address.packed + int(port).to_bytes(4, "big")


def _stored_host(data: Buffer) -> bytes:
    host = bytes(readable(data))
    if len(host) not in (formats.HOST_V4.nbytes, formats.HOST_V6.nbytes):
        raise ValueError(f"a stored host has 8 or 20 bytes, not {len(host)}")
    return host


def _format_v6(address: bytes) -> str:
    """Return hexadecimal groups; the first longest run of two or more zero groups is ``::``."""
    groups = [f"{int.from_bytes(address[at : at + 2], 'big'):x}" for at in range(0, 16, 2)]
    longest = max(re.finditer("00+", _zeros(groups)), key=_length, default=None)
    if longest is None:
        return ":".join(groups)
    first, last = longest.start(), longest.end()
    return ":".join(groups[:first]) + "::" + ":".join(groups[last:])


def _zeros(groups: list[str]) -> str:
    return "".join("0" if group == "0" else "x" for group in groups)


def _length(run: re.Match[str]) -> int:
    return run.end() - run.start()


def format_host(data: Buffer, /) -> str:
    """Return the text of a stored host; the port is shown as it is stored."""
    host = _stored_host(data)
    address, port = host[:-4], int.from_bytes(host[-4:], "big", signed=True)
    if len(address) == formats.HOST_V4.fields[0].nbytes:
        return ".".join(map(str, address)) + f":{port}"
    return f"[{_format_v6(address)}]:{port}"


def message_id(store_host: Buffer, physical_offset: int, /) -> str:
    """Return the offsetMsgId: upper-case hex of the stored host and the offset."""
    host = _stored_host(store_host)
    check_int64(physical_offset)
    return (host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()
