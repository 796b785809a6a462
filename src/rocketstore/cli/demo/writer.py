"""The process that ``rocketstore demo`` kills: it writes until then, and prints acknowledged puts.

``python -m rocketstore.cli.demo.writer PATH``
"""

from __future__ import annotations

import sys

from rocketstore.store.default_message_store import open as open_store

_PER_LINE = 50


def main(path: str) -> None:
    """Put messages forever; print the log offset of each acknowledged one."""
    with open_store(path, "r+") as store:
        number = 0
        while True:
            offsets = []
            for _ in range(_PER_LINE):
                result = store.put("Killed", b"message %d" % number, number % 4, keys=f"k{number}")
                if not result.ok:
                    raise SystemExit(f"put answered {result.status.name}")
                offsets.append(str(result.physical_offset))
                number += 1
            print(" ".join(offsets), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
