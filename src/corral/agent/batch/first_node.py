"""The first node of a batch job: it runs the script, writes its output files and
returns its exit code."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from corral.agent.batch import environment
from corral.agent.batch.allocation import BatchAllocation
from corral.agent.clocks import wall
from corral.agent.shim.host_file import HOST_FILE, host_lines
from corral.wire.slurm.batch_plan import SCRIPT, BatchPlan
from corral.wire.slurm.paths import file_name
from corral.wire.slurm.shims import COMMANDS

READ_BYTES: Final = 65536
NO_SUCH_PROGRAM: Final = 127
STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_script(plan: BatchPlan, own: Mapping[str, str]) -> int:
    """Run the script and its steps until the script ends. Return its exit code, which
    is 128 plus the signal number after a signal."""
    script = Path.cwd() / SCRIPT
    script.chmod(0o755)
    room = Path(tempfile.mkdtemp(prefix="corral-batch-"))
    try:
        bin_folder = str(write_commands(Path.cwd(), own["CORRAL_PYTHON"]))
        env = environment.of_script(plan, own, bin_folder, wall())
        env[environment.STEPS] = str(room / "steps")
        if plan.tasks_given:
            hosts = room / "hostfile"
            hosts.write_text(host_lines(own, plan.tasks_per_node))
            env[HOST_FILE] = str(hosts)
        allocation = BatchAllocation(
            plan, {**own, environment.BIN: env[environment.BIN]}
        )
        allocation.serve(env[environment.STEPS])
        try:
            code = _run_batch_script([str(script), *plan.arguments], plan, env)
        finally:
            allocation.over()
        if code == 0:  # a failure ends the other nodes by itself
            for number in STOPS:
                signal.signal(number, signal.SIG_DFL)
            allocation.wait_for_departures()
        return code
    finally:
        shutil.rmtree(room, ignore_errors=True)


def write_commands(folder: Path, python: str) -> Path:
    """Write Slurm's commands for the script and its tasks, and return their folder."""
    path = folder / "slurm-bin"
    path.mkdir(exist_ok=True)
    for name in COMMANDS:
        file = path / name
        file.write_text(
            f'#!/bin/sh\nexec {python} -P -m corral.cli.slurm {name} "$@"\n'
        )
        file.chmod(0o755)
    return path


def _run_batch_script(
    words: Sequence[str], plan: BatchPlan, env: Mapping[str, str]
) -> int:
    for number in STOPS:
        # the script receives the signal itself; this process waits for it
        signal.signal(number, lambda _, __: None)
    known_variables = _placeholder_values(plan, env)
    output_file = _open_output_file(plan, plan.output, known_variables)
    err = (
        output_file
        if plan.error is None
        else _open_output_file(plan, plan.error, known_variables)
    )
    try:
        process = subprocess.Popen(
            words,
            env=env,
            cwd=_choose_workdir(plan),
            stdin=_open_input_file(plan, known_variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if plan.error is None else subprocess.PIPE,
        )
    except OSError as trouble:
        text = f"slurmstepd: error: execve(): {words[0]}: {trouble.strerror}\n".encode()
        _tee_writer(err)(text)
        return NO_SUCH_PROGRAM
    readers = [
        _start_reader_thread(file, _tee_writer(to))
        for file, to in ((process.stdout, output_file), (process.stderr, err))
        if file
    ]
    code = process.wait()
    for reader in readers:
        reader.join(2.0)  # what it left behind may hold its output open
    return code if code >= 0 else 128 - code


def _placeholder_values(plan: BatchPlan, env: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the placeholders in the names of output files, by
    placeholder."""
    number = env["SLURM_JOB_ID"]
    return {
        "j": number,
        "J": number,
        "A": env.get("SLURM_ARRAY_JOB_ID", number),
        "a": env.get("SLURM_ARRAY_TASK_ID", "4294967294"),
        "b": str(int(env.get("SLURM_ARRAY_TASK_ID", "0")) % 10),
        "x": plan.name,
        "N": env["SLURMD_NODENAME"],
        "n": "0",
        "t": "0",
        "s": "batch",
        "u": env.get("SLURM_JOB_USER", "") or env.get("USER", ""),
    }


def _open_output_file(
    plan: BatchPlan, pattern: str, known: Mapping[str, str]
) -> IO[bytes] | None:
    """Open the script's output file. Return None if the folder of the file is not on
    this node. The head keeps the log in either case."""
    path = os.path.join(plan.chdir, file_name(pattern, known))
    try:
        return open(path, "ab" if plan.append else "wb", buffering=0)
    except OSError as trouble:
        say = (
            f"the output file {path} cannot be written on {known['N']}: "
            f"{trouble.strerror}; run: corral logs"
        )
        print(f"sbatch: note: {say} j{known['j']}", file=sys.stderr, flush=True)
        return None


def _open_input_file(plan: BatchPlan, known: Mapping[str, str]) -> int:
    if plan.input is None:
        return subprocess.DEVNULL
    return os.open(os.path.join(plan.chdir, file_name(plan.input, known)), os.O_RDONLY)


def _choose_workdir(plan: BatchPlan) -> str:
    if os.path.isdir(plan.chdir):
        return plan.chdir
    current_dir = os.getcwd()
    text = f"slurmstepd: error: couldn't chdir to `{plan.chdir}': going to {current_dir} instead"
    print(text, file=sys.stderr, flush=True)
    return current_dir


def _tee_writer(file: IO[bytes] | None) -> Callable[[bytes], None]:
    """Return a function that writes bytes to the file and to stdout, the log that the
    head keeps."""

    def write(data: bytes) -> None:
        for descriptor in (1, *((file.fileno(),) if file is not None else ())):
            remaining_bytes = memoryview(data)
            while remaining_bytes:
                try:
                    remaining_bytes = remaining_bytes[
                        os.write(descriptor, remaining_bytes) :
                    ]
                except OSError:
                    # the disk is full, or the reader has gone: the script continues
                    break

    return write


def _start_reader_thread(
    file: IO[bytes], write: Callable[[bytes], None]
) -> threading.Thread:
    def read() -> None:
        while data := os.read(file.fileno(), READ_BYTES):
            write(data)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
