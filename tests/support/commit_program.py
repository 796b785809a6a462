"""Commit a staged batch, and die by SIGKILL at one step: ``commit_program.py ARGUMENTS_JSON``."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import rocketstore
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.stage import StagedFile

arguments = json.loads(sys.argv[1])
left = arguments["times"]


def on_step(step: str) -> None:
    """Die at the wanted occurrence of the wanted step."""
    global left
    if step == arguments["step"]:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


files = [
    StagedFile(path, partition, rows, tuple(map(tuple, pieces)))
    for path, partition, rows, pieces in arguments["files"]
]
commit(
    Path(arguments["root"]),
    files,
    app=arguments["app"],
    version=arguments["version"],
    stage=arguments["stage"],
    config=rocketstore.MessageStoreConfig(**arguments["options"]),
    on_step=on_step,
)
