"""``python stream_writer.py STORE COUNT``: puts small groups of messages; segments roll."""

from __future__ import annotations

import contextlib
import sys
import time

import rocketstore
from rocketstore.files.durable import ReplacedFileError
from support.stream_store import SEGMENT_NBYTES, message


def main() -> None:
    """Put all, in groups of ten with a pause between."""
    root, count = sys.argv[1], int(sys.argv[2])
    # Tests delete segments that were read; closing may notice that.
    with (
        contextlib.suppress(ReplacedFileError),
        rocketstore.open(root, "a", mapped_file_size_commit_log=SEGMENT_NBYTES) as store,
    ):
        for first in range(0, count, 10):
            assert store.put_many([message(n) for n in range(first, first + 10)]).ok
            time.sleep(0.01)


if __name__ == "__main__":
    main()
