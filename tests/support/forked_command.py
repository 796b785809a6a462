"""The command line in a fork of the test's process: real descriptors, nothing imported again."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

from rocketstore import cli

_MODES = ("r", "w", "w")


def run_forked(words: list[str], redirections: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command whose streams are redirected as a shell does it.

    ``redirections``: words like ``<&-``, ``2>&-`` or ``>/dev/full``.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                _redirect(out.fileno(), err.fileno(), redirections.split())
                code = _run(words)
            except BaseException:  # noqa: BLE001 - sent to the parent
                os.write(err.fileno(), traceback.format_exc().encode())
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        texts = [os.pread(file.fileno(), 1 << 24, 0).decode() for file in (out, err)]
    return os.waitstatus_to_exitcode(status), texts[0], texts[1]


def _redirect(out: int, err: int, redirections: list[str]) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, source in enumerate((null, out, err)):
        os.dup2(source, descriptor)
    os.close(null)
    for word in redirections:
        sign = "<" if "<" in word else ">"
        number, _, target = word.partition(sign)
        descriptor = int(number or sign == ">")
        if target == "&-":
            os.close(descriptor)
        else:
            file = os.open(target, os.O_WRONLY)
            os.dup2(file, descriptor)
            os.close(file)


def _run(words: list[str]) -> int:
    """What the interpreter does: ``None`` for what is closed, and everything flushed at the end."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = None
        if os.path.exists(f"/proc/self/fd/{descriptor}"):
            mode = _MODES[descriptor]
            stream = open(descriptor, mode, closefd=False)  # noqa: SIM115 - to the end
        setattr(sys, name, stream)
    sys.argv = ["rocketstore", *words]
    code: object = 0
    try:
        cli.main()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    assert isinstance(code, int), code
    return code
