"""Jobs on a whole cluster of real processes: how they end is what is told."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import CORRAL, House, house, until, wait_in_shell

pytestmark = pytest.mark.xdist_group("ends")
BASH = "/bin/bash"


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "2") as made:
        yield made


@pytest.mark.parametrize(
    ("command", "code", "own_code", "state"),
    [
        ("true", 0, 0, "DONE"),
        ("false", 1, 1, "FAILED"),
        ("exit 7", 1, 7, "FAILED"),
        ("kill -SEGV $$", 1, 139, "FAILED"),
        ("/no/such/program", 1, 127, "FAILED"),
    ],
)
def test_corral_run_ends_as_the_job_does_and_shows_its_code(
    here: House, command: str, code: int, own_code: int, state: str
) -> None:
    done = here.corral("run", "-n", "ends", "--no-workdir", "--", command)
    job = here.job("ends")
    assert (done.returncode, job.exit_code, job.state) == (code, own_code, state)
    assert code == 0 or f"exit code {own_code}" in done.stderr


def test_standard_output_of_run_is_the_jobs_own(here: House) -> None:
    done = here.corral(
        "run", "-n", "says", "--no-workdir", "-y", "--", "echo out; echo err >&2"
    )
    said = done.stdout.splitlines()
    assert sorted(said[-2:]) == ["err", "out"]


def test_a_gang_has_one_rank_a_gpu_and_each_knows_its_place(here: House) -> None:
    words = [
        "run",
        "-n",
        "gang",
        "-N",
        "2",
        "--gpus",
        "2",
        "--per",
        "gpu",
        "--no-workdir",
    ]
    here.ok(*words, "--", "echo $RANK of $WORLD_SIZE on $CORRAL_NODE")
    lines = here.ok("logs", "gang").splitlines()
    assert sorted(lines) == [
        f"[{rank}] {rank} of 4 on n{1 + rank // 2}" for rank in range(4)
    ]
    assert here.ok("logs", "gang", "--rank", "3") == "3 of 4 on n2\n"
    assert here.ok("logs", "gang", "--search", "3 OF 4") == "[3] 3 of 4 on n2\n"


def test_the_workdir_travels_as_it_was_at_submit(here: House) -> None:
    project = here.root.parent / "project"
    (project / "cache").mkdir(parents=True)
    (project / "run.sh").write_text("cat message; ls cache 2>&1\n")
    (project / "message").write_text("as submitted\n")
    (project / ".corralignore").write_text("cache/\n")
    (project / "cache" / "big").write_text("stays here")
    name = here.ok(
        "run", "-d", "-n", "travels", "--workdir", str(project), "--", "sh", "run.sh"
    )
    (project / "message").write_text("changed afterwards\n")
    assert name == "travels\n"
    assert here.until_over("travels").state == "FAILED"  # ls finds no cache
    assert "as submitted" in here.logs("travels")


def test_an_array_runs_each_index_and_no_more_at_once_than_it_may(here: House) -> None:
    log = here.shared / "array.log"
    run = f"echo + >> {log}; sleep 0.2; echo - >> {log}; exit $((CORRAL_ARRAY_INDEX == 2))"
    with here.client() as client:
        jobs = client.submit({"name": "array", "run": run, "array": "0-4%2"})
    ends = {job.name: here.until_over(job.id).exit_code for job in jobs}
    assert ends == {f"array_{index}": int(index == 2) for index in range(5)}
    running = most = 0
    for line in log.read_text().split():
        running += 1 if line == "+" else -1
        most = max(most, running)
    assert most <= 2
    late = here.corral("stop", "array", "-y")
    over = "all jobs of the array array have already ended"
    assert (late.returncode, over in late.stderr) == (3, True)


def test_after_waits_for_what_it_names_and_never_means_cancelled(here: House) -> None:
    go = here.shared / "first-may-end"
    first = here.submit("first", f"{wait_in_shell(go)}; false")
    then = here.submit("then", "true", after=[{"job": first, "on": "failed"}])
    never = here.submit("never", "true", after=[{"job": first, "on": "done"}])
    assert here.job(never).state == "HELD"
    go.touch()
    assert here.until_over(then).state == "DONE"
    assert here.until_over(never).state == "CANCELLED"
    assert here.job(first).ended_at <= here.job(then).started_at  # type: ignore[operator]


def test_a_suspended_job_gives_its_gpus_back_and_resumes_as_its_next_attempt(
    here: House,
) -> None:
    id = here.submit("pauses", "sleep 300", resources={"gpu": 2}, nodes=2)
    here.until_state(id, "RUNNING")
    here.ok("suspend", id, "-y")
    here.until_state(id, "SUSPENDED")
    assert here.answer("status")["gpus"]["free"] == 4
    here.ok("resume", id, "-y")
    here.until_state(id, "RUNNING")
    assert here.job(id).attempt == 2
    here.ok("stop", id, "-y")
    assert here.until_over(id).state == "CANCELLED"


def test_cancel_ends_what_ignores_term_forks_twice_and_leaves_its_session(
    here: House,
) -> None:
    pids = here.shared / "stubborn"
    child = f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 1; done"
    run = f'trap "" TERM; (setsid {BASH} -c "{child.replace("$", chr(92) + "$")}" &) ; {child}'
    id = here.submit("stubborn", run, grace="1s")
    until(
        lambda: pids.exists() and len(pids.read_text().split()) == 2, "both are there"
    )
    here.ok("stop", id, "-y")
    job = here.until_over(id)
    assert job.state == "CANCELLED"
    mark = f"attempts/{id}.1/"
    ranks = [pid for pid in here.processes() if mark in _environ(pid)]
    assert ranks == [], "a process outlives its attempt"


def _environ(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def test_a_flood_of_logs_hurts_neither_the_head_nor_the_reader(here: House) -> None:
    id = here.submit("flood", "timeout 3 yes abcdefghijklmnopqrstuvwxyz; true")
    here.until_state(id, "RUNNING")
    while not here.job(id).is_over:
        assert here.answer("status")["head"]
    with open(f"/proc/{here.head_pid()}/status") as file:
        resident_kb = int(re.findall(r"VmRSS:\s+(\d+)", file.read())[0])
    assert resident_kb < 400_000
    assert here.ok("logs", "flood", "--tail", "1").strip()


def test_a_secret_reaches_its_job_and_lies_nowhere_in_the_clear(here: House) -> None:
    canary = "canary-5e1f0a77b2"
    here.ok("secret", "set", "CANARY", stdin=canary)
    words = ["run", "-n", "holds", "--no-workdir", "--secret", "CANARY", "--"]
    said = here.ok(*words, "echo ${#CANARY} $(echo -n $CANARY | sha256sum)")
    assert said.splitlines()[-1].startswith(f"{len(canary)} ")
    assert canary not in here.ok("secret", "ls") + here.ok("show", "holds", "--json")
    files = [
        path
        for path in here.root.rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    assert len(files) > 10
    assert [path for path in files if canary.encode() in _content(path)] == []
    here.ok("secret", "rm", "CANARY", "-y")
    assert here.answer("secret", "ls")["secrets"] == []


def _content(path: Path) -> bytes:
    """Nothing of a file that has gone meanwhile, as those of settled attempts do."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_a_job_is_attached_to_by_its_standard_input(here: House) -> None:
    id = here.submit("reads", "read line; echo got $line; exit 5")
    here.until_state(id, "RUNNING")
    said = here.corral("attach", id, "--stdin", stdin="over the wire\n")
    assert (said.returncode, said.stdout) == (5, "got over the wire\n")
    assert here.until_over(id).state == "FAILED"
    assert "got over the wire" in here.logs(id)


def test_a_job_reads_to_the_end_of_what_is_attached(here: House) -> None:
    id = here.submit("counts", "wc -l; exit 6")
    here.until_state(id, "RUNNING")
    said = here.corral("attach", id, "--stdin", stdin="one\ntwo\n")
    assert (said.returncode, said.stdout.strip()) == (6, "2")


def listen_to_ctrl_c() -> None:
    """A shell starts what it puts into the background deaf to SIGINT, and children
    inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_the_job_running_and_says_how_to_get_back(here: House) -> None:
    words = ["run", "-n", "left", "--no-workdir", "--dir", str(here.root), "--"]
    script = "echo it runs; sleep 300"
    following = subprocess.Popen(
        [*CORRAL, *words, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_ctrl_c,
    )
    assert following.stdout
    assert following.stdout.readline() == "it runs\n"
    following.send_signal(signal.SIGINT)
    _, said = following.communicate(timeout=PATIENCE_SECONDS)
    assert following.returncode == 130
    job = here.job("left")
    assert f"corral logs -f {job.id}" in said
    assert job.state == "RUNNING"
    here.ok("stop", job.id, "-y")
    here.until_over(job.id)


def test_logs_are_followed_as_they_are_written_and_end_with_the_job(
    here: House,
) -> None:
    """Each line is written only when the one before it has been read."""
    read = [here.shared / f"read-{number}" for number in (1, 2, 3)]
    run = "; ".join(
        f"echo line {n}; {wait_in_shell(one)}" for n, one in enumerate(read, start=1)
    )
    id = here.submit("talks", run)
    text = ""
    with here.client() as client:
        for piece in client.logs(id, follow=True):
            text += piece.data
            for one in read[: text.count("\n")]:
                one.touch()
    assert text == here.logs(id) == "line 1\nline 2\nline 3\n"


def test_a_shell_is_opened_beside_the_rank_in_its_environment(here: House) -> None:
    id = here.submit("hosts", "sleep 300", env={"WHERE": "inside"})
    here.until_state(id, "RUNNING")
    said = here.corral("attach", id, stdin="echo $WHERE $RANK; exit\n")
    assert said.returncode == 0, said.stderr
    ended = [
        here.corral("attach", id, stdin=f"{line}\n")
        for line in ("exit 7", "kill -9 $$")
    ]
    assert [one.returncode for one in ended] == [7, 137]
    assert "inside 0" in said.stdout
    here.ok("stop", id, "-y")


def test_a_drained_node_is_left_and_takes_work_again_when_told(here: House) -> None:
    here.ok("node", "drain", "n1", "-y")
    id = here.submit("elsewhere", "true", resources={"gpu": 1})
    assert here.until_over(id).nodes == ["n2"]
    assert here.answer("node", "show", "n1")["draining"] is True
    here.ok("node", "uncordon", "n1", "-y")
    assert here.answer("node", "show", "n1")["draining"] is False


WRONG = {
    "gpus below nothing": ["--gpus", "-1", "--", "true"],
    "gpus without end": ["--gpus", "1e9", "--", "true"],
    "gpus that are no number": ["--gpus", "many", "--", "true"],
    "a share where no node offers any": ["--gpus", "0.5", "--", "true"],
    "more than there is": ["--gpus", "3", "--", "true"],
    "a type that is not here": ["--gpus", "b200:1", "--", "true"],
    "no node": ["--nodes", "0", "--", "true"],
    "a name with shell characters": ["-n", "a;rm -rf /", "--", "true"],
    "a name with path characters": ["-n", "../up", "--", "true"],
    "a time that is none": ["--time", "soon", "--", "true"],
    "a priority that is none": ["--priority", "urgent", "--", "true"],
    "after a job that is not": ["--after", "nobody", "--", "true"],
    "after in a way that is none": ["--after", "ends:perhaps", "--", "true"],
    "an array without end": ["--array", "0-99999999", "--", "true"],
    "a variable that is not set": ["--env", "NOT_SET_ANYWHERE", "--", "true"],
    "a variable that cannot be one": ["--env", "A B=c", "--", "true"],
    "a workdir that is not there": ["--workdir", "/no/such/dir", "--", "true"],
    "an empty command": ["--", "  "],
    "saves where not every node sees them": [
        "-N",
        "2",
        "--checkpoint",
        "/var/tmp/no-such-saves",
        "--",
        "true",
    ],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_is_refused_in_words_and_changes_nothing(
    here: House, words: list[str]
) -> None:
    before = here.jobs()
    done = here.corral(
        "run", "-d", "--no-workdir" if "--workdir" not in words else "-y", *words
    )
    assert done.returncode == 3, done.stdout + done.stderr
    message, *hint = done.stderr.strip().splitlines()
    assert message.startswith("corral: ")
    assert hint, f"no way on is told: {message}"
    assert here.jobs() == before
