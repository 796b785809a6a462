"""A process that writes several stores until it is killed; acknowledgements on standard output.

Usage: ``python writer.py PLAN``, where PLAN is a JSON file with a list of stores: root, options and
script. Each line of output is one write that was answered: the store's number and the answer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from interop import ours
from interop.workload import FEATURES, Job

#: A store that lags has not dispatched what lies in up to this many log files; a writer under a
#: 5.4 dialect waits if it is more.
MOST_FILES_BEHIND = 8


def acknowledge(number: int, answer: dict[str, Any]) -> None:
    """Write the line with one call, so that it is whole or was never acknowledged."""
    os.write(1, json.dumps({"job": number, "answer": answer}).encode() + b"\n")


def write(number: int, plan: dict[str, Any]) -> None:
    """Write one store."""
    job = Job(
        plan["seed"],
        plan["version"],
        FEATURES[plan["feature"]],
        plan["config"],
        tuple(plan["script"]),
    )
    writing = ours.Writing(Path(plan["root"]), "x", job, start=not plan["lag"])
    limit = MOST_FILES_BEHIND * int(job.config["mappedFileSizeCommitLog"])
    for op in job.script:
        # What is not dispatched is not deleted either.
        is_kept = op["op"] == "expire" or writing.store.dispatch_behind_nbytes > limit
        answer = {} if plan["lag"] and is_kept else writing.put(op)
        acknowledge(number, answer)
    # The store stays open until the process is killed.
    time.sleep(600)


def main() -> None:
    """Write all stores of the plan beside one another."""
    plans = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    writing = [threading.Thread(target=write, args=row) for row in enumerate(plans)]
    for thread in writing:
        thread.start()
    for thread in writing:  # from Python 3.12 on no thread begins once the main one has ended
        thread.join()


if __name__ == "__main__":
    main()
