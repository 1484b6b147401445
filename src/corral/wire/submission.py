"""Conversion of submitted specs to jobs. Arrays are expanded into jobs, and references
in `after` are resolved.

A reference to a job of the same submission is `@N`, where N is the position of that job
in the answer. Every other reference is left as written: a name or an id of a job that
already exists.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from corral.domain.elastic import Elastic
from corral.domain.errors import SpecInvalid
from corral.domain.hang import HangAct, WatchRule
from corral.domain.ids import JobId, QueueName, is_name
from corral.domain.job import (
    After,
    CheckpointRule,
    Disconnect,
    JobSpec,
    On,
    Per,
    Retry,
    TokenScope,
)
from corral.domain.keep_rule import BestRule, Goal
from corral.domain.placement_constraints import Level, Mode, PlaceRule, Topology
from corral.domain.resources import Resources, Shape
from corral.domain.spec_content import size_of
from corral.domain.time_point import EndWarning
from corral.wire import spec_fields as shapes
from corral.wire.array_indices import check_count
from corral.wire.field_readers import OWN_TOKEN
from corral.wire.spec_fields import RAY, Spec
from corral.wire.spec_reader import Parsed, Problem, count_of, refusal
from corral.wire.watch_rule import OFF

MOST_AFTERS: Final = 100_000
MOST_CHARACTERS: Final = 512 * 1000**2  # of all jobs of a submission
Element = tuple[str, int | None]  # name and index of a job


def to_domain(parsed: Sequence[Parsed]) -> tuple[JobSpec, ...]:
    """Return the jobs of one submission, in the order of their specs and indices.

    Raises: SpecInvalid on a cycle, on an ambiguous name in `after`, and on too many
    jobs.
    """
    check_count(
        sum(count_of(parsed_spec.spec) for parsed_spec in parsed),
        parsed[0].document.source,
    )
    places = _places_by_name(parsed)
    _refuse_cycles(parsed)
    jobs: list[JobSpec] = []
    afters = 0
    for spec_index, parsed_spec in enumerate(parsed):
        dependencies = tuple(_resolve_dependencies(parsed_spec, places))
        elements = list(_array_elements(parsed_spec))
        afters += len(dependencies) * len(elements)
        check_waits(afters, parsed[0].document.source)
        jobs += _unfold_array(
            job_from_spec(parsed_spec.spec, *elements[0], dependencies),
            spec_index,
            elements,
        )
    check_size(jobs, parsed[0].document.source)
    return tuple(jobs)


def _unfold_array(
    first: JobSpec, place: int, elements: Sequence[Element]
) -> Iterator[JobSpec]:
    """Yield the jobs of one spec. Jobs of an array differ only in name and index.
    `place`: position of the spec in the submission."""
    if first.array_index is None:
        yield first
        return
    first = replace(first, array_place=place)
    for name, index in elements:
        yield replace(first, name=name, array_index=index)


def check_size(jobs: Sequence[JobSpec], source: str) -> None:
    """Refuse specs that are too large for the number of jobs.

    The complete spec of each job is sent to its nodes.

    Raises: SpecInvalid.
    """
    sizes: dict[tuple[int, int], int] = {}  # jobs of an array share their fields
    total = 0
    for job in jobs:
        shared_key = (id(job.env), id(job.run))
        if shared_key not in sizes:
            sizes[shared_key] = size_of(job)
        total += sizes[shared_key]
    if total > MOST_CHARACTERS:
        average_size = total // len(jobs)
        raise SpecInvalid(
            f"{source}: {len(jobs):,} jobs with specs of {average_size:,} characters on "
            "average are "
            f"{total:,} characters; at most {MOST_CHARACTERS:,} are allowed",
            hint=f"submit at most {MOST_CHARACTERS // average_size:,} of these jobs at "
            "once, or put large values of env into a file of the workdir",
        )


def check_waits(afters: int, source: str) -> None:
    """Check that a submission has not too many dependencies between jobs (`afters`).

    Raises: SpecInvalid if there are too many.
    """
    if afters > MOST_AFTERS:
        raise SpecInvalid(
            f"{source}: the jobs have {afters:,} dependencies (after); "
            f"at most {MOST_AFTERS:,} are allowed",
            hint="add a job between the two arrays: set its after to the first array, "
            "and the after of the second array to this job",
        )


def _array_elements(one: Parsed) -> Iterator[Element]:
    """Yield (name, index) of each job of the spec. The index is None without an array."""
    spec = one.spec
    if spec.array is None:
        yield spec.name, None
        return
    longest = f"{spec.name}_{spec.array.indices[-1]}"
    if not is_name(longest):
        problem = Problem(
            where=("name",),
            text=f"the name with the index, {longest}, has more than 63 characters",
            hint=f"write: name: {spec.name[:40]}",
        )
        raise refusal(one.document, [problem])
    for index in spec.array.indices:
        yield f"{spec.name}_{index}", index


def _places_by_name(parsed: Sequence[Parsed]) -> Mapping[str, list[list[int]]]:
    """Return for each job or array name the positions of its jobs in the submission,
    one list for each spec of that name."""
    spec_places: dict[str, list[list[int]]] = defaultdict(list)
    count = 0
    for parsed_spec in parsed:
        elements = list(_array_elements(parsed_spec))
        own_places = list(range(count, count + len(elements)))
        count += len(elements)
        spec_places[parsed_spec.spec.name].append(own_places)
        if parsed_spec.spec.array is not None:
            for (name, _), job_index in zip(elements, own_places, strict=True):
                spec_places[name].append([job_index])
    return spec_places


def _resolve_dependencies(
    one: Parsed, places: Mapping[str, list[list[int]]]
) -> Iterator[After]:
    for number, dependency in enumerate(one.spec.after):
        meant_places = places.get(dependency.job, [])
        if len(meant_places) > 1:
            problem = Problem(
                where=("after", number, "job"),
                text=(
                    f"{len(meant_places)} jobs of this submission have the name "
                    f"{dependency.job}"
                ),
                hint="give each of these jobs a different name",
            )
            raise refusal(one.document, [problem])
        on = On(dependency.on)
        if not meant_places:
            yield After(job=JobId(dependency.job), on=on)
        for job_index in meant_places[0] if meant_places else ():
            of = dependency.job if len(meant_places[0]) > 1 else ""
            yield After(job=JobId(f"@{job_index}"), on=on, of=of)


def _refuse_cycles(parsed: Sequence[Parsed]) -> None:
    """Refuse dependencies that form a cycle. The search is depth-first without
    recursion, because a chain may have thousands of jobs."""
    specs = {parsed_spec.spec.name: parsed_spec for parsed_spec in parsed}
    owner = {
        name: parsed_spec.spec.name
        for parsed_spec in parsed
        for name, _ in _array_elements(parsed_spec)
    }
    owner |= {name: name for name in specs}
    waits = {
        name: [
            owner[dependency.job]
            for dependency in parsed_spec.spec.after
            if dependency.job in owner
        ]
        for name, parsed_spec in specs.items()
    }
    done: set[str] = set()
    path: dict[str, None] = {}  # the chain that is being followed, in order
    follow = [iter(waits)]
    while follow:
        name = next(follow[-1], None)
        if name is None:
            follow.pop()
            if path:
                done.add(path.popitem()[0])
        elif name in path:
            chain = list(path)
            raise _cycle_error(specs[name], [*chain[chain.index(name) :], name])
        elif name not in done:
            path[name] = None
            follow.append(iter(waits[name]))


def _cycle_error(one: Parsed, names: Sequence[str]) -> SpecInvalid:
    shown_names = [*names[:5], "...", *names[-2:]] if len(names) > 8 else names
    text = (
        f"{names[0]} waits for itself"
        if len(names) == 2
        else f"these jobs wait for one another: {' -> '.join(shown_names)}"
    )
    hint = f"remove one `after` of this cycle, for example that of {names[0]}"
    return refusal(one.document, [Problem(where=("after",), text=text, hint=hint)])


def job_from_spec(
    spec: Spec, name: str, index: int | None, after: tuple[After, ...]
) -> JobSpec:
    """Return the job of a spec, whose dependencies (`after`) are resolved."""
    return JobSpec(
        name=name,
        run=spec.run,
        nodes=spec.nodes,
        resources=resources_of(spec.resources),
        any_of=tuple(
            Shape(
                nodes=shape_spec.nodes or spec.nodes,
                resources=resources_of(shape_spec.resources),
            )
            for shape_spec in spec.any_of
        ),
        queue=QueueName(spec.queue),
        priority=spec.priority,
        place=_placement_rule(spec),
        preemptible=spec.preemptible,
        begin=spec.begin,
        start_by=spec.start_by,
        max_duration_seconds=spec.max_duration,
        warn=EndWarning(signal=spec.warn.signal, before_seconds=spec.warn.before),
        env=spec.env,
        secrets=_required_secrets(spec),
        token=TokenScope(spec.token or TokenScope.OWN),
        workdir=spec.workdir,
        setup=spec.setup,
        per=Per(spec.per),
        checkpoint=_checkpoint(spec.checkpoint),
        retry=Retry(infra=spec.retry.infra, user=spec.retry.user),
        disconnect=Disconnect(spec.disconnect) if spec.disconnect else None,
        self_stop_seconds=spec.self_stop,
        grace_seconds=spec.grace,
        elastic=_elastic_from_spec(spec.elastic),
        after=after,
        array_index=index,
        array_limit=spec.array.limit if spec.array else None,
        image=spec.image,
        model=spec.model,
        ray=spec.kind == RAY,
        watch=spec.watch is not None,
        hang=_hang_rule(spec.watch),
    )


def _hang_rule(watch: shapes.WatchSpec | None) -> WatchRule:
    if watch is None or watch.hang == OFF:
        return WatchRule(is_on=False)
    return WatchRule(
        bound_seconds=None if isinstance(watch.hang, str) else watch.hang,
        act=HangAct(watch.act),
    )


def _required_secrets(spec: Spec) -> tuple[str, ...]:
    """Return the names of the secrets that the job needs. They include the job's own
    token if `token` requests it, or if the job is a Ray program, whose nodes
    authenticate each other with it (decision 0042)."""
    needed = spec.token is not None or spec.kind == RAY
    own_secret = (OWN_TOKEN,) if needed and OWN_TOKEN not in spec.secrets else ()
    return (*spec.secrets, *own_secret)


def _placement_rule(spec: Spec) -> PlaceRule:
    within = spec.topology.within
    mode = spec.topology.mode or ("require" if within else "prefer")
    return PlaceRule(
        constraints=spec.constraints,
        topology=Topology(mode=Mode(mode), within=Level(within or "rack")),
        exclusive=spec.exclusive,
        apart_from=spec.apart_from,
    )


def _checkpoint(rule: shapes.CheckpointSpec | None) -> CheckpointRule | None:
    if rule is None:
        return None
    return CheckpointRule(
        path=rule.path or "",
        interval_seconds=rule.interval,
        keep=rule.keep.last,
        keep_every_seconds=rule.keep.every,
        keep_best=_best_rule(rule.keep.best),
        source=rule.source or "",
        local=rule.local != OFF,
        bandwidth_bytes=rule.bandwidth,
    )


def _best_rule(best: shapes.BestSpec | None) -> BestRule | None:
    if best is None:
        return None
    return BestRule(metric=best.metric, count=best.count, goal=Goal(best.goal))


def _elastic_from_spec(elastic: shapes.ElasticSpec | None) -> Elastic | None:
    if elastic is None:
        return None
    return Elastic(min_nodes=elastic.min_nodes, max_nodes=elastic.max_nodes)


def resources_of(resources: shapes.ResourcesSpec) -> Resources:
    """Return the resources of one node."""
    gpu_type, gpu_millis = resources.gpu
    return Resources(
        gpu_millis=gpu_millis,
        gpu_type=gpu_type if gpu_millis else None,
        cpu_millis=resources.cpu,
        memory_bytes=resources.memory,
    )
