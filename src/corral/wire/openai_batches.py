"""Files and batches in the form of OpenAI's API. Fields of Corral's own are under
`corral`."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corral.domain.batch import (
    LEAST_WINDOW_SECONDS,
    MOST_WINDOW_SECONDS,
    Batch,
    BatchStatus,
    FilePurpose,
    LineCounts,
    StoredFile,
)
from corral.domain.errors import SpecInvalid
from corral.domain.units import seconds_of
from corral.wire.field_readers import shown

MOST_METADATA = 16
Name = Annotated[str, Field(max_length=200)]


class FileObject(BaseModel):
    """A file. Times are whole seconds since 1970."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: FilePurpose
    status: Literal["processed"] = "processed"

    @classmethod
    def of(cls, file: StoredFile) -> Self:
        return cls(
            id=file.id,
            bytes=file.size_bytes,
            created_at=int(file.created_at),
            expires_at=int(file.expires_at),
            filename=file.name,
            purpose=file.purpose,
        )


class FileList(BaseModel):
    """A page of files."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    has_more: bool
    first_id: str | None
    last_id: str | None


class FileDeleted(BaseModel):
    """A file that was removed."""

    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


class BatchExtras(BaseModel):
    """Fields of a batch that OpenAI's API does not have.

    Args:
        service: Name of the service, for lines that name no model; None: that of the
            lines' model.
        name: Name of the file from which the job is named.
        concurrency: Most requests at once; None: chosen by the program.
        checkpoint: Path in which answers are kept until the end.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, fields: object) -> object:
        for name in fields if isinstance(fields, dict) else ():
            if name not in cls.model_fields:
                allowed = ", ".join(cls.model_fields)
                raise ValueError(f"{shown(name)} is not one of its fields: {allowed}")
        return fields

    service: Name | None = None
    name: Name = ""
    queue: Name | None = None
    concurrency: Annotated[int, Field(ge=1, le=512)] | None = None
    checkpoint: Annotated[str, Field(max_length=4096)] | None = None


class BatchCreate(BaseModel):
    """A batch to create. Fields that are not known are passed over, as those of newer
    clients."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    input_file_id: Name
    endpoint: Name
    completion_window: Annotated[str, Field(max_length=20)]
    metadata: (
        Annotated[
            dict[
                Annotated[str, Field(max_length=64)],
                Annotated[str, Field(max_length=512)],
            ],
            Field(max_length=MOST_METADATA),
        ]
        | None
    ) = None
    corral: BatchExtras = BatchExtras()

    @property
    def window_seconds(self) -> float:
        """Return the time to the deadline. Raises: SpecInvalid."""
        try:
            seconds = seconds_of(self.completion_window)
        except ValueError:
            seconds = 0.0
        if not LEAST_WINDOW_SECONDS <= seconds <= MOST_WINDOW_SECONDS:
            raise SpecInvalid(
                f"completion_window {self.completion_window!r} is not a time from 1m to "
                "7d",
                hint="write, for example: 24h",
            )
        return seconds


class BatchProgressBody(BaseModel):
    """Progress that the program of a batch reports."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    state: Annotated[str, Field(max_length=20)]
    lines: Annotated[int, Field(ge=0, le=10**9)]
    done: Annotated[int, Field(ge=0, le=10**9)]
    failed: Annotated[int, Field(ge=0, le=10**9)]
    expired: Annotated[int, Field(ge=0, le=10**9)]
    prompt_tokens: Annotated[int, Field(ge=0, le=2**60)]
    completion_tokens: Annotated[int, Field(ge=0, le=2**60)]
    cached_tokens: Annotated[int, Field(ge=0, le=2**60)]
    unfinished: Annotated[int, Field(ge=0, le=10**9, alias="unanswered")]
    lines_per_second: Annotated[float, Field(ge=0)]
    tokens_left: Annotated[float, Field(ge=0)]
    is_behind: bool

    @property
    def present_tokens_per_second(self) -> float:
        """Return the rate of the last lines, in tokens of a mean line."""
        return self.lines_per_second * self.tokens_left / max(1, self.unfinished)

    @property
    def counts(self) -> LineCounts:
        return LineCounts(
            total=self.lines,
            completed=self.done,
            failed=self.failed + self.expired,
            expired=self.expired,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.completion_tokens,
        )


class BatchProgressTaken(BaseModel):
    """Answer to a report of progress: the status of the batch."""

    status: BatchStatus


class BatchErrorObject(BaseModel):
    """Reason for which a batch is not valid."""

    code: str
    message: str
    line: int | None
    param: str | None


class BatchErrors(BaseModel):
    """All reasons for which a batch is not valid."""

    object: Literal["list"] = "list"
    data: list[BatchErrorObject]


class RequestCounts(BaseModel):
    """Numbers of the requests of a batch."""

    total: int
    completed: int
    failed: int


class BatchFacts(BaseModel):
    """Fields of a batch that OpenAI's API does not have."""

    name: str
    owner: str
    service: str
    job: str | None


class BatchObject(BaseModel):
    """A batch. Times are whole seconds since 1970."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: dict[str, Any]
    metadata: dict[str, str] | None
    corral: BatchFacts

    @classmethod
    def of(cls, batch: Batch) -> Self:
        counts = batch.counts

        def ended(status: BatchStatus) -> int | None:
            return _whole(batch.ended_at) if batch.status is status else None

        return cls(
            id=batch.id,
            endpoint=batch.endpoint,
            model=batch.model or None,
            errors=_errors(batch),
            input_file_id=batch.input_file,
            completion_window=batch.window,
            status=batch.status,
            output_file_id=batch.output_file,
            error_file_id=batch.error_file,
            created_at=int(batch.created_at),
            in_progress_at=_whole(batch.in_progress_at),
            expires_at=int(batch.deadline),
            finalizing_at=_whole(batch.finalizing_at),
            completed_at=ended(BatchStatus.COMPLETED),
            failed_at=ended(BatchStatus.FAILED),
            expired_at=ended(BatchStatus.EXPIRED),
            cancelling_at=_whole(batch.cancelling_at),
            cancelled_at=ended(BatchStatus.CANCELLED),
            request_counts=RequestCounts(
                total=counts.total, completed=counts.completed, failed=counts.failed
            ),
            usage={
                "input_tokens": counts.prompt_tokens,
                "input_tokens_details": {"cached_tokens": counts.cached_tokens},
                "output_tokens": counts.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": counts.prompt_tokens + counts.output_tokens,
            },
            metadata=dict(batch.metadata) or None,
            corral=BatchFacts(
                name=batch.name,
                owner=batch.owner,
                service=batch.service,
                job=batch.job,
            ),
        )


class BatchList(BaseModel):
    """A page of batches, the newest first."""

    object: Literal["list"] = "list"
    data: list[BatchObject]
    has_more: bool
    first_id: str | None
    last_id: str | None


def _whole(at: float | None) -> int | None:
    return None if at is None else int(at)


def _errors(batch: Batch) -> BatchErrors | None:
    if not batch.faults:
        return None
    return BatchErrors(
        data=[
            BatchErrorObject(
                code=fault.code,
                message=fault.message,
                line=fault.line,
                param=fault.param,
            )
            for fault in batch.faults
        ]
    )
