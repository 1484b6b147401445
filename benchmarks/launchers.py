"""Which world each launcher of training programs gets from Corral.

Run: .venv/bin/python benchmarks/launchers.py [--only NAME ...] [--write FILE.md]
     [--environments DIR]

Each row is a job on a cluster of two nodes with two pretend GPUs each. Its program
(benchmarks/launcher_programs) reports its rank, the size of its world and a sum over
all ranks. Each launcher has a virtual environment, made by pip, that also sees the
packages of this Python (PyTorch, Ray). `--environments` keeps them for another run.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = Path(__file__).parent / "launcher_programs"
CORRAL: Final = str(Path(sysconfig.get_path("scripts")) / "corral")
PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": (),
    "accelerate": ("accelerate",),
    "lightning": ("lightning",),
    "transformers": ("accelerate", "transformers"),
    "deepspeed": ("deepspeed",),
    "openmpi": ("openmpi", "mpi4py"),
    "tensorflow": ("tensorflow-cpu",),
    "jax": ("jax",),
    "ray": ("ray[train,tune]",),
    "torchft": ("torchft",),
    "nvrx": ("nvidia-resiliency-ext",),
}
ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "JAX_PLATFORMS": "cpu",
    "RAY_DEDUP_LOGS": "0",
}
TWO_BY_TWO: Final = "--nodes 2 --gpus 2"
PER_GPU: Final = "--nodes 2 --gpus 2 --per gpu"
WITH_CPUS: Final = "--nodes 2 --gpus 2 --cpus 2"
ONE_NODE: Final = "--gpus 2"
BATCH: Final = "#SBATCH --nodes=2 --ntasks-per-node=2 --gpus-per-node=2"
TORCHRUN: Final = "torchrun --nnodes 2 --nproc-per-node 2"
MASTER: Final = "--master-addr $MASTER_ADDR --master-port $MASTER_PORT"
STATIC: Final = f"{TORCHRUN} --node-rank $NODE_RANK {MASTER}"
C10D: Final = (
    f"{TORCHRUN} --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT "
    "--rdzv-id $CORRAL_JOB_ID.$CORRAL_ATTEMPT"
)
REPORT: Final = re.compile(
    r"WORLD rank=(\d+) size=(\d+) sum=(\S+) node=(\S+) gpus=([\d,]*)"
)
JOB_SECONDS: Final = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherRow:
    """One launcher. `world`: number of processes that must train together; 0: the job
    must fail, with `refusal` in its log."""

    name: str
    packages: str
    resources: str
    command: str
    world: int
    refusal: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    kind: str = "job"


ROWS: Final = (
    LauncherRow(
        name="a process per GPU",
        packages="torch",
        resources=PER_GPU,
        command="python ddp.py",
        world=4,
    ),
    LauncherRow(
        name="torchrun, static",
        packages="torch",
        resources=TWO_BY_TWO,
        command=f"{STATIC} ddp.py",
        world=4,
    ),
    LauncherRow(
        name="torchrun, c10d",
        packages="torch",
        resources=TWO_BY_TWO,
        command=f"{C10D} ddp.py",
        world=4,
    ),
    LauncherRow(
        name="torchrun, standalone",
        packages="torch",
        resources=ONE_NODE,
        command="torchrun --standalone --nproc-per-node 2 ddp.py",
        world=2,
    ),
    LauncherRow(
        name="torch.distributed.launch",
        packages="torch",
        resources=TWO_BY_TWO,
        command="python -m torch.distributed.launch --use-env --nnodes 2 "
        f"--nproc-per-node 2 --node-rank $NODE_RANK {MASTER} ddp.py",
        world=4,
    ),
    LauncherRow(
        name="accelerate launch",
        packages="accelerate",
        resources=TWO_BY_TWO,
        command="accelerate launch --cpu --num_machines 2 --num_processes 2 "
        "--machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR "
        "--main_process_port $MASTER_PORT accelerate_train.py",
        world=2,
    ),
    LauncherRow(
        name="accelerate, a process per GPU",
        packages="accelerate",
        resources=PER_GPU,
        command="python accelerate_train.py",
        world=4,
    ),
    LauncherRow(
        name="Lightning, a process per GPU",
        packages="lightning",
        resources=PER_GPU,
        command="python lightning_fit.py",
        world=4,
        env={"NODES": "2"},
    ),
    LauncherRow(
        name="Lightning starts its processes",
        packages="lightning",
        resources=TWO_BY_TWO,
        command="python lightning_fit.py",
        world=4,
        env={"NODES": "2"},
    ),
    LauncherRow(
        name="Lightning, torchrun",
        packages="lightning",
        resources=TWO_BY_TWO,
        command=f"{STATIC} lightning_fit.py",
        world=4,
        env={"NODES": "2"},
    ),
    LauncherRow(
        name="Fabric, a process per GPU",
        packages="lightning",
        resources=PER_GPU,
        command="python fabric_fit.py",
        world=4,
        env={"NODES": "2"},
    ),
    LauncherRow(
        name="Fabric starts its processes",
        packages="lightning",
        resources=ONE_NODE,
        command="python fabric_fit.py",
        world=2,
    ),
    LauncherRow(
        name="Transformers' Trainer, a process per GPU",
        packages="transformers",
        resources=PER_GPU,
        command="python hf_trainer.py",
        world=4,
    ),
    LauncherRow(
        name="Transformers' Trainer, torchrun",
        packages="transformers",
        resources=TWO_BY_TWO,
        command=f"{STATIC} hf_trainer.py",
        world=4,
    ),
    LauncherRow(
        name="DeepSpeed's launcher, one node",
        packages="deepspeed",
        resources=ONE_NODE,
        command="deepspeed --num_gpus 2 deepspeed_train.py",
        world=2,
    ),
    LauncherRow(
        name="DeepSpeed's launcher, several nodes",
        packages="deepspeed",
        resources=TWO_BY_TWO,
        command="deepspeed --hostfile $CORRAL_HOSTFILE --no_ssh --node_rank $NODE_RANK "
        "--master_addr $MASTER_ADDR --master_port $MASTER_PORT deepspeed_train.py",
        world=4,
    ),
    LauncherRow(
        name="DeepSpeed, torchrun",
        packages="deepspeed",
        resources=TWO_BY_TWO,
        command=f"{STATIC} deepspeed_train.py",
        world=4,
    ),
    LauncherRow(
        name="mpirun in a batch script",
        packages="openmpi",
        resources=BATCH,
        command="mpirun --hostfile $CORRAL_HOSTFILE python mpi_ranks.py",
        world=4,
    ),
    LauncherRow(
        name="mpirun in a batch script, without a host file",
        packages="openmpi",
        resources=BATCH,
        command="mpirun -np 3 python mpi_ranks.py",
        world=3,
    ),
    LauncherRow(
        name="mpirun on one node",
        packages="openmpi",
        resources=ONE_NODE,
        command="mpirun -np 2 python mpi_ranks.py",
        world=2,
    ),
    LauncherRow(
        name="mpirun in a plain command on two nodes",
        packages="openmpi",
        resources=TWO_BY_TWO,
        command="mpirun -np 4 python mpi_ranks.py",
        world=0,
        refusal="mpirun starts ranks on other nodes only from a batch script",
    ),
    LauncherRow(
        name="TensorFlow",
        packages="tensorflow",
        resources=TWO_BY_TWO,
        command="python mirrored.py",
        world=2,
    ),
    LauncherRow(
        name="TensorFlow, a process per GPU",
        packages="tensorflow",
        resources=PER_GPU,
        command="python mirrored.py",
        world=4,
    ),
    LauncherRow(
        name="JAX, a process per GPU",
        packages="jax",
        resources=PER_GPU,
        command="python jax_sum.py",
        world=4,
    ),
    LauncherRow(
        name="JAX, a process per node",
        packages="jax",
        resources=TWO_BY_TWO,
        command="python jax_sum.py",
        world=0,
        refusal="should be defined",
    ),
    LauncherRow(
        name="Ray Train",
        packages="ray",
        resources=WITH_CPUS,
        command="python ray_train.py",
        world=4,
        kind="ray",
    ),
    LauncherRow(
        name="Ray Tune",
        packages="ray",
        resources=WITH_CPUS,
        command="python ray_tune.py",
        world=4,
        kind="ray",
    ),
    LauncherRow(
        name="torchft, a replica group per node",
        packages="torchft",
        resources=TWO_BY_TWO,
        command="if [ $NODE_RANK = 0 ]; then torchft_lighthouse --min_replicas 2 "
        "--bind 0.0.0.0:$MASTER_PORT & fi; "
        "export TORCHFT_LIGHTHOUSE=http://$MASTER_ADDR:$MASTER_PORT "
        "REPLICA_GROUP_ID=$NODE_RANK; "
        "torchrun --standalone --nproc-per-node 1 torchft_ddp.py; "
        "code=$?; kill %1 2>/dev/null; exit $code",
        world=2,
    ),
    LauncherRow(
        name="ft_launcher",
        packages="nvrx",
        resources=TWO_BY_TWO,
        command="ft_launcher --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d "
        "--rdzv-endpoint $MASTER_ADDR:$MASTER_PORT "
        "--rdzv-id $CORRAL_JOB_ID.$CORRAL_ATTEMPT ddp.py",
        world=4,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherOutcome:
    """Result of one row. `world`: the processes that reported the same size and sum;
    0 if they did not agree."""

    row: LauncherRow
    state: str
    world: int
    nodes: int
    gpus: tuple[str, ...]
    seconds: float
    last_lines: str

    @property
    def is_right(self) -> bool:
        if self.row.world == 0:
            return self.state == "FAILED" and self.row.refusal in self.last_lines
        return self.state == "DONE" and self.world == self.row.world


def make_environment(folder: Path, packages: Sequence[str]) -> None:
    """Create a virtual environment with the packages, unless it exists."""
    if (folder / "ready").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    source = Path(__file__).resolve().parents[1] / "src"
    lines = f"{sysconfig.get_path('purelib')}\n{source}\n"
    (site / "zz_outer_packages.pth").write_text(lines)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", *packages]
    if packages:
        subprocess.run(pip, check=True)
    torchrun = folder / "bin/torchrun"
    if not torchrun.exists():
        python = folder / "bin/python"
        torchrun.write_text(f'#!/bin/sh\nexec {python} -m torch.distributed.run "$@"\n')
        torchrun.chmod(0o755)
    (folder / "ready").touch()


class LauncherCluster:
    """A cluster of two nodes with two pretend GPUs each, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._env = {**os.environ, "CORRAL_DIR": str(folder / "cluster")}
        self.corral("up", "--nodes", "2", "--gpus", "2", "--pretend")

    def corral(self, *words: str) -> str:
        done = subprocess.run(
            [CORRAL, *words],
            env=self._env,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=JOB_SECONDS,
            check=False,
        )
        return done.stdout.decode(errors="replace")

    def submit(self, row: LauncherRow, environment: Path) -> str:
        """Submit the job of the row, and return its id."""
        command = f"cd {PROGRAMS} && {row.command}"
        if row.resources.startswith("#SBATCH"):
            path = f"export PATH={environment}/bin:$PATH"
            script = self._folder / "job.sh"
            exports = "".join(f"export {k}={v}\n" for k, v in ENVIRONMENT.items())
            script.write_text(
                f"#!/bin/bash\n{row.resources}\n#SBATCH --output=/dev/null\n"
                f"{exports}{path}\n{command}\n"
            )
            answer = self.corral("run", "-d", str(script))
        else:
            spec = self._folder / "job.json"
            spec.write_text(json.dumps(job_spec(row, command, environment)))
            answer = self.corral("apply", "-f", str(spec))
        ids = re.findall(r"\bj\d+\b", answer)
        if not ids:
            raise RuntimeError(f"the job was not accepted: {answer}")
        return str(ids[0])

    def wait(self, job: str) -> str:
        """Return the state in which the job ended; "TIMEOUT" after JOB_SECONDS."""
        until = time.monotonic() + JOB_SECONDS
        while time.monotonic() < until:
            state = str(json.loads(self.corral("show", job, "--json"))["state"])
            if state in ("DONE", "FAILED", "CANCELLED"):
                return state
            time.sleep(0.5)
        self.corral("cancel", job)
        return "TIMEOUT"


def job_spec(row: LauncherRow, command: str, environment: Path) -> dict[str, Any]:
    """Return the spec of the row's job."""
    words = row.resources.split()
    options = dict(zip(words[::2], words[1::2], strict=True))
    return {
        "kind": row.kind,
        "name": re.sub(r"[^a-z0-9]+", "-", row.name.lower()),
        "run": command,
        "nodes": int(options.get("--nodes", 1)),
        "resources": {
            "gpu": int(options["--gpus"]),
            **({"cpu": int(options["--cpus"])} if "--cpus" in options else {}),
        },
        **({"per": "gpu"} if "--per" in options else {}),
        "env": {**ENVIRONMENT, **row.env, "VIRTUAL_ENV": str(environment)},
    }


def run_row(row: LauncherRow, cluster: LauncherCluster, env: Path) -> LauncherOutcome:
    make_environment(env, PACKAGES[row.packages])
    began = time.monotonic()
    job = cluster.submit(row, env)
    state = cluster.wait(job)
    log = cluster.corral("logs", job)
    reports = {match.group(1): match for match in REPORT.finditer(log)}
    sizes = {(int(m[2]), float(m[3])) for m in reports.values()}
    agrees = sizes == {(len(reports), float(len(reports)))}
    nodes = {match[4] for match in reports.values()}
    return LauncherOutcome(
        row=row,
        state=state,
        world=len(reports) if agrees else 0,
        nodes=len(nodes),
        gpus=tuple(sorted({match[5] for match in reports.values()})),
        seconds=time.monotonic() - began,
        last_lines=log[-4000:],
    )


def page(outcomes: Sequence[LauncherOutcome]) -> str:
    """Return the outcomes as a page."""
    lines = [
        "# Worlds that launchers got",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; `benchmarks/launchers.py`",
        "",
        "| launcher | resources | asked | got | nodes | ended | s | right |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {o.row.name} | `{o.row.resources}` | {o.row.world or 'refusal'} | {o.world} "
            f"| {o.nodes} | {o.state} | {o.seconds:.0f} | {'yes' if o.is_right else 'NO'} |"
            for o in outcomes
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--environments", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    rows = [
        row
        for row in ROWS
        if not arguments.only or any(word in row.name for word in arguments.only)
    ]
    outcomes: list[LauncherOutcome] = []
    with ExitStack() as stack:
        room = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environments = arguments.environments or room / "environments"
        cluster = LauncherCluster(room)
        stack.callback(cluster.corral, "down")
        for row in rows:
            outcome = run_row(row, cluster, environments / row.packages)
            outcomes.append(outcome)
            gpus = "; ".join(outcome.gpus)
            result = f"world {outcome.world} on {outcome.nodes} nodes, GPUs {gpus}"
            print(f"{row.name}: {outcome.state}, {result}, {outcome.seconds:.0f} s")
            if not outcome.is_right:
                print(outcome.last_lines)
            if arguments.write:
                arguments.write.write_text(page(outcomes))
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
