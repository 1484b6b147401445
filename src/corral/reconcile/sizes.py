"""Sizes in which a job may go on: by its spec, and by what its newest save fits."""

from collections.abc import Sequence

from corral.domain.attempt import Attempt, Seat
from corral.domain.event_kind import EventKind
from corral.domain.job import Job
from corral.domain.resources import Shape
from corral.reconcile.changeset import Draft


def allowed_shapes(draft: Draft, job: Job) -> tuple[Shape, ...]:
    """Return the shapes in which the next attempt of the job may start, the preferred
    one first. If the newest save restores on one number of nodes only, these are the
    shapes with that number; without such a shape, all."""
    shapes = job.spec.shapes
    saves = draft.saves_of(job.id) if len(shapes) > 1 else ()
    fits_nodes = saves[-1].fits_nodes if saves else None
    if fits_nodes is None:
        return shapes
    return tuple(shape for shape in shapes if shape.nodes == fits_nodes) or shapes


def tell_resize(draft: Draft, job: Job, nodes: int) -> None:
    """Record that an elastic job, which was stopped to give nodes, goes on with this
    number of nodes."""
    attempt = draft.attempt(job.id)
    if attempt is None or attempt.resized_to is None or attempt.gave_way_to is None:
        return
    before = len(attempt.seats)
    if nodes < before:
        text = (
            f"{job.spec.name} gave {before - nodes} of {before} nodes to job "
            f"{attempt.gave_way_to}, and goes on with {nodes}"
        )
        draft.tell(EventKind.GAVE_NODES, text, job=job.id, attempt=attempt.number)


def smaller_shapes(
    draft: Draft, job: Job, attempt: Attempt, seats: Sequence[Seat]
) -> tuple[Shape, ...]:
    """Return the shapes with fewer nodes in which an elastic job can go on, the largest
    first. Empty unless it holds all its seats, in a size between its bounds."""
    if len(seats) < len(attempt.seats):
        return ()
    return tuple(
        shape
        for shape in _elastic_shapes(draft, job, seats)
        if shape.nodes < len(seats)
    )


def larger_shapes(draft: Draft, job: Job, attempt: Attempt) -> tuple[Shape, ...]:
    """Return the shapes with more nodes in which an elastic job can go on, the largest
    first."""
    return tuple(
        shape
        for shape in _elastic_shapes(draft, job, attempt.seats)
        if shape.nodes > len(attempt.seats)
    )


def _elastic_shapes(draft: Draft, job: Job, seats: Sequence[Seat]) -> list[Shape]:
    spec = job.spec
    if spec.elastic is None or spec.replica is not None:
        return []
    current = Shape(nodes=len(seats), resources=spec.resources)
    if current.gpu_millis != sum(seat.gpu_millis for seat in seats):
        return []  # it runs in a shape of `any_of`
    shapes = (
        shape
        for shape in allowed_shapes(draft, job)
        if shape.resources == spec.resources
    )
    return sorted(shapes, key=lambda shape: -shape.nodes)
