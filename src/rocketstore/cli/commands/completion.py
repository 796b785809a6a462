"""``rocketstore completion``: a shell script that completes commands, options and topics."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

PROGRAM = "rocketstore"
COMPLETE_VARIABLE = "_ROCKETSTORE_COMPLETE"


class Shell(StrEnum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that makes a shell complete commands, options and the topics of a store.

    `rocketstore --install-completion` installs it for the current shell.

    \b
    Examples:
      rocketstore completion bash > ~/.local/share/bash-completion/completions/rocketstore
      rocketstore completion zsh > ~/.zfunc/_rocketstore
      rocketstore completion fish > ~/.config/fish/completions/rocketstore.fish
    """
    typer.echo(
        get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value)
    )
