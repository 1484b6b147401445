"""How an attempt begins, and what its ranks find."""

import pytest

from tests.contracts.engines.landlord import HOUR, Tenant
from tests.scenarios.house import until, wait_in_shell


def test_a_job_runs_and_its_end_is_told(tenant: Tenant) -> None:
    job = tenant.ends("true")
    assert (job.state, job.exit_code, job.attempt) == ("DONE", 0, 1)


def test_a_gang_starts_whole(tenant: Tenant) -> None:
    """Each rank waits for the other: it ends only if both have begun."""
    meet = tenant.shared / "meet"
    run = f"touch {meet}-$RANK; while [ ! -e {meet}-$((1 - RANK)) ]; do sleep 0.1; done"
    job = tenant.ends(run, nodes=2)
    assert (job.state, sorted(job.nodes)) == ("DONE", sorted(tenant.landlord.nodes))


def test_a_gang_that_does_not_fit_whole_begins_nowhere(tenant: Tenant) -> None:
    tenant.runs(**tenant.gpu_job(gpus=1), name="holds")
    began = tenant.shared / "began-early"
    id = tenant.submit(f"touch {began}", **tenant.gpu_job(nodes=2, gpus=2))
    other = tenant.ends("true")  # a whole turn of the head has passed
    assert other.state == "DONE"
    assert (tenant.house.job(id).state, began.exists()) == ("QUEUED", False)


def test_ranks_know_their_place(tenant: Tenant) -> None:
    job = tenant.ends(
        "echo $RANK/$WORLD_SIZE $NODE_RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE", nodes=2
    )
    said = [tenant.house.logs(job.id, rank=rank).strip() for rank in (0, 1)]
    assert said == ["0/2 0 0/1", "1/2 1 0/1"]


def test_one_rank_a_gpu_where_it_is_asked_for(tenant: Tenant) -> None:
    job = tenant.ends(
        "echo $RANK/$WORLD_SIZE", per="gpu", **tenant.gpu_job(nodes=2, gpus=2)
    )
    said = [tenant.house.logs(job.id, rank=rank).strip() for rank in range(4)]
    assert said == [f"{rank}/4" for rank in range(4)]


def test_the_first_rank_is_reached_at_the_master_address(tenant: Tenant) -> None:
    serve = (
        "import os,socket; s=socket.create_server(('', int(os.environ['MASTER_PORT'])), "
        "family=socket.AF_INET); c,_=s.accept(); print(c.recv(9).decode())"
    )
    dial = (
        "import os,socket,time\n"
        "for _ in range(600):\n"
        " try: s=socket.create_connection((os.environ['MASTER_ADDR'], "
        "int(os.environ['MASTER_PORT'])), 5); s.sendall(b'reached'); break\n"
        " except OSError: time.sleep(0.1)\n"
    )
    run = f'if [ $RANK = 0 ]; then python3 -c "{serve}"; else python3 -c "{dial}"; fi'
    job = tenant.ends(run, nodes=2)
    assert (job.state, tenant.house.logs(job.id, rank=0).strip()) == ("DONE", "reached")


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_rank_sees_as_many_gpus_as_it_asked_for(tenant: Tenant, gpus: int) -> None:
    said = tenant.says(
        "echo $CUDA_VISIBLE_DEVICES $CORRAL_GPUS", **tenant.gpu_job(gpus=gpus)
    )
    visible, told = said.split()
    assert (len(set(visible.split(","))), told) == (gpus, str(gpus))


def test_a_rank_without_gpus_sees_none(tenant: Tenant) -> None:
    assert tenant.says("echo [$CUDA_VISIBLE_DEVICES]").strip() == "[]"


def test_no_more_gpus_are_given_than_there_are(tenant: Tenant) -> None:
    """Five jobs of one GPU on four: the fifth begins when another has ended."""
    go = tenant.shared / "gpus-go"
    ids = [
        tenant.submit(wait_in_shell(go), name=f"gpu-{number}", **tenant.gpu_job())
        for number in range(5)
    ]
    until(
        lambda: [tenant.house.job(id).state for id in ids].count("RUNNING") == 4,
        "four run",
    )
    assert [tenant.house.job(id).state for id in ids].count("QUEUED") == 1
    go.touch()
    assert [tenant.house.until_over(id).state for id in ids] == ["DONE"] * 5


def test_the_environment_of_the_spec_is_seen(tenant: Tenant) -> None:
    value = "with space, $HOME and 'quotes'"
    assert tenant.says('echo "$SAID"', env={"SAID": value}).strip() == value


def test_nothing_of_the_heads_environment_is_seen(tenant: Tenant) -> None:
    names = tenant.says("env | cut -d= -f1").split()
    assert not {
        "VIRTUAL_ENV",
        "PYTEST_CURRENT_TEST",
        "CORRAL_DIR",
        "CORRAL_TOKEN",
    } & set(names)


def test_the_names_that_libraries_look_for_are_set(tenant: Tenant) -> None:
    names = "$SLURM_PROCID $SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_NODEID"
    said = tenant.says(f"echo {names}", per="gpu", **tenant.gpu_job(gpus=1))
    assert said.split() == ["0", "1", "1", "0"]


def test_the_workdir_travels_as_it_was(tenant: Tenant) -> None:
    folder = tenant.house.root.parent / "contract-workdir"
    folder.mkdir(exist_ok=True)
    (folder / "message").write_text("as submitted\n")
    with tenant.house.client() as client:
        sha256 = client.upload_workdir(folder)
    (folder / "message").write_text("changed afterwards\n")
    assert tenant.says("cat message", workdir=sha256) == "as submitted\n"


def test_setup_comes_before_the_ranks(tenant: Tenant) -> None:
    mark = tenant.shared / "set-up"
    assert tenant.says(f"cat {mark}", setup=f"echo ready > {mark}").strip() == "ready"


def test_no_rank_begins_after_a_setup_that_fails(tenant: Tenant) -> None:
    began = tenant.shared / "began-after-setup"
    job = tenant.ends(f"touch {began}", setup="exit 9")
    assert (job.state, job.exit_code, began.exists()) == ("FAILED", 9, False)


def test_each_index_of_an_array_runs_once(tenant: Tenant) -> None:
    log = tenant.shared / "array-runs"
    run = f"echo $CORRAL_ARRAY_INDEX >> {log}"
    with tenant.house.client() as client:
        jobs = client.submit({"name": "indices", "run": run, "array": "0-3"})
    assert [tenant.house.until_over(job.id).state for job in jobs] == ["DONE"] * 4
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3"]


def test_a_label_is_kept_to(tenant: Tenant) -> None:
    first, second = tenant.landlord.nodes
    tenant.house.ok("node", "label", second, "disk=fast", "-y")
    try:
        assert tenant.ends("true", constraints={"disk": "fast"}).nodes == [second]
        never = tenant.house.corral(
            "run", "--constraint", "disk=slow", "-d", "-y", "--", "true"
        )
        assert never.returncode == 3, never.stdout + never.stderr
    finally:
        tenant.house.ok("node", "label", second, "disk-", "-y")


def test_nobody_is_beside_an_exclusive_job(tenant: Tenant) -> None:
    alone = tenant.runs(exclusive=True, name="alone")
    (taken,) = tenant.house.job(alone).nodes
    jobs = [tenant.ends("true", name=f"beside-{number}") for number in range(3)]
    assert {node for job in jobs for node in job.nodes}.isdisjoint({taken})


def test_a_cordoned_node_is_given_nothing(tenant: Tenant) -> None:
    first, second = tenant.landlord.nodes
    tenant.house.ok("node", "cordon", first, "-y")
    try:
        jobs = [tenant.ends("true", name=f"other-{number}") for number in range(3)]
        assert {node for job in jobs for node in job.nodes} == {second}
    finally:
        tenant.house.ok("node", "uncordon", first, "-y")


def test_why_a_job_waits_is_told(tenant: Tenant) -> None:
    tenant.runs(HOUR, **tenant.gpu_job(nodes=2, gpus=2), name="all-of-it")
    id = tenant.submit("true", **tenant.gpu_job())
    until(lambda: "GPU" in tenant.house.ok("why", id), "the reason speaks of GPUs")
