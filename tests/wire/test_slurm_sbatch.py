"""A batch script and its options, as the spec that they mean."""

from datetime import UTC, datetime
from typing import Any

import pytest

from corral.domain.job import TokenScope
from corral.wire.slurm.batch_plan import decode_plan
from corral.wire.slurm.options import OptionUse, is_batch_script
from corral.wire.slurm.sbatch import BatchSubmission, Here, read_batch
from corral.wire.slurm.sbatch_options import SBATCH
from corral.wire.slurm.slurm_errors import SlurmRefusal
from corral.wire.spec_reader import parse_values
from corral.wire.submission import to_domain

GIB = 2**30


def here(**environment: str) -> Here:
    now = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
    return Here(directory="/data/ann", host="login", now=now, environment=environment)


def batch(*words: str, lines: str = "", **environment: str) -> BatchSubmission:
    script = f"#!/bin/bash\n{lines}\nsrun hostname\n"
    found = read_batch(
        [*words, "train.sh", "a"], script, here(**environment), name="train.sh"
    )
    parse_values([found.spec])  # the head takes it
    return found


def spec(*words: str, lines: str = "", **environment: str) -> dict[str, Any]:
    return batch(*words, lines=lines, **environment).spec


def test_the_line_wins_over_the_environment_and_that_over_the_script() -> None:
    lines = "#SBATCH -p script --time=10 # a note\n#SBATCH --job-name='my job'"
    found = spec(
        "--time", "30", lines=lines, SBATCH_PARTITION="env", SBATCH_TIMELIMIT="20"
    )
    assert (found["queue"], found["max_duration"], found["name"]) == (
        "env",
        "1800s",
        "my-job",
    )


def test_the_jobs_own_token_is_for_the_job_alone_unless_the_script_says_submit() -> (
    None
):
    assert "token" not in spec()
    for one in (
        spec(lines="#SBATCH --corral-token=submit"),
        spec(SBATCH_CORRAL_TOKEN="submit"),
    ):
        (job,) = to_domain(parse_values([one]))
        assert (job.token, job.secrets) == (TokenScope.SUBMIT, ("CORRAL_TOKEN",))


def test_lines_behind_the_first_command_are_not_read() -> None:
    assert "queue" not in spec(lines="# words\n\nset -e\n#SBATCH -p late")


@pytest.mark.parametrize(
    ("words", "nodes", "resources"),
    [
        ((), 1, {"cpu": 1}),
        (("-n4",), 1, {"cpu": 4}),
        (("-N2", "-n8", "-c2"), 2, {"cpu": 8}),
        (("--ntasks-per-node=4", "-n", "8"), 2, {"cpu": 4}),
        (("-N2", "--gres=gpu:a100:4"), 2, {"cpu": 1, "gpu": "a100:4"}),
        (("-N2", "--gpus=8", "--cpus-per-gpu=3"), 2, {"cpu": 12, "gpu": 4}),
        (("-n2", "--gpus-per-task=h100:2"), 1, {"cpu": 2, "gpu": "h100:4"}),
        (("--mem=4G",), 1, {"cpu": 1, "memory": f"{4 * GIB}B"}),
        (("-c4", "--mem-per-cpu=512"), 1, {"cpu": 4, "memory": f"{2 * GIB}B"}),
        (
            ("--gres=gpu:2", "--mem-per-gpu=8G"),
            1,
            {"cpu": 1, "gpu": 2, "memory": f"{16 * GIB}B"},
        ),
    ],
)
def test_nodes_tasks_and_gpus_become_what_each_node_gives(
    words: tuple[str, ...], nodes: int, resources: dict[str, Any]
) -> None:
    found = spec(*words)
    assert (found["nodes"], found["resources"]) == (nodes, resources)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (("-N", "2-4"), "elastic", {"min_nodes": 2, "max_nodes": 4}),
        (("--array", "0-7%2"), "array", "0-7%2"),
        (("-d", "afterok:3:4,afterany:5_1"), "after",
         [{"job": "j3", "on": "done"}, {"job": "j4", "on": "done"},
          {"job": "j5_1", "on": "ended"}]),
        (("-t10", "--signal=B:USR1@90"), "warn", {"signal": 10, "before": "90s"}),
        (("-C", "ib&zone=a"), "constraints", {"ib": True, "zone": "a"}),
        (("-x", "n[1-2]"), "constraints", {"node": {"not": ["n1", "n2"]}}),
        (("-N2", "-w", "n[1-2]"), "constraints", {"node": ["n1", "n2"]}),
        (("--exclusive",), "exclusive", True),
        (("-b", "now+1hour"), "begin", "2026-11-22T11:00:00+00:00"),
        (("-t60", "--deadline", "16:00"), "start_by", "2026-11-22T15:00:00+00:00"),
        (("--qos=high", "--nice=10"), "priority", 90),
        (("--no-requeue",), "retry", {"infra": 0}),
    ],
)  # fmt: skip
def test_each_option_has_its_field(
    words: tuple[str, ...], field: str, value: object
) -> None:
    assert spec(*words)[field] == value


def test_the_script_travels_as_it_is_with_what_its_node_must_know() -> None:
    found = batch(
        "-N2", "-n4", "-o", "out-%j", "--open-mode=append", lines="END_OF_SCRIPT"
    )
    body, _, words = found.spec["run"].rpartition("exec ")
    assert "#!/bin/bash\nEND_OF_SCRIPT\nsrun hostname\n" in body
    assert body.rstrip().endswith("END_OF_SCRIPT_")
    plan = decode_plan(words.split("'")[1])
    assert plan == found.plan
    assert (plan.output, plan.append, plan.tasks, plan.tasks_per_node) == (
        "out-%j",
        True,
        4,
        2,
    )
    assert (plan.arguments, plan.submit_dir) == (("a",), "/data/ann")


def test_wrap_is_a_script_of_its_own() -> None:
    found = read_batch(["--wrap", "echo hi", "-J", "x"], None, here())
    assert "#!/bin/sh\n" in found.spec["run"]
    assert "\necho hi\n" in found.spec["run"]


def test_the_environment_travels_but_for_what_is_named_like_a_secret() -> None:
    found = batch(HF_TOKEN="s", A="b", SLURM_JOB_ID="9", CORRAL_URL="u", RANK="1")
    assert found.spec["env"] == {"A": "b"}
    assert any("HF_TOKEN" in one for one in found.notes)
    assert spec("--export=NONE", A="b")["env"] == {}
    assert spec("--export=ALL,HF_TOKEN,C=d", A="b", HF_TOKEN="s")["env"] == {
        "A": "b", "C": "d", "HF_TOKEN": "s",
    }  # fmt: skip


def test_what_changes_nothing_is_told_and_what_cannot_be_is_refused_with_a_hint() -> (
    None
):
    assert any("--mail-type" in one for one in batch("--mail-type=ALL").notes)
    for option in SBATCH.options:
        if option.use == OptionUse.REFUSED:
            with pytest.raises(SlurmRefusal) as refused:
                batch(
                    f"--{option.name}"
                    if option.takes == "nothing"
                    else f"--{option.name}=x"
                )
            assert refused.value.hint


@pytest.mark.parametrize(
    "words",
    [
        ("--frobnicate",), ("-t", "soon"), ("--mem=lots",), ("-N", "4-2"), ("--gres=fpga:1",),
        ("-d", "aftercorr:3"), ("-C", "a|b"), ("--no",), ("-N3", "-w", "n1"), ("-N2", "--gpus=3"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(SlurmRefusal):
        batch(*words)


def test_a_file_that_begins_with_no_interpreter_is_no_script() -> None:
    with pytest.raises(SlurmRefusal, match="does not look like a batch script"):
        read_batch(["x.sh"], "echo hi\n", here())
    assert is_batch_script("#!/bin/sh\n#SBATCH -N1\n")
    assert not is_batch_script("name: train\nrun: true\n")
