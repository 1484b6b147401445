"""Files that users have uploaded for batches, and batches: files of requests that a job
sends to a service."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

from corral.domain.ids import JobId, QueueName, ServiceName, UserName

FileId = NewType("FileId", str)  # "file-" and hex digits
BatchId = NewType("BatchId", str)  # "batch_" and hex digits
KEPT_SECONDS: Final = 30 * 86_400.0  # that a file is kept after its upload
LEAST_WINDOW_SECONDS: Final = 60.0
MOST_WINDOW_SECONDS: Final = 7 * 86_400.0


class FilePurpose(StrEnum):
    """Use of a file."""

    BATCH = "batch"  # requests
    OUTPUT = "batch_output"  # answers, or errors


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """File that the head keeps. Times are seconds since 1970."""

    id: FileId
    owner: UserName
    name: str
    purpose: FilePurpose
    size_bytes: int
    created_at: float
    expires_at: float


class BatchStatus(StrEnum):
    """Status of a batch, with the words of OpenAI's API."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        return self in _OVER


_OVER: Final = frozenset(
    {
        BatchStatus.FAILED,
        BatchStatus.COMPLETED,
        BatchStatus.EXPIRED,
        BatchStatus.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """Numbers of a batch's lines, and of the tokens of those that are answered.

    Args:
        failed: Lines that ended with an error, with those that expired.
        expired: Lines without an answer at the deadline.
    """

    total: int = 0
    completed: int = 0
    failed: int = 0
    expired: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @property
    def left(self) -> int:
        return max(0, self.total - self.completed - self.failed)


@dataclass(frozen=True, slots=True)
class BatchFault:
    """Reason for which a batch is not valid. `line`: number in the file, from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None

    @property
    def text(self) -> str:
        """Return the message, with the line."""
        return (
            self.message if self.line is None else f"line {self.line}: {self.message}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Batch with its status. Times are seconds since 1970; None: not yet.

    Args:
        window: Time to the deadline, as the user has written it.
        queue: Queue of the job; None: the usual one.
        concurrency: Most requests at once; None: chosen by the program.
        checkpoint: Path in which answers are kept until the end; None: the shared path
            of the cluster.
        service: "" until the file is valid.
    """

    id: BatchId
    owner: UserName
    name: str
    input_file: FileId
    endpoint: str
    window: str
    created_at: float
    deadline: float
    metadata: tuple[tuple[str, str], ...] = ()
    queue: QueueName | None = None
    concurrency: int | None = None
    checkpoint: str | None = None
    status: BatchStatus = BatchStatus.VALIDATING
    service: ServiceName = ServiceName("")
    model: str = ""
    job: JobId | None = None
    counts: LineCounts = LineCounts()
    faults: tuple[BatchFault, ...] = ()
    output_file: FileId | None = None
    error_file: FileId | None = None
    in_progress_at: float | None = None
    finalizing_at: float | None = None
    cancelling_at: float | None = None
    ended_at: float | None = None
