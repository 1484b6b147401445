"""A head that dies, comes back, or meets another: jobs do not notice."""

import subprocess
import sys

from tests.contracts.engines.landlord import HOUR, Tenant
from tests.scenarios.house import until, wait_in_shell


def restart(tenant: Tenant) -> None:
    tenant.house.kill_head()
    tenant.house.up()


def test_what_runs_outlives_the_head(tenant: Tenant) -> None:
    id = tenant.runs(nodes=2)
    before = tenant.landlord.processes(id, 1)
    restart(tenant)
    tenant.until_running(id)
    assert tenant.house.job(id).attempt == 1
    assert set(tenant.landlord.processes(id, 1)) >= set(before)
    assert tenant.stop(id).state == "CANCELLED"


def test_an_end_while_the_head_was_down_is_told_truly(tenant: Tenant) -> None:
    go, gone = tenant.shared / "end-now", tenant.shared / "has-ended"
    id = tenant.runs(f"{wait_in_shell(go)}; touch {gone}; exit 6")
    tenant.house.kill_head()
    go.touch()
    tenant.house.until_there(gone)
    tenant.house.up()
    job = tenant.house.until_over(id)
    assert (job.exit_code, job.attempt) == (6, 1)


def test_what_was_written_while_the_head_was_down_is_kept(tenant: Tenant) -> None:
    go, gone = tenant.shared / "write-now", tenant.shared / "has-written"
    id = tenant.runs(f"{wait_in_shell(go)}; echo meanwhile; touch {gone}; {HOUR}")
    tenant.house.kill_head()
    go.touch()
    tenant.house.until_there(gone)
    tenant.house.up()
    with tenant.house.client() as client:
        pieces = client.logs(id, follow=True)
        assert "meanwhile" in next(iter(pieces)).data
    tenant.stop(id)


def test_a_job_begins_once_however_often_the_head_dies(tenant: Tenant) -> None:
    log, go = tenant.shared / "begun", tenant.shared / "begun-go"
    id = tenant.submit(f"echo $CORRAL_ATTEMPT >> {log}; {wait_in_shell(go)}", nodes=2)
    restart(tenant)
    tenant.until_running(id)
    restart(tenant)
    go.touch()
    job = tenant.house.until_over(id)
    assert (job.state, job.attempt) == ("DONE", 1)
    assert log.read_text().split() == ["1", "1"]


def test_what_waits_in_line_is_kept(tenant: Tenant) -> None:
    holds = tenant.runs(**tenant.gpu_job(nodes=2, gpus=2), name="holds")
    id = tenant.submit("true", **tenant.gpu_job())
    restart(tenant)
    assert tenant.house.job(id).state == "QUEUED"
    tenant.stop(holds)
    assert tenant.house.until_over(id).state == "DONE"


def test_a_cancel_before_the_head_died_is_carried_out_after(tenant: Tenant) -> None:
    deaf = tenant.shared / "deaf-to-the-first"
    id = tenant.runs(
        f"trap '' TERM; touch {deaf}; while :; do sleep 0.1; done", grace="3s"
    )
    tenant.house.until_there(deaf)
    tenant.house.ok("stop", id, "-y")
    restart(tenant)
    assert tenant.house.until_over(id).state == "CANCELLED"
    assert tenant.landlord.processes(id, 1) == []


def test_a_second_head_of_one_cluster_is_refused(tenant: Tenant) -> None:

    id = tenant.runs()
    other = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "corral.boot.head",
            "--dir",
            str(tenant.house.root),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert other.returncode == 3, other
    assert tenant.house.job(id).state == "RUNNING"


def test_jobs_may_run_on_without_a_head(tenant: Tenant) -> None:
    id = tenant.runs()
    before = tenant.landlord.processes(id, 1)
    tenant.house.ok("down", "--leave")
    assert set(tenant.landlord.processes(id, 1)) & set(before)
    tenant.house.up()
    until(lambda: tenant.house.job(id).state == "RUNNING", "it is found again")
    assert tenant.house.job(id).attempt == 1
    assert tenant.stop(id).state == "CANCELLED"
