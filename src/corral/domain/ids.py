"""Types of ids and names. Each kind has a type of its own, so that no two can be mixed
up."""

import re
from typing import Final, NewType

JobId = NewType("JobId", str)  # "j17": given by the head, never used again
NodeId = NewType("NodeId", str)
UserName = NewType("UserName", str)
TokenId = NewType("TokenId", str)  # names a token without being one
QueueName = NewType("QueueName", str)
ServiceName = NewType("ServiceName", str)
ClusterId = NewType("ClusterId", str)
BootId = NewType("BootId", str)  # changes with each boot; earlier processes are gone
# from 1; it is also the epoch that fences an attempt
AttemptNumber = NewType("AttemptNumber", int)
Sequence = NewType("Sequence", int)  # order in which requests were acknowledged

NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_ID: Final = re.compile(r"j(\d{1,15})(?:_\d{1,9}){0,2}", re.ASCII)
NAME_RULE: Final = (
    "1 to 63 letters, digits, dots, dashes or underscores, beginning and ending with a letter "
    "or digit"
)


def is_name(text: str) -> bool:
    """Whether the text may name a job, a node, a queue, a user or a secret."""
    return NAME.fullmatch(text) is not None


def job_id(sequence: int) -> JobId:
    """Return the id of the job with this sequence number."""
    return JobId(f"j{sequence}")


def sequence_of(id: str) -> int | None:
    """Return the sequence number in the id of a job or an array; None if the text is no
    such id."""
    match = _ID.fullmatch(id)
    return int(match.group(1)) if match else None
