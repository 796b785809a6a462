"""``--redact``: bodies, keys and hosts as salted hashes, equal values alike within one page."""

from __future__ import annotations

import hashlib
import os
import re

#: IPv4 and IPv6 addresses, each also with a port.
_HOST = re.compile(
    r"\[[0-9a-fA-F:.%]{2,60}\](?::\d{1,5})?"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.])"
    r"|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){2,7}:?[0-9a-fA-F]{0,4}(?![\w:])"
    r"|(?<![\w:])(?:[0-9a-fA-F]{0,4}::)(?:[0-9a-fA-F]{1,4}:?){0,6}(?![\w:])"
)
#: What findings quote of messages.
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SALT_NBYTES = 16


class Redaction:
    """Replaces what a page must not show.

    Parameters
    ----------
    is_on : bool
        Otherwise all values stay.
    """

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on
        self._salt = os.urandom(_SALT_NBYTES)

    def value(self, value: str) -> str:
        """Return a key or host, or its hash."""
        if not self.is_on or not value:
            return value
        content = self._salt + value.encode("utf-8", "surrogatepass")
        return f"#{hashlib.sha256(content).hexdigest()[:12]}"

    def text(self, text: str, *, quotes: bool = False) -> str:
        """Return a sentence with its addresses replaced, with ``quotes`` also what it quotes."""
        if not self.is_on:
            return text
        if quotes:
            text = _QUOTED.sub(lambda found: self.value(found[0]), text)
        return _HOST.sub(lambda found: self.value(found[0]), text)
