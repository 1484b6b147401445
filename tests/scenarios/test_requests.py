"""What a job requests of time and place, on a whole cluster of real processes."""

from collections.abc import Iterator

import pytest

from tests.scenarios.house import House, house, wait_in_shell

pytestmark = pytest.mark.xdist_group("requests")
HOUR = "sleep 3600"


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    """n1 and n2 are in one rack, n3 is in another."""
    with house(
        "--nodes", "3", "--gpus", "1", "--topology", "racks=2", "--label", "n3:z=a"
    ) as made:
        yield made


def start(here: House, name: str, *words: str, command: str = HOUR) -> None:
    here.ok("run", "-d", "-n", name, "--no-workdir", *words, "--", command)


def stop(here: House, *names: str) -> None:
    here.ok("stop", "-y", *names)
    for name in names:
        here.until_over(name)


def test_a_gang_that_requires_one_rack_waits_for_it_and_gets_it(here: House) -> None:
    start(here, "holder", "--gpus", "1", "-C", "node=n1")
    here.until_state("holder", "RUNNING")
    start(here, "near", "-N", "2", "--gpus", "1", "--topology", "require:rack")
    assert here.answer("why", "near")["code"] in ("Topology", "Resources")
    stop(here, "holder")
    here.until_state("near", "RUNNING")
    assert sorted(here.job("near").nodes) == ["n1", "n2"]
    stop(here, "near")
    refused = here.corral(
        "run", "-N", "3", "--topology", "rack", "--no-workdir", "--", "true"
    )
    assert (refused.returncode, "no rack has more than 2" in refused.stderr) == (
        3,
        True,
    )


def test_an_exclusive_job_has_its_node_alone_and_others_go_elsewhere(
    here: House,
) -> None:
    start(here, "alone", "--exclusive", "-C", "z=a")
    here.until_state("alone", "RUNNING")
    assert here.job("alone").nodes == ["n3"]
    start(here, "guest", "-C", "node=n3")
    why = here.answer("why", "guest")
    assert (why["state"], why["code"]) == ("QUEUED", "Resources")
    stop(here, "alone")
    here.until_state("guest", "RUNNING")
    start(here, "apart", "--apart-from", "guest", "-C", "node=n3")
    assert here.answer("why", "apart")["code"] == "ApartFrom"
    stop(here, "guest")
    here.until_state("apart", "RUNNING")
    stop(here, "apart")


def test_begin_and_start_by_are_kept_by_the_real_clock(here: House) -> None:
    start(here, "later", "--begin", "2s", command="true")
    start(here, "late", "--start-by", "1s", "--begin", "2099-01-01T00:00Z")
    assert here.until_over("later").state == "DONE"
    job = here.until_over("late")
    assert (job.state, job.reason_code) == ("FAILED", "Deadline")
    assert [one.kind for one in job.receipts] == ["deadline"]
    assert job.started_at is None


def test_a_job_gets_its_signal_before_its_time_is_over(here: House) -> None:
    trap = "trap 'echo warned; exit 0' USR1; while :; do sleep 0.2; done"
    start(here, "warned", "--time", "1h", "--signal", "USR1@3599s", command=trap)
    job = here.until_over("warned")
    assert (job.state, here.logs("warned")) == ("DONE", "warned\n")


def test_an_elastic_job_starts_smaller_and_grows_at_its_next_attempt(
    here: House,
) -> None:
    go = here.shared / "go"
    start(here, "holder", "--exclusive", "-C", "node=n3")
    here.until_state("holder", "RUNNING")
    fails_once = f'[ "$CORRAL_ATTEMPT" = 2 ] || {{ {wait_in_shell(go)}; exit 1; }}'
    start(here, "grows", "-N", "2-3", "--gpus", "1", "--retry", "1", command=fails_once)
    here.until_state("grows", "RUNNING")
    assert sorted(here.job("grows").nodes) == ["n1", "n2"]
    stop(here, "holder")
    go.touch()
    job = here.until_over("grows")
    assert [len(one.nodes) for one in job.attempts] == [2, 3]
    assert job.state == "DONE"


def test_another_shape_is_taken_where_the_first_has_no_place(here: House) -> None:
    smaller = [{"nodes": 2, "resources": {"gpu": 1}}]
    id = here.submit("either", "true", nodes=4, resources={"gpu": 1}, any_of=smaller)
    job = here.until_over(id)
    assert (job.state, [len(one.nodes) for one in job.attempts]) == ("DONE", [2])


def test_a_share_of_a_cut_gpu_is_seen_by_the_names_of_its_slices() -> None:
    with house("--gpus", "1", "--gpu-slices", "7") as cut:
        command = "echo $CUDA_VISIBLE_DEVICES"
        words = ["run", "-n", "part", "--no-workdir", "--gpus", "0.286", "-y"]
        done = cut.corral(*words, "--", command)
        assert done.stdout == "MIG-pretend-n1-0-0,MIG-pretend-n1-0-1\n"
        whole = cut.corral("run", "--no-workdir", "--gpus", "1", "-y", "--", command)
        assert whole.returncode == 3
