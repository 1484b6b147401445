"""The desired state of one node, which its agent carries out: attempts to run, and
attempts to stop."""

import hashlib
from collections.abc import Iterable, Set
from dataclasses import replace
from typing import Final

from corral.domain.active_checks import CheckUp
from corral.domain.attempt import Allocation, Attempt, Save, SeatState
from corral.domain.desired_state import (
    DesiredState,
    Launch,
    ReplicaLaunch,
    Stop,
    TimeWarning,
    Version,
)
from corral.domain.ids import BootId, NodeId
from corral.domain.job import Job, JobSpec, Per
from corral.domain.job_states import JobState, StopWhy
from corral.domain.keep_rule import SaveKey, save_key
from corral.domain.kept_checkpoints import kept_saves, rule_of
from corral.domain.observed_state import AttemptKey, NodeFacts, Seen
from corral.domain.replica_jobs import finish_seconds, replica_key
from corral.domain.world import World

FAILED_GRACE_SECONDS: Final = 1.0  # what is left of a failed gang has nothing to save


def wanted_of(
    world: World,
    node: NodeId,
    held: Iterable[Allocation],
    heard: NodeFacts | None,
    version: Version,
) -> DesiredState:
    """Return the desired state of the node. `held`: its unreleased allocations."""
    run: list[Launch] = []
    notices: list[TimeWarning] = []
    stop: dict[AttemptKey, Stop] = {}
    attempt_keys = {(allocation.job, allocation.attempt) for allocation in held}
    for allocation in held:
        key = (allocation.job, allocation.attempt)
        job, attempt = (
            world.jobs.get(allocation.job),
            world.attempts.get(allocation.job),
        )
        if (
            job is not None
            and attempt is not None
            and _should_run(world, job, attempt, allocation)
        ):
            if attempt.gated:
                continue  # its nodes are checked first
            run.append(launch_of(world, job, attempt, node))
            if attempt.warned_at is not None:
                notices.append(_time_warning(job, key))
        else:
            stop[key] = _stop_order(job, key)
    settled: list[AttemptKey] = []
    for attempt_report in heard.seen if heard is not None else ():
        is_over = attempt_report.phase.is_over
        if attempt_report.key in attempt_keys or _is_unknown(
            world, attempt_report, over=is_over
        ):
            continue  # still counted on, or nothing we know: then it is left alone
        if not is_over:
            stop[attempt_report.key] = _fence_order(attempt_report.key)
        elif not _is_told_of_still(world, attempt_report.key):
            settled.append(attempt_report.key)
    return DesiredState(
        cluster=world.cluster,
        version=version,
        node=node,
        boot=world.nodes[node].boot if node in world.nodes else BootId(""),
        run=tuple(run),
        stop=tuple(stop.values()),
        settled=tuple(settled),
        committed=_recorded_steps(world, attempt_keys),
        pinned=_pinned_saves(world, attempt_keys),
        notices=tuple(notices),
        checkup=_current_checkup(world, node, attempt_keys),
        asleep=_asleep(world, run),
    )


def _recorded_steps(
    world: World, keys: Set[AttemptKey]
) -> tuple[tuple[AttemptKey, tuple[int, ...]], ...]:
    """Return the steps of the recorded saves of each attempt that has any."""
    recorded: list[tuple[AttemptKey, tuple[int, ...]]] = []
    for job, number in sorted(keys):
        saves = (*map(save_key, world.saves.get(job, ())), *world.retired.get(job, ()))
        steps = sorted(step for attempt, step in saves if attempt == number)
        if steps:
            recorded.append(((job, number), tuple(steps)))
    return tuple(recorded)


def _pinned_saves(
    world: World, keys: Set[AttemptKey]
) -> tuple[tuple[AttemptKey, tuple[SaveKey, ...]], ...]:
    """Return the pinned saves of the job of each attempt, if it has any."""
    pinned: list[tuple[AttemptKey, tuple[SaveKey, ...]]] = []
    for key in sorted(keys):
        pins = [save_key(save) for save in world.saves.get(key[0], ()) if save.pinned]
        if pins:
            pinned.append((key, tuple(pins)))
    return tuple(pinned)


def _asleep(world: World, run: Iterable[Launch]) -> tuple[AttemptKey, ...]:
    return tuple(launch.key for launch in run if _is_to_sleep(world, launch.key))


def _is_to_sleep(world: World, key: AttemptKey) -> bool:
    """Return whether the engine of the attempt is to sleep: it has finished its
    requests, and has not got its GPUs back since."""
    job = world.jobs.get(key[0])
    role = job.spec.replica if job is not None else None
    if role is None or role.sleep is None:
        return False
    service = world.services.get(role.service)
    row = service.row_of(key[0]) if service is not None else None
    sleep = row.sleep if row is not None else None
    return sleep is not None and sleep.finished_at is not None and sleep.room_at is None


def _finishes_requests(world: World, job: Job, allocation: Allocation) -> bool:
    """Return whether the ranks of a replica that is being preempted run on for now,
    because requests are under way there."""
    role = job.spec.replica
    is_present = allocation.state in (SeatState.HELD, SeatState.STOPPING)
    if role is None or job.attempt != allocation.attempt or not is_present:
        return False
    return finish_seconds(world.services.get(role.service), job) > 0.0


def _is_unknown(world: World, seen: Seen, *, over: bool) -> bool:
    """Return whether the head has no record of the job. If the attempt is `over`, a
    record that it was forgotten counts too."""
    id = seen.key[0]
    return world.state_of(id) is None and not (over and world.forgot(id))


def _fence_order(key: AttemptKey) -> Stop:
    """Return the order to stop an attempt that no longer holds anything on this node."""
    return Stop(key=key, grace_seconds=FAILED_GRACE_SECONDS, save=False, why="fenced")


def _is_told_of_still(world: World, key: AttemptKey) -> bool:
    """Return whether nodes must continue to report the ended attempt, because its job
    is recovering. All reports of a gang's end are read together, so none may be dropped
    before the last has arrived."""
    job = world.jobs.get(key[0])
    return (
        job is not None and job.state == JobState.RECOVERING and job.attempt == key[1]
    )


def grounds_of(
    world: World, node: NodeId, held: Iterable[Allocation], heard: NodeFacts | None
) -> list[object]:
    """Return everything that the desired state of the node depends on, except for the
    addresses of nodes: if it is unchanged, the desired state is unchanged. Unchanged
    rows are the same objects, so a comparison for a thousand nodes costs almost
    nothing."""
    known_node = world.nodes.get(node)
    grounds: list[object] = (
        [known_node.boot, known_node.checkups] if known_node is not None else [None]
    )
    for allocation in held:
        id = allocation.job
        grounds += (
            allocation,
            world.jobs.get(id),
            world.attempts.get(id),
            world.saves.get(id),
        )
        job = world.jobs.get(id)
        if job is not None and job.state == JobState.STOPPING:
            grounds.append(_finishes_requests(world, job, allocation))
        if job is not None and job.spec.replica is not None:
            grounds.append(_is_to_sleep(world, (id, allocation.attempt)))
    for attempt_report in heard.seen if heard is not None else ():
        id = attempt_report.key[0]
        grounds += (
            attempt_report.key,
            attempt_report.phase,
            world.state_of(id),
            world.forgot(id),
        )
    return grounds


def _current_checkup(
    world: World, node: NodeId, mine: Set[AttemptKey]
) -> CheckUp | None:
    """Return the check that has begun on the node; None if no check has begun, or if a
    job is to run there."""
    known_node = world.nodes.get(node)
    for checkup in known_node.checkups if known_node is not None else ():
        if checkup.begun_at is not None and mine <= (
            {checkup.gang} if checkup.gang else set()
        ):
            return checkup
    return None


def _should_run(
    world: World, job: Job, attempt: Attempt, allocation: Allocation
) -> bool:
    is_placed = (
        job.state.is_live
        and attempt.number == allocation.attempt
        and allocation.state == SeatState.HELD
    )
    return is_placed or _finishes_requests(world, job, allocation)


def _stop_order(job: Job | None, key: AttemptKey) -> Stop:
    """Return the order to stop an attempt, with the grace period of its job. The
    attempt is asked to save first, unless it was cancelled or failed on another
    node."""
    is_asked = (
        job is not None and job.state == JobState.STOPPING and job.attempt == key[1]
    )
    if job is None or not is_asked:
        return Stop(
            key=key,
            grace_seconds=FAILED_GRACE_SECONDS,
            save=False,
            why="failed elsewhere",
        )
    save = job.spec.checkpoint is not None and job.why != StopWhy.CANCEL
    stop_reason = str(job.why or StopWhy.CANCEL)
    return Stop(
        key=key, grace_seconds=job.spec.grace_seconds, save=save, why=stop_reason
    )


def _time_warning(job: Job, key: AttemptKey) -> TimeWarning:
    return TimeWarning(
        key=key, signal=job.spec.warn.signal, save=job.spec.checkpoint is not None
    )


def launch_of(world: World, job: Job, attempt: Attempt, node: NodeId) -> Launch:
    """Return what the node needs to start its part of the attempt. The result is the
    same for the whole life of the attempt."""
    spec = job.spec
    node_rank = attempt.nodes.index(node)
    ranks_per_node = 1 if spec.per == Per.NODE else max(1, len(attempt.seats[0].gpus))
    addresses = _gang_addresses(world, spec, attempt)
    begin = attempt.resume_step if attempt.resume_step is not None else -1
    saves = [s for s in world.saves.get(job.id, ()) if s.step <= begin]
    # without what changes while the attempt runs; others are pruned by now
    older = [
        replace(save, pinned=False, verified_at=None)
        for save in saves
        if save.attempt < attempt.number
    ]
    resumable = kept_saves(older, rule_of(spec.checkpoint))
    by_step = sorted(resumable, key=lambda save: (save.step, save.attempt))
    candidates = [*_origin_of(spec), *by_step]
    return Launch(
        key=(job.id, attempt.number),
        job_name=spec.name,
        seat=attempt.seats[node_rank],
        node_rank=node_rank,
        nodes=addresses,
        first_rank=node_rank * ranks_per_node,
        ranks=ranks_per_node,
        world_size=ranks_per_node * len(attempt.seats),
        master_address=addresses[0],
        master_port=attempt.master_port,
        run=spec.run,
        setup=spec.setup,
        per=spec.per,
        env=spec.env,
        secrets=spec.secrets,
        workdir=spec.workdir,
        owner=job.owner,
        # a replica is numbered like a job of an array, but is not one for its program
        array_index=spec.array_index if spec.replica is None else None,
        checkpoint=spec.checkpoint,
        resume=tuple(reversed(candidates)),
        grace_seconds=spec.grace_seconds,
        node_mtbf_seconds=attempt.node_mtbf_seconds,
        self_stop_seconds=spec.self_stop_seconds,
        limit_seconds=spec.max_duration_seconds,
        image=spec.image,
        ray=spec.ray,
        watch=spec.watch and spec.replica is None,
        hang=spec.hang_rule if spec.hang_rule.is_on else None,
        model=spec.model,
        replica=_replica_launch(job, attempt),
        tracking_id=_tracking_id(job),
        passed_over_attempt=job.passed_over_attempt,
    )


def _tracking_id(job: Job) -> str:
    """Return the id of the job for experiment trackers; "" for a replica, which does
    not train. Another cluster's job of the same number has another one."""
    if job.spec.replica is not None:
        return ""
    origin = f"{job.id} {job.owner} {job.submitted_at!r}"
    return f"{job.id}-{hashlib.sha256(origin.encode()).hexdigest()[:8]}"


def _replica_launch(job: Job, attempt: Attempt) -> ReplicaLaunch | None:
    """Return what only a replica of a service needs; None for another job. The secret
    of the service stays with the head: the nodes get a key derived from it."""
    role = job.spec.replica
    if role is None:
        return None
    return ReplicaLaunch(
        service=role.service,
        revision=role.revision,
        number=job.spec.array_index or 0,
        probe=role.probe,
        key=replica_key(role, job.id, attempt.number),
        port=attempt.replica_port,
        kv_ports=attempt.kv_ports,
        role=role.role,
        transfer_port=attempt.transfer_port,
        sleep=role.sleep,
        model_check=role.model_check,
        adapters=role.adapters,
    )


def _origin_of(spec: JobSpec) -> list[Save]:
    """Return a list with the save of another job from which this job starts; empty if
    it starts from no save. It comes after the job's own saves."""
    origin = spec.origin
    if origin is None:
        return []
    return [
        Save(
            job=origin.job,
            attempt=origin.attempt,
            step=origin.step,
            path=origin.path,
            manifest_sha256=origin.manifest_sha256,
            size_bytes=0,
            seconds=0.0,
            stall_seconds=0.0,
            at=0.0,
        )
    ]


def _gang_addresses(world: World, spec: JobSpec, attempt: Attempt) -> tuple[str, ...]:
    """Return the address of each node of the attempt.

    Nodes on one machine share its address, and launchers such as mpirun and DeepSpeed's
    take equal addresses for one node: they would start fewer ranks. Such nodes get
    loopback addresses of their own. Replicas and Ray use the address that clients use.
    """
    addresses = tuple(_node_address(world, id) for id in attempt.nodes)
    are_known = all(node in world.nodes for node in attempt.nodes)
    is_shared = len(addresses) > 1 and len(set(addresses)) == 1
    if not are_known or not is_shared or spec.replica is not None or spec.ray:
        return addresses
    return tuple(
        f"127.77.{number // 254}.{number % 254 + 1}" for number in range(len(addresses))
    )


def _node_address(world: World, node: NodeId) -> str:
    return world.nodes[node].address if node in world.nodes else "127.0.0.1"
