"""Refusal of a job that the nodes could never hold: it states which nodes there are,
what would fit, and where to look."""

from collections.abc import Sequence
from typing import Final

from corral.domain.errors import CannotFit
from corral.domain.job import JobSpec
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.schedule import NodeTypes
from corral.schedule.explain import never_fits
from corral.schedule.waiting import Reason

SEE: Final = "run: corral node ls"


def cannot_fit(
    fleet: NodeTypes, spec: JobSpec, why: Reason, shown_by: str
) -> CannotFit:
    """Return the error for a job that no set of nodes can hold.

    `why` is the reason for the last of the job's shapes. `shown_by` is the engine's
    command that shows its nodes; "" if Corral makes the nodes.
    """
    if why.code != ReasonCode.NEVER_FITS:
        return CannotFit(
            f"{spec.name}: {why.sentence}", hint=f"{why.suggestions[0]}; {SEE}"
        )
    # of an elastic one the smallest
    forms = {shape.resources: shape for shape in spec.shapes}
    *other_shapes, last_shape = forms.values()
    rules = {shape: _ruled_out(fleet, spec, shape) for shape in forms.values()}
    shape_texts = [
        f"{shape} ({_why_never(fleet, shape, rules[shape])})"
        for shape in forms.values()
    ]
    shape_text = (
        f"{', or '.join(shape_texts)}"
        if other_shapes
        else f"{last_shape}; {_why_never(fleet, last_shape, rules[last_shape])}"
    )
    hint = _parts_hint(fleet, last_shape, shown_by)
    if not hint:
        could = _would_fit(fleet, spec, list(forms.values()))
        fits = f"; this would fit: {could}" if could is not None else ""
        hint = f"there {_what_is(fleet)}{fits}; {_lookup_hint(fleet, last_shape, shown_by)}"
        advised = [
            advice for rule in rules.values() if rule for advice in rule.suggestions
        ]
        hint = "; ".join([*advised[:1], hint])
    return CannotFit(f"{spec.name} asks for {shape_text}", hint=hint)


def _would_fit(fleet: NodeTypes, spec: JobSpec, forms: Sequence[Shape]) -> Shape | None:
    """Return the largest fitting shape that is like one of these, or None."""
    like = [shape for form in forms if (shape := fleet.nearest(form)) is not None]
    fit = [shape for shape in like if never_fits(spec.place, shape, fleet) is None]
    return max(fit, key=lambda shape: (shape.gpu_millis, shape.nodes), default=None)


def _ruled_out(fleet: NodeTypes, spec: JobSpec, shape: Shape) -> Reason | None:
    """Return why a rule of the job (labels or topology) keeps it off nodes that are
    large enough for the shape. None if no rule does."""
    misfit_reason = never_fits(spec.place, shape, fleet)
    return (
        None
        if misfit_reason is None or misfit_reason.code == ReasonCode.NEVER_FITS
        else misfit_reason
    )


def _why_never(fleet: NodeTypes, shape: Shape, rule: Reason | None) -> str:
    """Return why no set of nodes can ever hold the shape. `rule` is a reason from
    labels or topology, which is used if there is one. For example: only 1 of the 3
    nodes is large enough."""
    if rule is not None:
        return rule.sentence
    able = fleet.holding(shape.resources)
    if able == fleet.size:
        return f"this cluster has only {able} node{'s' * (able > 1)}"
    nodes_text = f"only {able} of the {fleet.size} nodes" if able else "no node"
    return f"{nodes_text} of this cluster is large enough"


def _what_is(fleet: NodeTypes) -> str:
    """Return a text about the nodes of the cluster, as the end of a sentence. For
    example: are 2 nodes with up to 8 GPUs (a100, h100)."""
    nodes = "is 1 node" if fleet.size == 1 else f"are {fleet.size} nodes"
    if not fleet.most_gpus:
        return f"{nodes} without GPUs"
    plural = "s" if fleet.most_gpus > 1 else ""
    up_to = "with" if fleet.size == 1 else "with up to"
    return (
        f"{nodes} {up_to} {fleet.most_gpus} GPU{plural} ({', '.join(fleet.gpu_types)})"
    )


def _lookup_hint(fleet: NodeTypes, shape: Shape, shown_by: str) -> str:
    if shown_by:
        return f"{SEE}; or, for the engine's own list: {shown_by}"
    if fleet.most_gpus or not shape.resources.gpus:
        return SEE
    shares_option = " --gpu-shares" * shape.resources.is_share
    return (
        "to simulate GPUs, run: corral down; corral up --gpus "
        f"{shape.resources.gpus}{shares_option}"
    )


def _parts_hint(fleet: NodeTypes, shape: Shape, shown_by: str) -> str:
    """Return a hint for a job that asks for a share of a GPU while no node offers
    shares, or for a whole GPU while all GPUs are partitioned; "" otherwise."""
    resources = shape.resources
    if resources.is_share and fleet.most_gpus and not fleet.gives_shares:
        if shown_by:
            return (
                "no node allows shares of a GPU; ask for a whole GPU; "
                f"{_lookup_hint(fleet, shape, shown_by)}"
            )
        return (
            "no node allows shares of a GPU; ask for a whole GPU, or run: corral down; "
            "corral up --gpu-shares"
        )
    if resources.gpus and not resources.is_share and fleet.most_parts:
        gpu_fraction = MILLIS_PER_GPU // fleet.most_parts / MILLIS_PER_GPU
        return (
            f"all GPUs here are partitioned (MIG) into {fleet.most_parts} slices; ask for "
            f"slices: gpu: {gpu_fraction:g}"
        )
    return ""
