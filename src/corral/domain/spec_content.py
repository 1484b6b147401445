"""Large fields of a job's spec. All jobs of one submission can share them."""

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from corral.domain.job import CheckpointRule, JobSpec, Pairs
from corral.domain.placement_constraints import PlaceRule
from corral.domain.resources import Shape

LARGE_CHARACTERS: Final = 2_048  # a spec below it is stored whole with each of its jobs
SHAPE_CHARACTERS: Final = 100  # of an entry of any_of, roughly
PLACEHOLDER: Final = "-"  # in the place of a command that is stored elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecContent:
    """Fields of a JobSpec that may be large. Listings do not read them, and changes of
    a job do not set them."""

    run: str
    setup: str | None = None
    env: Pairs = ()
    secrets: tuple[str, ...] = ()
    any_of: tuple[Shape, ...] = ()
    place: PlaceRule = field(default_factory=PlaceRule)
    image: str | None = None
    checkpoint: CheckpointRule | None = None


NAMES: Final = tuple(SpecContent.__dataclass_fields__)
_VALUES: Final = attrgetter(*NAMES)
_NOTHING: Final = SpecContent(run=PLACEHOLDER)


def is_large(spec: JobSpec) -> bool:
    """Return whether the large fields of the spec are stored separately from its jobs."""
    return size_of(spec) >= LARGE_CHARACTERS


def content_of(spec: JobSpec) -> SpecContent:
    """Return the large fields of the spec."""
    return SpecContent(**dict(zip(NAMES, _VALUES(spec), strict=True)))


def without_content(spec: JobSpec, number: int) -> JobSpec:
    """Return the spec without its large fields. `number` is that of the record in which
    they are stored."""
    empty_fields = dict(zip(NAMES, _VALUES(_NOTHING), strict=True))
    return replace(spec, content_number=number, **empty_fields)


def without_commands(spec: JobSpec) -> JobSpec:
    """Return the spec without its commands and variables, for a process that makes
    decisions but starts no ranks."""
    return replace(spec, run=PLACEHOLDER, setup=None, env=())


def with_content(spec: JobSpec, content: SpecContent) -> JobSpec:
    """Return the spec with these large fields."""
    return replace(spec, **dict(zip(NAMES, _VALUES(content), strict=True)))


def size_of(spec: JobSpec) -> int:
    """Return the number of characters in the large fields."""
    size = len(spec.run) + len(spec.setup or "") + len(spec.image or "")
    size += sum(len(name) + len(value) for name, value in spec.env)
    size += sum(map(len, spec.secrets)) + SHAPE_CHARACTERS * len(spec.any_of)
    placement = spec.place
    size += sum(map(len, placement.apart_from)) + sum(
        len(str(constraint)) for constraint in placement.constraints
    )
    return size + (len(spec.checkpoint.path) if spec.checkpoint else 0)
