"""Output of errors as text and as JSON, and the exit code of each kind of error."""

import json
import os
import sys
from typing import Final

from corral.cli.printing import clean
from corral.domain.errors import Bug, CorralError, Refusal, TokenExpired, TokenRevoked
from corral.domain.users import JOIN_LINE

DONE: Final = 0
JOB_FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
UNREACHABLE: Final = 4
BUG: Final = 70  # EX_SOFTWARE
INTERRUPTED: Final = 130


class Usage(Exception):
    """The arguments of the command line are not valid."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def exit_code_of(error: CorralError) -> int:
    if isinstance(error, Refusal):
        return REFUSED
    return BUG if isinstance(error, Bug) else UNREACHABLE


def hint_of(error: CorralError) -> str:
    """Return the hint of an error, with advice for the owner of the cluster's
    directory.

    The advice is added if the token in that directory is revoked or expired. It is not
    added for a join token, or if CORRAL_URL or CORRAL_TOKEN is set.
    """
    set_variables = {"CORRAL_URL", "CORRAL_TOKEN"} & os.environ.keys()
    ours = (
        isinstance(error, TokenRevoked | TokenExpired) and JOIN_LINE not in error.hint
    )
    if set_variables or not ours:
        return error.hint
    return (
        f"{error.hint}; or, if the cluster's directory is yours: stop its head (kill "
        "the pid in head.json), delete the file `token` in the directory, and run: "
        "corral up"
    )


def tell(code: str, message: str, hint: str, *, as_json: bool) -> None:
    """Print an error to stderr: its message, and a hint with the next command. With
    `as_json`, print both and the error's code as JSON."""
    if as_json:
        error = {"error": {"code": code, "message": message, "hint": hint}}
        print(json.dumps(error, ensure_ascii=False), file=sys.stderr)
        return
    print(f"corral: {clean(message)}", file=sys.stderr)
    if hint:
        print(f"  {clean(hint)}", file=sys.stderr)
