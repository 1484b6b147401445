"""Apply one change to several objects: try each one, and print each result."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from corral.cli import error_output
from corral.cli.printing import note
from corral.domain.errors import Refusal, Unauthorised

T = TypeVar("T")


def change_each(
    names: Iterable[str],
    parts: Callable[[str], Sequence[str]],
    call: Callable[[str], T],
    tell: Callable[[T], None],
    *,
    as_json: bool,
) -> tuple[list[T], int]:
    """Apply a change to several jobs. Return the answers, and one exit code for all of
    them.

    `parts` returns the ids to change for a name: for an array, those of its jobs.
    `call` changes one of them, and `tell` prints its answer. If a change is refused,
    the refusal is printed, and the remaining jobs are still tried. An array counts as
    refused only if every one of its jobs refused the change.
    """
    done_answers: list[T] = []
    code = error_output.DONE
    for name in dict.fromkeys(names):
        granted, refused = _apply_to_parts(name, parts, call)
        done_answers += granted
        if not as_json:
            for answer in granted:
                tell(answer)
        if refused and not granted:
            first_refusal = refused[0]
            error_output.tell(
                first_refusal.code,
                first_refusal.message,
                error_output.hint_of(first_refusal),
                as_json=as_json,
            )
            code = error_output.REFUSED
        else:
            for refusal in refused:
                note(refusal.message)
    return done_answers, code


def _apply_to_parts(
    name: str, parts: Callable[[str], Sequence[str]], call: Callable[[str], T]
) -> tuple[list[T], list[Refusal]]:
    """Apply the change to each part of `name`, such as the jobs of an array. Return
    (answers of the changed parts, refusals of the other parts)."""
    granted: list[T] = []
    refused: list[Refusal] = []
    try:
        name_parts = parts(name)
    except Unauthorised:
        raise  # every further call would be refused in the same way
    except Refusal as why:
        return granted, [why]
    for part_name in name_parts:
        try:
            granted.append(call(part_name))
        except Unauthorised:
            raise
        except Refusal as why:
            refused.append(why)
    return granted, refused
