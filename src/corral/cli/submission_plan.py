"""Printing of the plan of a submission, before the jobs are submitted."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from corral.cli.printing import clean, clock_text, say, show_pairs
from corral.domain.units import duration_text, size_text

if TYPE_CHECKING:
    from corral.client.spec_input import WireSpecs
    from corral.wire import api

MOST = 10  # plans of an array that are shown one by one


def show_plan(
    plan: "list[api.PlannedJob]", wire_specs: "WireSpecs", *, whole: bool
) -> None:
    """Print where each job would be placed. `whole`: the plan is the answer of the
    command; it goes to stdout and includes the environment. Otherwise it goes to
    stderr, because stdout is for the output of the ranks."""
    workdirs = {str(path) for path in wire_specs.workdirs}
    for number, planned_job in enumerate(plan[:MOST]):
        if number:
            say(stderr=not whole)
        show_pairs(_plan_rows(planned_job, workdirs, whole=whole), stderr=not whole)
    if len(plan) > MOST:
        say(f"jobs not shown: {len(plan) - MOST}", stderr=not whole)


def _plan_rows(
    one: "api.PlannedJob", workdirs: set[str], *, whole: bool
) -> Iterator[tuple[str, str]]:
    yield "job", one.name
    is_open = len(one.forms) > 1 or any(
        form.least_nodes < form.nodes for form in one.forms
    )
    yield "asks for", forms_text(one.forms, one.shape)
    yield "gets", shape_text(one.shape) if is_open and one.starts_now else ""
    unknown = is_open and not one.starts_now  # how many nodes it has
    if one.kind == "ray":
        count_prefix = f"{one.shape.nodes} " if one.shape.nodes > 1 else ""
        nodes = (
            "nodes" if unknown else f"{count_prefix}node{'s' * (one.shape.nodes > 1)}"
        )
        yield "runs", f"one program, on a Ray cluster of its {nodes}"
    else:
        yield "ranks", "" if unknown else str(one.ranks)
    yield "queue", f"{one.queue}, priority {one.priority}" if one.queue else ""
    yield "place", place_text(one)
    yield "time limit", limit_text(one)
    yield "signal", signal_text(one.warned)
    yield "starts from", f"the save {one.origin}" if one.origin else ""
    yield "image", one.image or ""
    yield "python", python_text(one)
    yield (
        "workdir",
        f"{', '.join(sorted(workdirs))} (a snapshot)" if workdirs else "none",
    )
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
        yield "ends", "" if one.forecast.is_too_late else one.forecast.ends.text
        yield "but", given_up_text(one.forecast)
        for alternative in one.forecast.instead:
            yield "sooner", instead_text(alternative)
    if whole:
        for name, value in sorted(one.environment.items()):
            yield "env", f"{name}={clean(value)}"


def python_text(one: "api.PlannedJob") -> str:
    """Return the Python interpreter of the job's ranks; "" if the image, the Ray
    cluster or the job's own PATH determines it."""
    if one.image or one.kind == "ray" or "PATH" in one.environment:
        return ""
    folder = one.environment.get("VIRTUAL_ENV") or one.environment.get("CONDA_PREFIX")
    if folder:
        return f"{clean(folder)}/bin/python, on nodes that have it"
    return f"{clean(one.python)} (the head's)" if one.python else ""


def given_up_text(forecast: "api.StartForecastView") -> str:
    """Return a note that the job ends at start_by if it has not started; "" if unset."""
    if forecast.gives_up_at is None:
        return ""
    deadline_text = clock_text(forecast.gives_up_at)
    if forecast.is_too_late:
        return f"fails at {deadline_text} (start_by), before it is likely to start"
    return f"fails at {deadline_text} (start_by) if it has not started by then"


def instead_text(one: "api.ChangeSuggestionView") -> str:
    """Return a suggested change of the job and its effect as text. For example: in
    queue b it starts in 2 to 5 min, and is likely to stop 1 job of queue a."""
    stops = f", and is likely to stop {one.stops}" if one.stops else ""
    return f"{one.change} it starts {one.starts.text}{stops}"


def forms_text(forms: "Sequence[api.Form]", shape: "api.ShapeView") -> str:
    """Return all forms of the job in the order in which the scheduler tries them.

    An older head reports no forms; then return the shape. For example: 2 to 9 nodes,
    each with 8 GPUs; else 1 node with 2 GPUs.
    """
    texts = [shape_text(form, least=form.least_nodes) for form in forms]
    return "; else ".join(texts) or shape_text(shape)


def shape_text(shape: "api.ShapeView", *, least: int | None = None) -> str:
    """Return the resources of a job as text. For example: 2 nodes, each with 8 h100
    GPUs, 4 CPUs, 64 GB. `least`: the lowest number of nodes with which the job may run.
    """
    resource_texts = []
    if shape.gpus_per_node:
        plural = "s" if shape.gpus_per_node > 1 else ""
        kind = f"{shape.gpu_type} " if shape.gpu_type else ""
        resource_texts.append(f"{shape.gpus_per_node:g} {kind}GPU{plural}")
    if shape.cpus_per_node:
        resource_texts.append(
            f"{shape.cpus_per_node:g} CPU{'s' if shape.cpus_per_node > 1 else ''}"
        )
    if shape.memory_bytes_per_node:
        resource_texts.append(size_text(shape.memory_bytes_per_node))
    span = f"{least} to " if least is not None and least < shape.nodes else ""
    nodes = "1 node" if shape.nodes == 1 else f"{span}{shape.nodes} nodes, each"
    return f"{nodes} with {', '.join(resource_texts)}" if resource_texts else nodes


def seat_text(seat: "api.SeatView") -> str:
    """Return a node and the GPUs of a job on it as text. For example: n1 (GPU 0,1)."""
    gpus = ",".join(str(index) for index in seat.gpus)
    return f"{seat.node} (GPU {gpus})" if gpus else seat.node


def limit_text(job: "api.JobDetail | api.PlannedJob") -> str:
    """Return the time limit of the job as text; "" without a limit. For example: 4 h."""
    limit = job.max_duration_seconds
    return "" if limit is None else duration_text(limit)


def signal_text(warned: "api.Warned | None") -> str:
    """Return the warning signal of the job as text; "" if the job requests none. For
    example: USR1, 2 min before the time limit."""
    if warned is None:
        return ""
    lead_text = duration_text(warned.before_seconds)
    return (
        f"{warned.signal or 'none, only a request to save'}, {lead_text} before the "
        "time limit"
    )


def place_text(job: "api.JobDetail | api.PlannedJob") -> str:
    """Return the placement rules of the job as text. For example: zone=a, require:rack,
    exclusive, apart from train, preemptible."""
    placement = job.place
    if placement is None:
        return ""
    placement_terms = [
        *placement.constraints,
        *([] if placement.topology == "prefer" else [placement.topology]),
        *(["exclusive"] if placement.exclusive else []),
        *(f"apart from {name}" for name in placement.apart_from),
        *(["preemptible"] if job.preemptible else []),
    ]
    return ", ".join(placement_terms)
