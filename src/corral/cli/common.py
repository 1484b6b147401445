"""What every command takes, and how it finds its head."""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.boot.settings import ClusterDir
from corral.wire.proof import INSECURE

if TYPE_CHECKING:
    from corral.client import AsyncClient, Client

DIR = Parameter(
    name="--dir", negative="", help="The cluster's directory (else CORRAL_DIR, else ~/.corral)."
)
_JSON = Parameter(name="--json", negative="", show_default=False, help="Answer in JSON.")
_INSECURE = Parameter(
    name="--insecure",
    negative="",
    show_default=False,
    help="Send the token also without TLS, and to a head that has not proven itself.",
)
_YES = Parameter(
    name=["--yes", "-y"],
    negative="",
    show_default=False,
    help="Do not ask. A script that stops or removes something needs it, or pipes an answer in.",
)
_LONGEST_ANSWER = 200  # characters
MOST = 1_000_000  # of what is counted on the command line; the head takes no more
MOST_ROWS = 10_000  # as many as one answer lists
Count = Annotated[int, Parameter(validator=Number(gte=0, lte=MOST))]
Ordinal = Annotated[int, Parameter(validator=Number(gte=1, lte=MOST))]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """Options of every command."""

    dir: Annotated[Path | None, DIR] = None
    json: Annotated[bool, _JSON] = False
    insecure: Annotated[bool, _INSECURE] = False

    def __post_init__(self) -> None:
        if self.insecure:
            os.environ[INSECURE] = "1"

    @property
    def place(self) -> ClusterDir:
        return ClusterDir.chosen(self.dir)

    def client(self) -> "Client":
        """The head of CORRAL_URL, unless a directory is named; else the directory's."""
        from corral.cli.token_end import TellingClient

        if self.remote:
            return TellingClient()
        return TellingClient(dir=self.place.root)

    def async_client(self) -> "AsyncClient":
        """The same head, from asyncio."""
        from corral.client import AsyncClient

        if self.remote:
            return AsyncClient()
        return AsyncClient(dir=self.place.root)

    @property
    def remote(self) -> bool:
        """Whether the head is looked after by somebody else."""
        return self.dir is None and bool(os.environ.get("CORRAL_URL"))


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Common):
    """Options of every command that changes something."""

    yes: Annotated[bool, _YES] = False

    @property
    def is_attended(self) -> bool:
        """Whether a person sits at a terminal."""
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def asks(self) -> bool:
        """Whether a question comes before a change that ends nothing: never in a script."""
        return self.is_attended and self.asks_before_loss

    @property
    def asks_before_loss(self) -> bool:
        """Whether a question comes before a change that ends or removes something."""
        return not (self.yes or self.json)

    def agreed(self, question: str, *, destroys: bool = False) -> bool:
        """Ask whether to make a change. The end of the input (Ctrl-D) never agrees.

        Args:
            destroys: something ends or is removed by the change. Then Enter does not agree, and a
                script is asked too: its answer is a line of its standard input.

        Raises: Conflict where a script has no answer.
        """
        if not (self.asks_before_loss if destroys else self.asks):
            return True
        sys.stderr.write(f"{question} {'[y/N]' if destroys else '[Y/n]'} ")
        sys.stderr.flush()
        line = _line_typed() if self.is_attended else _line_piped()
        answer = line.strip().lower()
        return answer in ("y", "yes") or (answer == "" and line != "" and not destroys)


def _line_typed() -> str:
    """Return the line that a person types; "" at the end of the input."""
    line = sys.stdin.readline()
    if not line:
        sys.stderr.write("\n")
    return line


def _line_piped() -> str:
    """Return the next line of the input of a script. Nobody is waited for at a terminal, which
    does not show the question here. Raises: Conflict where no line comes."""
    line = ""
    if sys.stdin is not None and not sys.stdin.isatty():
        with contextlib.suppress(OSError, ValueError):
            line = sys.stdin.readline(_LONGEST_ANSWER)
    sys.stderr.write("\n")
    if not line:
        raise _unanswered()
    return line


def _unanswered() -> Exception:
    from corral.domain.errors import Conflict

    return Conflict(
        "nothing was changed: there is no answer to the question",
        hint="to go on without a question, add -y",
    )
