"""The host file of mpirun, and how it starts ranks on other nodes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from corral.agent.batch import environment
from corral.agent.batch.remote_start import srun_words
from corral.agent.shim.host_file import HOST_FILE, host_lines, with_host_file
from corral.wire.slurm.batch_plan import BatchPlan

NODES = {"CORRAL_NODES": "10.0.0.1,10.0.0.2", "SLURM_CPUS_ON_NODE": "8"}


@pytest.mark.parametrize(("gpus", "slots"), [("2", 2), ("0", 8)])
def test_a_node_has_a_slot_for_each_gpu_or_cpu(
    tmp_path: Path, gpus: str, slots: int
) -> None:
    env = with_host_file({**NODES, "SLURM_GPUS_ON_NODE": gpus}, str(tmp_path))
    text = Path(env[HOST_FILE]).read_text()
    assert text == f"10.0.0.1 slots={slots}\n10.0.0.2 slots={slots}\n"
    assert text == host_lines(NODES, slots)


def test_the_settings_of_mpirun_that_a_job_chose_stay(tmp_path: Path) -> None:
    chosen = {**NODES, "PRTE_MCA_plm_ssh_agent": "my-ssh"}
    assert with_host_file(chosen, str(tmp_path))["PRTE_MCA_plm_ssh_agent"] == "my-ssh"


def test_without_room_for_the_file_a_job_runs_without_it(tmp_path: Path) -> None:
    assert HOST_FILE not in with_host_file(NODES, str(tmp_path / "missing"))


def test_the_command_of_ssh_becomes_a_task_on_that_node() -> None:
    words = srun_words("/bin-folder", ["-x", "10.0.0.2", "prted", "--name 'a b'"])
    assert words[0] == "/bin-folder/srun"
    assert "--nodelist=10.0.0.2" in words
    assert words[-3:] == ["/bin/sh", "-c", "prted --name 'a b'"]
    with pytest.raises(ValueError, match="no command"):
        srun_words("/bin-folder", ["10.0.0.2"])


def test_outside_of_a_batch_script_no_rank_starts_on_another_node(
    tmp_path: Path,
) -> None:
    env = with_host_file({**NODES, "PATH": os.defpath}, str(tmp_path))
    words = [*env["PRTE_MCA_plm_ssh_agent"].split(), "10.0.0.2", "prted"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert words[0] == sys.executable
    assert "#SBATCH --nodes=2" in done.stderr
    assert done.stderr.rstrip().endswith("corral run FILE")


def test_a_batch_script_has_no_variables_of_a_single_rank(tmp_path: Path) -> None:
    own = with_host_file(
        {
            **NODES,
            "SLURM_NNODES": "2",
            "SLURM_JOB_NODELIST": "10.0.0.[1-2]",
            "SLURMD_NODENAME": "n1",
            "CORRAL_TRACKING_ID": "j1-0123abcd",
            "WANDB_RUN_ID": "j1-0123abcd",
            "WANDB_RESUME": "allow",
            "TF_CONFIG": "{}",
        },
        str(tmp_path),
    )
    plan = BatchPlan(name="x", submit_dir="/", submit_host="h", chdir="/", output="o")
    script = environment.of_script(plan, own, "/bin-folder", began=1.0)
    absent = {"TF_CONFIG", "WANDB_RUN_ID", "WANDB_RESUME", "PRTE_MCA_ras"}
    assert not absent & script.keys(), "srun has its own ranks"
    assert script["PRTE_MCA_plm_ssh_agent"] == own["PRTE_MCA_plm_ssh_agent"]
    chosen = environment.of_script(
        plan, {**own, "WANDB_RUN_ID": "mine"}, "/bin-folder", began=1.0
    )
    assert chosen["WANDB_RUN_ID"] == "mine"
