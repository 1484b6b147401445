"""srun: within a job, a step of this job; outside of a job, a job of its own that srun
follows to its end."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from corral.agent.batch.environment import STEPS
from corral.cli.slurm import srun_components, srun_pty, srun_step
from corral.cli.slurm.http_client import HeadClient
from corral.cli.slurm.sbatch import here, submit
from corral.wire.field_readers import OWN_TOKEN
from corral.wire.slurm.batch_plan import BatchPlan, command_of
from corral.wire.slurm.ids import number_of, raw_of
from corral.wire.slurm.options import ParsedOptions
from corral.wire.slurm.resource_shape import shape_of
from corral.wire.slurm.sbatch import afters, exported, job_fields, plain_name
from corral.wire.slurm.sbatch_options import SRUN
from corral.wire.slurm.slurm_errors import SlurmRefusal

QUIET = "/dev/null"


def main(words: Sequence[str]) -> int:
    if ":" in words:
        return srun_components.run(srun_components.divided(words))
    parsed_options = SRUN.read(words)
    if parsed_options.has("help") or parsed_options.has("usage"):
        print(SRUN.usage())
        return 0
    if parsed_options.get("mpi") == "list":
        print("MPI plugin types are...\n\tnone", file=sys.stderr)
        return 0
    if not parsed_options.rest:
        raise SlurmRefusal("No command given to execute.", before="fatal: ")
    socket = os.environ.get(STEPS)
    if socket and parsed_options.has("pty"):
        raise SlurmRefusal(
            "--pty is not supported inside a job",
            hint="run: corral attach JOB",
        )
    if socket:
        return srun_step.run(parsed_options, socket)
    return (
        srun_pty.run(*_build_spec(parsed_options), parsed_options)
        if parsed_options.has("pty")
        else _run_job(parsed_options)
    )


def _run_job(read: ParsedOptions) -> int:
    """Submit the job, print its output, and return its exit code. Ctrl-C cancels the
    job."""
    spec, notes = _build_spec(read)
    if not read.has("quiet"):
        for note in notes:
            print(f"srun: {note}", file=sys.stderr)
    head = HeadClient()
    job = submit(head, spec, hold=False)[0]
    id, cancelled = str(job["id"]), threading.Event()

    def cancel(number: int, frame: FrameType | None) -> None:
        if not cancelled.is_set():
            cancelled.set()
            threading.Thread(
                target=head.change, args=(id, "cancel"), daemon=True
            ).start()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, cancel)
    if job["state"] in ("QUEUED", "HELD") and not read.has("quiet"):
        print(
            f"srun: job {number_of(id)} queued and waiting for resources",
            file=sys.stderr,
        )
    for piece in head.follow(f"/v1/jobs/{id}/logs", {"follow": 1, "rank": 0}):
        sys.stdout.write(piece.get("data", ""))
        sys.stdout.flush()
    ended_job = head.until_over(id)
    if ended_job["state"] == "DONE":
        return 0
    reason = ended_job["reason"] or ended_job["state"].lower()
    print(f"srun: error: job {raw_of(id)}: {reason}", file=sys.stderr)
    return ended_job["exit_code"] or 1


def _build_spec(read: ParsedOptions) -> tuple[dict[str, object], list[str]]:
    """Build the spec of a job whose script runs all tasks as one step. Return (spec,
    notes for the user)."""
    from shlex import join

    notes: list[str] = []
    shape, submit_context = shape_of(read), here()
    dependencies, singleton = afters(read.get("dependency"))
    if singleton:
        raise SlurmRefusal("--dependency=singleton is supported only by sbatch")
    options = [
        f"--{name}" + (f"={value}" if value else "")
        for name, value in read.options.items()
        if name in ("label", "output", "error", "kill-on-bad-exit", "wait", "open-mode")
    ]
    script = f"#!/bin/sh\nexec srun {join([*options, *read.rest])}\n"
    if read.has("pty"):
        script = srun_pty.SCRIPT
    name = read.get("job-name") or os.path.basename(read.rest[0])
    plan = BatchPlan(
        name=name,
        submit_dir=submit_context.directory,
        submit_host=submit_context.host,
        chdir=os.path.join(submit_context.directory, read.get("chdir") or "."),
        output=QUIET,  # what it prints is followed, and lies in no file
        tasks=shape.tasks,
        tasks_given=True,
        tasks_per_node=shape.tasks_per_node,
        cpus_per_task=shape.cpus_per_task,
        cpus_given=read.has("cpus-per-task"),
        gpus_per_node=shape.gpus_per_node,
        task_gpus=shape.task_gpus,
        memory_bytes_per_node=shape.memory_bytes,
        partition=(read.get("partition") or "default").partition(",")[0],
    )
    notes += shape.notes
    spec = {
        "name": plain_name(name),
        "run": command_of(script, plan),
        "per": "node",
        "env": exported(read.get("export"), submit_context.environment, notes),
        "secrets": [OWN_TOKEN],
        **job_fields(read, shape, submit_context, notes),
        **({"after": dependencies} if dependencies else {}),
    }
    return spec, notes
