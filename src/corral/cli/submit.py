"""`corral run` and `corral apply`: submission of jobs from options or from a file. Jobs
are followed to their end."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli.embedded_head import head_for
from corral.cli.error_output import Usage
from corral.cli.head_options import Change, declined
from corral.cli.option_types import (
    ArrayIndices,
    CheckpointOrigin,
    CountRange,
    CountText,
    Duration,
    EnvironmentVariable,
    GpuCounts,
    JobDependency,
    NameText,
    PathText,
    Priority,
    QueueName,
    SecretName,
    Size,
    WholeNumber,
)
from corral.cli.printing import note, print_json, say
from corral.cli.spec_options import Typed, is_around_home, spec_of
from corral.cli.time_options import RequestOptions
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.client import Client
    from corral.client.spec_input import WireSpecs
    from corral.wire import api

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_ENV = Parameter(
    name=["--env", "-e"],
    negative="",
    show_default=False,
    help="Environment variable of the ranks: K=V, or K alone for its value in this "
    "shell; may be repeated.",
)
_REPEATED = Parameter(negative="", show_default=False)
_TIME = Parameter(
    name=["--time", "-t", "--max-duration"],
    help="Time limit, after which the job is stopped: 4h (default: the limit of the "
    "queue, else none).",
)
_DETACH = Parameter(
    name=["--detach", "-d"],
    negative="",
    show_default=False,
    help="Print the name of the job once it is submitted, and exit (default: print its "
    "output until it ends).",
)


def run(
    *command: Annotated[str, Parameter(show=True)],
    name: Annotated[NameText | None, Parameter(name=["--name", "-n"])] = None,
    nodes: Annotated[CountRange | None, Parameter(name=["--nodes", "-N"])] = None,
    gpus: GpuCounts | None = None,
    cpus: CountText | None = None,
    memory: Size | None = None,
    queue: QueueName | None = None,
    priority: Priority | None = None,
    time: Annotated[Duration | None, _TIME] = None,
    env: Annotated[tuple[EnvironmentVariable, ...], _ENV] = (),
    secret: Annotated[tuple[SecretName, ...], _REPEATED] = (),
    token: Literal["own", "submit"] | None = None,
    per: Literal["node", "gpu"] | None = None,
    checkpoint: PathText | None = None,
    origin: Annotated[CheckpointOrigin | None, Parameter(name="--from")] = None,
    workdir: Path | None = None,
    no_workdir: _Flag = False,
    after: Annotated[tuple[JobDependency, ...], _REPEATED] = (),
    array: ArrayIndices | None = None,
    retry: WholeNumber | None = None,
    request_options: RequestOptions = RequestOptions(),  # noqa: B008 - frozen
    dry_run: _Flag = False,
    detach: Annotated[bool, _DETACH] = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Run a command as a job and follow the job to its end.

    Args:
        command: Command of the job, after --; or a batch script (#SBATCH) with its
            arguments.
        name: Name of the job (default: made from the command).
        nodes: Number of nodes; 2-4: as many of these as are free (default: 1).
        gpus: GPUs per node: 8, a share of one: 0.5, or by type: h100:8 (default: 0).
        cpus: CPU cores per node (default: 0; 1 if nothing else is requested).
        memory: Memory per node: 64GB (default: none is requested).
        queue: Queue of the job (default: the queue named default).
        priority: Priority: low, normal, high, or a number: 50 (default: normal).
        secret: Secret that the ranks receive in an environment variable of its name;
            may be repeated.
        token: Access token that the job receives: own, to act on itself and its array;
            submit, also to submit jobs (default: no token).
        per: Start one rank per node, or one per gpu (default: node).
        checkpoint: Path of the job's checkpoints, on storage that all nodes share.
        origin: Start from the newest checkpoint of an ended job: JOB, or from its
            checkpoint at a certain step: JOB@STEP. A pinned one may be of a running job.
        workdir: Directory whose files are sent with the job (default: the current one).
        no_workdir: Send no files with the job.
        after: Start when another job has succeeded: JOB; or when it has failed, has
            ended in any way, or has started: JOB:failed, JOB:ended, JOB:started. May be
            repeated.
        array: Submit one job per index: 0-9; 0-99%10 runs at most 10 of them at once.
        retry: Number of retries after failures of the job itself (default: 0).
        dry_run: Show where and when the job would start, without submitting it.
    """
    spec = _spec_of_options(locals(), common)
    return _submit_spec(spec, common, dry_run=dry_run, detach=detach)


def _spec_of_options(options: Mapping[str, Any], common: Change) -> dict[str, Any]:
    """Return the spec for the options of `run`.

    Args:
        options: the arguments of `run`, by name.

    Raises: Usage, SpecInvalid.
    """
    given_options = {
        key: value for key, value in options.items() if key in Typed.__slots__
    }
    typed = Typed(**given_options)
    return _script_of(typed) or spec_of(_with_workdir(typed, common))


def _with_workdir(typed: Typed, common: Change) -> Typed:
    """Return the options, with --no-workdir added if the current directory must not be
    sent.

    The question arises if the current directory is the home directory or a parent of
    it. No files of this directory are sent unless the user names it.

    Raises: Usage if it is not possible to ask the user.
    """
    current_dir = Path.cwd()
    if typed.workdir is not None or typed.no_workdir or not is_around_home(current_dir):
        return typed
    without = replace(typed, no_workdir=True)
    if common.yes:
        return without
    workdir_hint = (
        "name a directory: --workdir DIR, or send no files: --no-workdir (or --yes)"
    )
    if common.json or not common.is_attended:
        raise Usage(
            f"{current_dir} is not sent with the job: it contains a home directory",
            hint=workdir_hint,
        )
    if not common.agreed(
        f"{current_dir} contains a home directory. Submit without any of its files?"
    ):
        raise Usage(declined("nothing was submitted").message, hint=workdir_hint)
    return without


def _script_of(typed: Typed) -> dict[str, Any] | None:
    """Return the spec of a batch script if the command is one; None for other commands.

    Raises: Usage if options are given in addition; SpecInvalid.
    """
    if not typed.command or not _has_shebang(typed.command[0]):
        return None
    # a command needs none of this
    from corral.cli.slurm.script_file import spec_of_script

    path, *arguments = typed.command
    spec = spec_of_script(Path(path), arguments)
    if spec is not None and typed != Typed(command=typed.command):
        raise Usage(
            f"options of corral run do not apply to {path}: a batch script contains "
            "its own options (#SBATCH)",
            hint=f"run: sbatch [OPTIONS] {path}; or, as a plain command: "
            f"corral run [OPTIONS] -- bash {path}",
        )
    return spec


def _has_shebang(path: str) -> bool:
    """Return whether the file may be a batch script, because it starts with #!."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def apply(
    *,
    file: Annotated[Path, Parameter(name=["--file", "-f"])],
    dry_run: _Flag = False,
    follow: _Flag = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Submit the jobs of a spec file (YAML or TOML), or a batch script of Slurm.

    Args:
        file: Spec file (YAML or TOML), file of services (kind: service) or queues
            (kind: queues), or batch script. Several jobs or services are YAML
            documents, separated by lines of ---.
        dry_run: Show where and when the jobs would start, or how the services or queues
            would change, without changing anything.
        follow: Print the output of all jobs until they end; the exit code is 1 if a job
            did not end as DONE. Services are followed until a replica is ready, and a
            new revision until its trial has passed; the exit code is 1 if it does not
            (default: exit once the jobs are submitted).
    """
    from corral.cli.queues import apply_queues
    from corral.cli.services import apply_services, is_service_file
    from corral.cli.slurm.script_file import spec_of_script
    from corral.wire.queue_file import queue_file_of
    from corral.wire.spec_reader import read_documents

    if (script := spec_of_script(file)) is not None:
        return _submit_spec(script, common, dry_run=dry_run, detach=not follow)
    documents = read_documents(file)
    if is_service_file(documents):
        return apply_services(file, common, dry_run=dry_run, follow=follow)
    queues = queue_file_of(documents)
    if queues is not None:
        with nullcontext() if dry_run else head_for(common):
            return apply_queues(queues, common, dry_run=dry_run)
    return _submit_spec(file, common, dry_run=dry_run, detach=not follow)


def _submit_spec(
    spec: dict[str, Any] | Path, common: Change, *, dry_run: bool, detach: bool
) -> int:
    from corral.cli.submission_plan import show_plan
    from corral.client.spec_input import read_wire_specs
    from corral.client.workdir_snapshot import notes_on

    wire_specs = read_wire_specs(spec)  # reports errors before anything is started
    _note_past(wire_specs)
    for path in wire_specs.workdirs:
        for left_out in notes_on(path):
            note(left_out)
    if dry_run:
        planned = _fetch_plan(common, wire_specs, spec)
        if common.json:
            print_json(
                {
                    "plan": [
                        planned_job.model_dump(mode="json") for planned_job in planned
                    ]
                }
            )
        else:
            show_plan(planned, wire_specs, whole=True)
        return 0
    with head_for(common), common.client() as client:
        is_shown = common.asks or not (detach or common.json)
        plan = client.begin_plan(spec) if is_shown else None
        if plan is not None and common.asks:
            show_plan(plan(), wire_specs, whole=False)
        if not common.agreed("submit?"):
            raise declined(
                "nothing was submitted", hint="correct the job, then submit it again"
            )
        jobs = client.submit(spec)
        # the job does not wait for this to load
        if plan is not None and not common.asks:
            show_plan(plan(), wire_specs, whole=False)
    with common.client() as client:
        if detach:
            _print_jobs(jobs, common)
            tell_when(client, jobs, common)
            return 0
        return _follow_jobs(client, jobs, common)


def _note_past(wire_specs: "WireSpecs") -> None:
    """Print a note for each begin time in the past: it delays nothing, and may be a
    mistake of the user."""
    from corral.domain.time_point import moment_text

    now = SystemClock().wall()
    for begin_time in dict.fromkeys(wire_specs.begins):
        if begin_time <= now:
            note(
                f"the begin time {moment_text(begin_time)} is in the past: the job may "
                "start at once"
            )


def _fetch_plan(
    common: Change, wire_specs: "WireSpecs", spec: dict[str, Any] | Path
) -> "list[api.PlannedJob]":
    from corral.boot.start_head import head_runs

    if not common.remote and not head_runs(common.place):
        # all of a head is loaded with it
        from corral.boot.offline_plan import plan_without_head

        note(f"no head runs in {common.place.root}: this is the plan for a new cluster")
        return plan_without_head(common.place, wire_specs)
    with common.client() as client:
        return client.plan(spec)


def _print_jobs(jobs: "list[api.JobView]", common: Change) -> None:
    """Print the names of the submitted jobs, one a line; an array has one name. The
    jobs are already durable."""
    from corral.cli.arrays import name_of

    if common.json:
        document = jobs[0].model_dump(mode="json") if len(jobs) == 1 else None
        print_json(document or {"jobs": [job.model_dump(mode="json") for job in jobs]})
        return
    names = {
        job.array or job.id: name_of([job]) if job.array else job.name for job in jobs
    }
    for name in names.values():
        say(name)
    last_job = jobs[-1]
    if last_job.array is None:
        note(f"submitted as {last_job.id}; follow it: corral logs -f {last_job.id}")
        return
    count = sum(job.array == last_job.array for job in jobs)
    note(
        f"submitted as {last_job.array} ({counted(count, 'job')}); follow them: "
        f"corral logs -f {last_job.array}"
    )


def tell_when(client: "Client", jobs: "list[api.JobView]", common: Change) -> None:
    """Print to stderr when the first waiting job is predicted to start. The name of the
    job was printed before."""
    from corral.cli.arrays import when_text
    from corral.domain.errors import Refusal, Trouble

    waits = next((job for job in jobs if job.state == "QUEUED"), None)
    if common.json or waits is None:
        return
    sys.stdout.flush()
    with suppress(Refusal, Trouble):  # it is submitted, whatever is known of it
        explanation = client.why(waits.id)
        if explanation.forecast is None:
            return
        if explanation.forecast.starts.high_seconds is None and explanation.reason:
            note(f"{explanation.name} waits: {explanation.reason}")
            for suggestion in explanation.suggestions[:1]:
                note(f"  {suggestion}")
            return
        note(f"{explanation.name} {when_text(explanation.forecast)}")


def _follow_jobs(client: "Client", jobs: "list[api.JobView]", common: Change) -> int:
    from corral.cli.follow import follow_many, follow_one

    if len(jobs) == 1:
        return follow_one(client, jobs[0], common)
    return follow_many(client, jobs, common)
