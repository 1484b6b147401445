"""The commands completion install and completion show."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from corral.cli.printing import say

Shell = Literal["bash", "zsh", "fish"]


def install(
    *,
    shell: Shell | None = None,
    output: Path | None = None,
    startup: Annotated[bool, Parameter(negative="--no-startup")] = True,
) -> None:
    """Install shell completion for bash, zsh or fish.

    Args:
        shell: Shell to install completion for (default: the current shell).
        output: File to write the script to (default: where the shell looks for such
            scripts).
        startup: Also add a line to the shell's startup file that loads the script.
    """
    from cyclopts.completion.detect import ShellDetectionError

    from corral.cli.main import build
    from corral.domain.errors import SpecInvalid

    try:
        path = build().install_completion(
            shell=shell, output=output, add_to_startup=startup
        )
    except ShellDetectionError:
        raise SpecInvalid(
            "the current shell cannot be recognized",
            hint="name the shell: corral completion install --shell bash",
        ) from None
    say(f"installed {path}; completion works in every new shell")


def show(shell: Shell, /) -> None:
    """Print the completion script of a shell.

    Args:
        shell: Shell of the script: bash, zsh or fish.
    """
    from corral.cli.main import build

    print(build().generate_completion(shell=shell))
