"""Submissions in the form in which they are stored: the jobs of an array are one spec
with indices, and large fields are stored once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Final

from corral.domain.job import JobSpec
from corral.domain.requests import Submit
from corral.domain.spec_content import (
    SpecContent,
    content_of,
    is_large,
    with_content,
    without_content,
)

_OF_EACH_JOB: Final = frozenset({"name", "array_index"})
_COMMON: Final = attrgetter(
    *(field.name for field in fields(JobSpec) if field.name not in _OF_EACH_JOB)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Consecutive jobs that share one spec. `spec` is the spec of the first job;
    `indices` are the array indices of the jobs, empty if it is not an array."""

    spec: JobSpec
    indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A submit request in its stored form."""

    folds: tuple[Fold, ...]
    key: str
    held: bool = False

    @property
    def has_contents(self) -> bool:
        """Return whether large fields of the submission are stored in separate records."""
        return any(fold.spec.content_number is not None for fold in self.folds)


def folded(asked: Submit) -> tuple[Submission, list[SpecContent]]:
    """Return (the submission as it is stored, the records of its large fields)."""
    numbers: dict[SpecContent, int] = {}
    folds = []
    for fold in _fold_array_jobs(asked):
        spec = fold.spec
        if is_large(spec):
            number = numbers.setdefault(content_of(spec), len(numbers))
            fold = replace(fold, spec=without_content(spec, number))
        folds.append(fold)
    return Submission(folds=tuple(folds), key=asked.key, held=asked.held), list(numbers)


def _fold_array_jobs(asked: Submit) -> Iterator[Fold]:
    """Yield the jobs as folds: consecutive jobs that differ only in their array index
    are one fold."""
    first_spec: JobSpec | None = None
    common: object = None
    indices: list[int] = []
    for spec in asked.specs:
        own_fields = _COMMON(spec)
        index = spec.array_index
        is_next = (
            index is not None
            and indices
            and index > indices[-1]
            and own_fields == common
        )
        if (
            first_spec is not None
            and is_next
            and spec.name == f"{first_spec.kin}_{index}"
        ):
            indices.append(index)  # type: ignore[arg-type]
            continue
        if first_spec is not None:
            yield Fold(spec=first_spec, indices=tuple(indices))
        is_indexed = index is not None and spec.kin != spec.name
        first_spec, common, indices = spec, own_fields, [index] if is_indexed else []  # type: ignore[list-item]
    if first_spec is not None:
        yield Fold(spec=first_spec, indices=tuple(indices))


def unfolded(submission: Submission, contents: Mapping[int, SpecContent]) -> Submit:
    """Return a stored submission as the original request. Its jobs share their fields.

    Args:
        contents: large fields by number. Their records no longer exist once every job
            of the submission is forgotten.
    """
    specs: list[JobSpec] = []
    for fold in submission.folds:
        spec = fold.spec
        if spec.content_number is not None and spec.content_number in contents:
            spec = with_content(spec, contents[spec.content_number])
        if not fold.indices:
            specs.append(spec)
        stem = spec.kin
        specs += (
            replace(spec, name=f"{stem}_{index}", array_index=index)
            for index in fold.indices
        )
    return Submit(specs=tuple(specs), key=submission.key, held=submission.held)
