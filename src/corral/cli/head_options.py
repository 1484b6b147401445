"""Options that every command takes. They include the choice of the head that a command
calls."""

import os
import select
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.boot.settings import ClusterDir
from corral.wire.head_proof import INSECURE

if TYPE_CHECKING:
    from corral.client import AsyncClient, Client
    from corral.domain.errors import Conflict

DIR = Parameter(
    name="--dir",
    negative="",
    help="Directory of the cluster (default: the variable CORRAL_DIR, else ~/.corral).",
)
_JSON = Parameter(
    name="--json", negative="", show_default=False, help="Print the result as JSON."
)
_INSECURE = Parameter(
    name="--insecure",
    negative="",
    show_default=False,
    help="Allow an unsafe connection: send the token even without TLS, or to a head "
    "whose certificate is not verified. Otherwise such a connection is refused.",
)
_YES = Parameter(
    name=["--yes", "-y"],
    negative="",
    show_default=False,
    help="Do not ask for confirmation. Without a terminal, the command asks nothing and "
    "makes the change; a change that ends or removes something is not made if n is "
    "piped to standard input.",
)
_YESES = ("y", "yes")
_LONGEST_ANSWER = 200  # characters
# for a piped answer: `echo n | corral down` has written it long before
_ANSWER_SECONDS = 0.2
MOST = 1_000_000  # of what is counted on the command line; the head takes no more
MOST_ROWS = 10_000  # as many as one answer lists
Count = Annotated[int, Parameter(metavar="N", validator=Number(gte=0, lte=MOST))]
Ordinal = Annotated[int, Parameter(metavar="N", validator=Number(gte=1, lte=MOST))]


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
        """Return a client of the head at CORRAL_URL. If --dir is given or CORRAL_URL is
        not set, return a client of the head of the directory."""
        from corral.cli.token_expiry import TellingClient

        if self.remote:
            return TellingClient()
        return TellingClient(dir=self.place.root)

    def async_client(self) -> "AsyncClient":
        """Return an asyncio client of the same head as `client`."""
        from corral.client import AsyncClient

        if self.remote:
            return AsyncClient()
        return AsyncClient(dir=self.place.root)

    @property
    def remote(self) -> bool:
        """Return whether the command calls the head at CORRAL_URL: the variable is set,
        and no --dir is given."""
        return self.dir is None and bool(os.environ.get("CORRAL_URL"))


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Common):
    """Options of every command that changes something."""

    yes: Annotated[bool, _YES] = False

    @property
    def is_attended(self) -> bool:
        """Return whether a person can answer at a terminal."""
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def asks(self) -> bool:
        """Return whether the command asks the user before a change that ends no job and
        removes nothing. It never asks in a script."""
        return self.is_attended and self.asks_before_loss

    @property
    def asks_before_loss(self) -> bool:
        """Return whether the command asks before a change that ends or removes
        something; False with --yes or --json."""
        return not (self.yes or self.json)

    def agreed(self, question: str, *, destroys: bool = False) -> bool:
        """Ask whether to make a change, and return the answer; True if no question is
        needed. The end of a person's input (Ctrl-D) never agrees.

        Args:
            destroys: the change ends or removes something. Then the Enter key does not
                agree, and an answer that a script pipes in counts. A script without an
                answer agrees.

        Raises: Conflict if a script pipes in something other than yes or no.
        """
        if not (self.asks_before_loss if destroys else self.asks):
            return True
        if not self.is_attended:
            return _agreed_by_pipe(question)
        sys.stderr.write(f"{question} {'[y/N]' if destroys else '[Y/n]'} ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            sys.stderr.write("\n")
        answer = line.strip().lower()
        return answer in _YESES or (answer == "" and line != "" and not destroys)


def declined(outcome: str = "nothing was changed", *, hint: str = "") -> "Conflict":
    """Return the refusal for a question that was not answered with yes.

    Args:
        outcome: for example "nothing was stopped".
        hint: how to continue (default: how to avoid the question).
    """
    from corral.domain.errors import Conflict

    return Conflict(
        f"{outcome}: the question was not answered with yes",
        hint=hint or "answer y, or add --yes to skip the question",
    )


def _agreed_by_pipe(question: str) -> bool:
    """Return the answer in the pipe at standard input; True if the pipe is empty.

    Raises: Conflict if the line is not an answer, for example the next name of a list
    that a loop reads (`while read job; do corral stop $job; done`); the line is then
    lost from the list.
    """
    line = _line_piped()
    answer = line.strip().lower()
    if not line or answer in _YESES:
        return True
    if answer in ("", "n", "no"):
        return False
    from corral.domain.errors import Conflict

    raise Conflict(
        f"nothing was changed: standard input contains {line.strip()!r}, and not y or "
        f"n, as the answer to: {question}",
        hint="add -y, so that no question is asked",
    )


def _line_piped() -> str:
    """Return the line that waits in the pipe at standard input; "" if no line waits, or
    if standard input is not a pipe (a file, /dev/null, a terminal)."""
    try:
        descriptor = sys.stdin.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return ""
        ready, _, _ = select.select([descriptor], [], [], _ANSWER_SECONDS)
        return sys.stdin.readline(_LONGEST_ANSWER) if ready else ""
    except (AttributeError, OSError, ValueError):  # closed, or replaced by the caller
        return ""
