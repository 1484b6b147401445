"""Slurm's commands over a real cluster, and programs that nobody here wrote on top of
them."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House, house, until

TORCHRUN = """#!/bin/bash
#SBATCH --job-name=multinode-example
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=1

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)

echo Node IP: $head_node_ip
srun bash -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'
"""

SUBMITIT = """
import os, signal, time
import submitit


def add(one, other):
    return one + other


def fail():
    raise ValueError("by intention")


class Counts(submitit.helpers.Checkpointable):
    def __init__(self):
        self.begun = 0

    def __call__(self):
        self.begun += 1
        if self.begun < 2:
            os.kill(os.getpid(), signal.SIGUSR2)  # as before the limit, and not by a clock
            time.sleep(600)
        return self.begun


def place():
    here = submitit.JobEnvironment()
    return here.global_rank, here.local_rank, here.node, here.num_tasks, here.num_nodes


def executor(**more):
    made = submitit.AutoExecutor(folder="logs", cluster="slurm")
    made.update_parameters(**{"timeout_min": 5, **more})
    return made


told = executor().submit(Counts())
array = executor(slurm_array_parallelism=2).map_array(add, [1, 2, 3], [10, 20, 30])
gang = executor(nodes=2, tasks_per_node=2).submit(place)
failed = executor().submit(fail)
print([job.result() for job in array])
print(sorted(gang.results()))
print("by intention" in str(failed.exception()))
print(told.result())
"""

DASK = """
from dask_jobqueue import SLURMCluster
from distributed import Client

if __name__ == "__main__":
    cluster = SLURMCluster(
        cores=1, memory="300MB", processes=1, walltime="00:10:00", interface="lo",
        local_directory="dask", log_directory="dask",
    )
    cluster.scale(jobs=1)
    with Client(cluster) as client:
        print(client.submit(sum, [40, 2]).result(timeout=120))
    cluster.close()
"""


class Login:
    """The shell of somebody who knows Slurm, in a folder of this machine."""

    def __init__(self, made: House) -> None:
        self.house = made
        self.folder = made.root.parent / "work"
        self.folder.mkdir()
        self.bin = made.root.parent / "bin"
        made.ok("slurm-shims", "--into", str(self.bin))

    def __call__(self, *words: str, code: int | None = 0) -> str:
        """What a command prints; its standard error where it is to fail."""
        done = self.start(*words)
        assert code is None or done.returncode == code, (
            words,
            done.stdout,
            done.stderr,
        )
        return done.stdout if not code else done.stderr

    def start(self, *words: str) -> "subprocess.CompletedProcess[str]":
        kept = {name: one for name, one in os.environ.items() if "CORRAL" not in name}
        path = f"{self.bin}:{kept['PATH']}"
        env = {**kept, "PATH": path, "CORRAL_DIR": str(self.house.root), "TZ": "UTC"}
        return subprocess.run(
            words,
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE_SECONDS,
        )

    def script(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def submitted(self, *words: str) -> str:
        return self("sbatch", "--parsable", *words).strip()

    def output(self, number: str) -> str:
        return (self.folder / f"slurm-{number}.out").read_text()


@pytest.fixture(scope="module")
def login() -> Iterator[Login]:
    with house("--nodes", "2", "--gpus", "2", "--pretend") as made:
        yield Login(made)


def test_a_batch_script_of_pytorchs_examples_runs_as_it_is(login: Login) -> None:
    said = login("sbatch", "--wait", login.script("train.sbatch", TORCHRUN))
    number = said.split()[-1]
    assert said == f"Submitted batch job {number}\n"
    lines = login.output(number).splitlines()
    assert lines[0] == "Node IP: 127.1.0.1"
    assert sorted(lines[1:]) == ["rank 0 of 2 on n1 0", "rank 1 of 2 on n2 0"]
    assert "rank 1 of 2 on n2" in login.house.logs(f"j{number}")


def test_a_scripts_end_is_the_jobs_end(login: Login) -> None:
    login("sbatch", "--wait", "--wrap", "echo begun; exit 7", "-J", "ends", code=7)
    row = login("sacct", "-nP", "--name", "ends", "-o", "State,ExitCode")
    assert row == "FAILED|7:0\n"


def test_srun_without_a_job_is_a_job_that_ends_as_its_tasks_do(login: Login) -> None:
    assert login("srun", "-N2", "-n4", "-l", "echo", "hi").count(": hi\n") == 4
    done = login.start("srun", "sh", "-c", "exit 3")
    assert (done.returncode, "task 0: Exited with exit code 3" in done.stdout) == (
        3,
        True,
    )


@pytest.mark.parametrize(("code", "state"), [(3, "FAILED"), (0, "DONE")])
def test_a_terminal_is_a_job_that_ends_as_what_ran_there(
    login: Login, code: int, state: str
) -> None:
    does = f"test -t 0 && echo terminal; [ $PWD = $SLURM_SUBMIT_DIR ] && echo here; exit {code}"
    done = login.start("srun", "--pty", "-J", f"shell{code}", "sh", "-c", does)
    assert (done.returncode, done.stdout.split()) == (code, ["terminal", "here"])
    with login.house.client() as client:
        (job,) = [
            job for job in client.jobs(everything=True) if job.name == f"shell{code}"
        ]
    over = login.house.until_over(job.id)
    assert (over.state, over.exit_code) == (state, code)


def test_jobs_are_listed_held_let_go_and_cancelled_by_their_numbers(
    login: Login,
) -> None:
    held = login.submitted("--hold", "-J", "held", "--wrap", "true")
    array = login.submitted(
        "-a", "0-3%1", "-J", "long", "--gres=gpu:1", "--wrap", "sleep 600"
    )
    until(
        lambda: f"{array}_0 R" in login("squeue", "-h", "-r", "-o", "%i %t"), "it runs"
    )
    lines = login("squeue", "-h", "-o", "%i|%j|%t|%r").splitlines()
    assert f"{held}|held|PD|JobHeldUser" in lines
    assert any(line.startswith(f"{array}_[1-3]|long|PD|") for line in lines)
    login("scontrol", "release", held)
    until(
        lambda: login("sacct", "-nPX", "-j", held, "-o", "State") == "COMPLETED\n",
        "let go",
    )
    login("scancel", f"{array}_[0-1]", f"{array}_2")
    login("scancel", "-n", "long")
    until(lambda: array not in login("squeue", "-h"), "cancelled")
    states = set(login("sacct", "-nPX", "-j", array, "-o", "State").splitlines())
    assert {state.split()[0] for state in states} == {"CANCELLED"}


def test_a_signal_goes_to_the_steps_or_to_the_script(login: Login) -> None:
    marks = login.folder / "signals"
    trap = (
        "trap 'echo {0} >> {1}' USR1; echo up-{0} >> {1}; while :; do sleep 0.2; done"
    )
    ends = f"trap 'echo term >> {marks}; exit' TERM"
    step = login.script("step.sh", f"{ends}; {trap.format('step', marks)}\n")
    text = f"#!/bin/sh\nsrun sh {step} &\n{trap.format('script', marks)}\n"
    id = login.submitted("--gres=gpu:1", login.script("signals.sh", text))

    def said(*words: str) -> None:
        until(
            lambda: (
                marks.exists() and sorted(marks.read_text().split()) == sorted(words)
            ),
            "it",
        )

    up = ("up-step", "up-script")
    said(*up)
    login.house.until_state(f"j{id}", "RUNNING")
    login("scancel", "-s", "USR1", id)
    said(*up, "step")
    login("scancel", "--signal=SIGUSR1", "-b", id)
    said(*up, "step", "script")
    login("scancel", "-f", "-s", "10", id)
    said(*up, "step", "step", "script", "script")
    login.house.ok("cancel", "--signal", "USR1", f"j{id}", "-y")  # Corral's own: as -f
    said(*up, *["step", "script"] * 3)
    # to the steps: the script goes on, and so does the job
    login("scancel", "-s", "TERM", id)
    said(*up, *["step", "script"] * 3, "term")
    assert login("squeue", "-h", "-j", id, "-o", "%T") == "RUNNING\n"
    login("scancel", id)
    login.house.until_state(f"j{id}", "CANCELLED")
    marks.unlink()
    array = login.submitted("--array=0-1", "--gres=gpu:1", "signals.sh")
    said(*up, *up)
    for index in (0, 1):
        login.house.until_state(f"j{array}_{index}", "RUNNING")
    login("scancel", "-f", "-s", "USR1", array)
    said(*up, *up, "step", "step", "script", "script")
    held = login.submitted("--hold", "--wrap", "true")
    assert login("scancel", "-s", "USR1", held, code=1) == (
        f"scancel: error: Kill job error on job id {held}: Job is pending execution\n"
    )
    login.house.ok("cancel", "--signal", "KILL", f"j{array}", "-y")
    for index in (0, 1):
        login.house.until_state(f"j{array}_{index}", "FAILED")
    login("scancel", array, held)
    assert not login("scancel", "-s", "USR1", id)


def test_a_job_goes_after_another_and_begins_anew_when_asked(login: Login) -> None:
    marks = login.folder / "marks"
    wait = f"echo $SLURM_RESTART_COUNT >> {marks}; [ $SLURM_RESTART_COUNT = 1 ] || sleep 600"
    first = login.submitted("--wrap", wait)
    second = login.submitted(
        "-d", f"afterok:{first}", "--wrap", f"echo after >> {marks}"
    )
    assert login("squeue", "-h", "-j", second, "-o", "%R") == "(Dependency)\n"
    login.house.until_there(marks)
    login("scontrol", "requeue", first)
    until(
        lambda: (
            login("squeue", "-h", "-j", second, "-t", "all", "-o", "%T")
            == "COMPLETED\n"
        ),
        "both",
    )
    assert marks.read_text().split() == ["0", "1", "after"]


def test_an_array_that_is_held_begins_only_when_it_is_released(login: Login) -> None:
    array = login.submitted("-H", "-a", "0-199", "-J", "rows", "--wrap", "true")
    assert login("squeue", "-h", "-j", array, "-o", "%i|%t|%r") == (
        f"{array}_[0-199]|PD|JobHeldUser\n"
    )
    login("scontrol", "release", f"{array}_0")
    until(
        lambda: "_[1-199]|" in login("squeue", "-h", "-j", array, "-o", "%i|"),
        "one has begun",
    )
    done = f"{array}_0"
    until(
        lambda: login("sacct", "-nPX", "-j", done, "-o", "State") == "COMPLETED\n",
        "it is over",
    )
    login("scancel", array)


def test_a_login_shell_keeps_the_commands_and_the_job_shows_its_files(
    login: Login,
) -> None:
    text = "#!/bin/bash -l\nsource /etc/profile\nsrun echo by srun\nsqueue -h -o %A\n"
    number = login.submitted("-W", "-o", "%x-%j.txt", login.script("login.sh", text))
    assert (
        login.folder / f"login.sh-{number}.txt"
    ).read_text() == f"by srun\n{number}\n"
    shown = login("scontrol", "show", "job", number)
    folder = login.folder
    for line in (
        f"Command={folder}/login.sh",
        f"WorkDir={folder}",
        f"StdOut={folder}/login.sh-{number}.txt",
        f"StdErr={folder}/login.sh-{number}.txt",
    ):
        assert f"   {line}\n" in shown
    row = login("squeue", "-h", "-t", "all", "-j", number, "-o", "%Z %o")
    assert row == f"{folder} {folder}/login.sh\n"


def test_mpirun_starts_its_daemons_on_each_node_of_the_host_file(login: Login) -> None:
    """As mpirun does without srun: a daemon for each host, by its agent instead of
    ssh."""
    text = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2
cat $CORRAL_HOSTFILE
for host in $(cut -d " " -f 1 $CORRAL_HOSTFILE); do
    $PRTE_MCA_plm_ssh_agent -x $host 'echo "daemon on $CORRAL_NODE"; exit 0'
done
"""
    number = login.submitted("-W", "-o", "mpi-%j.txt", login.script("mpi.sh", text))
    printed = (login.folder / f"mpi-{number}.txt").read_text().splitlines()
    assert printed[:2] == ["127.77.0.1 slots=1", "127.77.0.2 slots=1"]
    assert sorted(printed[2:]) == ["daemon on n1", "daemon on n2"]


def test_components_that_ask_for_the_same_run_side_by_side(login: Login) -> None:
    text = """#!/bin/bash
#SBATCH --job-name=role-0 --ntasks-per-node=1 --cpus-per-task=1
#SBATCH hetjob
#SBATCH --job-name=role-1 --ntasks-per-node=1 --cpus-per-task=1
echo of $SLURM_JOB_NODELIST_HET_GROUP_0 $SLURM_JOB_NODELIST_HET_GROUP_1
srun --kill-on-bad-exit=1 sh -c 'echo a $SLURMD_NODENAME' :\\
    --kill-on-bad-exit=1 sh -c 'echo b $SLURMD_NODENAME; sleep 2; exit 3'
"""
    number = login(
        "sbatch", "--parsable", "--wait", login.script("two.sh", text), code=3
    )
    number = login(
        "sacct", "-nPX", "-N", "n1", "--name", "role-0", "-o", "JobID"
    ).split()[-1]
    lines = login.output(number).splitlines()
    assert [lines.count("a n1"), lines.count("b n2")] == [1, 1]


def test_accounts_are_queues(login: Login) -> None:
    me = login("id", "-un").strip()
    asked = ("-n", "-s", "list", "user", me, "format=account%256")
    assert [line.strip() for line in login("sacctmgr", *asked).splitlines()] == [
        "default"
    ]
    of_shares = ("-U", "--format", "Account%256", "--noheader")
    assert [line.strip() for line in login("sshare", *of_shares).splitlines()] == [
        "default"
    ]
    assert "corral queue set" in login("sacctmgr", "add", "account", "x", code=1)


def test_what_waits_is_updated_and_what_runs_is_not(login: Login) -> None:
    id = login.submitted("--hold", "-J", "held", "--wrap", "true")
    login(
        "scontrol",
        "update",
        f"JobId={id}",
        "TimeLimit=1:30:00",
        "JobName=new",
        "Priority=7",
    )
    shown = login("squeue", "-h", "-j", id, "-o", "%j %l")
    assert shown.split() == ["new", "1:30:00"]
    assert "Priority=7" in login("scontrol", "show", "job", id)
    assert "not supported" in login(
        "scontrol", "update", f"JobId={id}", "NumNodes=2", code=1
    )
    assert "none" in login(
        "scontrol", "update", f"JobId={id}", "Partition=none", code=1
    )
    login("scancel", id)


def test_what_slurm_refuses_is_refused_in_its_words(login: Login) -> None:
    nope = login.script("nope.sh", "echo hi\n")
    assert "sbatch: error: This does not look like a batch script." in login(
        "sbatch", nope, code=1
    )
    assert "sbatch: error: Unable to open file gone.sh" in login(
        "sbatch", "gone.sh", code=1
    )
    assert "--reservation" in login(
        "sbatch", "--reservation=x", "--wrap", "true", code=1
    )
    login("scancel", "999999")
    assert login("scontrol", "requeue", "999999", code=1) == (
        "Invalid job id specified for job 999999\n"
    )
    assert login("squeue", "-j", "999999", code=1) == (
        "slurm_load_jobs error: Invalid job id specified\n"
    )
    assert login("sbatch", "--frob", code=255) == (
        "sbatch: unrecognized option '--frob'\nTry \"sbatch --help\" for more information\n"
    )
    assert login("sbatch", "-t", "soon", "--wrap", "x", code=255) == (
        "sbatch: error: Invalid --time specification\n"
    )
    assert "corral attach" in login("salloc", code=1)
    assert "sinfo" in login("sinfo", "--help")


def test_submitit_submits_maps_fails_and_is_requeued_by_its_own_signal(
    login: Login,
) -> None:
    script = login.script("with_submitit.py", SUBMITIT)
    lines = login(sys.executable, script).splitlines()
    assert lines == [
        "[11, 22, 33]",
        "[(0, 0, 0, 4, 2), (1, 1, 0, 4, 2), (2, 0, 1, 4, 2), (3, 1, 1, 4, 2)]",
        "True",
        "2",
    ]


def test_dask_computes_on_workers_that_it_starts_as_jobs_and_ends(login: Login) -> None:
    script = login.script("with_dask.py", DASK)
    assert login(sys.executable, script).splitlines()[-1] == "42"
    until(
        lambda: "dask-worker" not in login("squeue", "-h", "-o", "%j"),
        "its workers are gone",
    )


def test_a_shim_answers_before_its_heavy_parts_could_be_loaded(login: Login) -> None:
    """Not by a clock: what makes a start slow is not imported."""
    heavy = ("pydantic", "httpx2", "sqlalchemy", "fastapi", "cyclopts", "rich")
    code = (
        "import sys; from corral.cli.slurm.__main__ import main; main(['squeue']);"
        f"print('loaded', *(one for one in {heavy} if one in sys.modules))"
    )
    assert login(sys.executable, "-P", "-c", code).splitlines()[-1] == "loaded"
