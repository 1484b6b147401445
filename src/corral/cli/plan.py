"""The plan of a submission, before it is made."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from corral.cli.output import clean, say, show_pairs
from corral.domain.units import size_text

if TYPE_CHECKING:
    from corral.client.spec import Wished
    from corral.wire import api

MOST = 10  # plans of an array that are shown one by one


def show_plan(plan: "list[api.PlannedJob]", wished: "Wished", *, whole: bool) -> None:
    """Where each job would go. `whole`: it is the answer, with its environment; else it is told on
    stderr, as stdout is for what the ranks print."""
    workdirs = {str(path) for path in wished.workdirs}
    for number, one in enumerate(plan[:MOST]):
        if number:
            say(stderr=not whole)
        show_pairs(_pairs(one, workdirs, whole=whole), stderr=not whole)
    if len(plan) > MOST:
        say(f"and {len(plan) - MOST} more", stderr=not whole)


def _pairs(one: "api.PlannedJob", workdirs: set[str], *, whole: bool) -> Iterator[tuple[str, str]]:
    yield "job", one.name
    yield "asks for", shape_text(one.shape)
    yield "ranks", str(one.ranks)
    yield "workdir", f"{', '.join(sorted(workdirs))} (a snapshot)" if workdirs else "none"
    if one.starts_now:
        yield "starts", "now, on " + "; ".join(seat_text(seat) for seat in one.seats)
    else:
        yield "waits", one.reason
    for stopped in one.stops:
        yield "would stop", stopped
    for suggestion in one.suggestions:
        yield "sooner", suggestion
    if one.forecast is not None:
        yield "starts", one.forecast.text
        yield "ends", one.forecast.ends.text
        for other in one.forecast.instead:
            yield "sooner", instead_text(other)
    if whole:
        for name, value in sorted(one.environment.items()):
            yield "env", f"{name}={clean(value)}"


def instead_text(one: "api.Instead") -> str:
    """For example: with 1 node instead of 2 it starts in 2 to 5 min."""
    return f"{one.change} it starts {one.starts.text}"


def shape_text(shape: "api.Shape") -> str:
    """For example: 2 nodes, each 8 h100 GPUs, 4 CPUs, 64 GB."""
    parts = []
    if shape.gpus_per_node:
        plural = "s" if shape.gpus_per_node > 1 else ""
        kind = f"{shape.gpu_type} " if shape.gpu_type else ""
        parts.append(f"{shape.gpus_per_node:g} {kind}GPU{plural}")
    if shape.cpus_per_node:
        parts.append(f"{shape.cpus_per_node:g} CPU{'s' if shape.cpus_per_node > 1 else ''}")
    if shape.memory_bytes_per_node:
        parts.append(size_text(shape.memory_bytes_per_node))
    nodes = "1 node" if shape.nodes == 1 else f"{shape.nodes} nodes, each"
    return f"{nodes} with {', '.join(parts)}" if parts else nodes


def seat_text(seat: "api.Seat") -> str:
    """For example: n1 (GPU 0,1)."""
    gpus = ",".join(str(index) for index in seat.gpus)
    return f"{seat.node} (GPU {gpus})" if gpus else seat.node


def place_text(job: "api.JobDetail") -> str:
    """For example: zone=a, require:rack, exclusive, apart from train, preemptible."""
    place = job.place
    parts = [
        *place.constraints,
        *([] if place.topology == "prefer" else [place.topology]),
        *(["exclusive"] if place.exclusive else []),
        *(f"apart from {name}" for name in place.apart_from),
        *(["preemptible"] if job.preemptible else []),
    ]
    return ", ".join(parts)
