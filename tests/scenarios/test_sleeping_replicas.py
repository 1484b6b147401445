"""A replica that sleeps lends its GPU to a job; when the load rises, the job stops, and
the replica answers again. All processes are real."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.scenarios.house import House, house, until
from tests.scenarios.test_service_gateway import SERVER, ask, gateway_url

SERVICE = """\
kind: service
name: chat
model: tiny
run: python {server}
replicas: 1..2
sleeping: 1
resources: {{gpu: 1, cpu: 0.1}}
scale: {{queue: 1, back_within: 60s, down_after: 5s}}
drain: 2s
grace: 2s
"""
JOB = """\
name: {name}
run: sleep 1000
resources: {{gpu: 1, cpu: 0.1}}
grace: {grace}
"""
SLOW_SERVER = SERVER.replace(
    'content = {"role"', 'import time; time.sleep(0.3); content = {"role"'
)


def submit(here: House, folder: Path, name: str, grace: str) -> None:
    file = folder / f"{name}.yaml"
    file.write_text(JOB.format(name=name, grace=grace))
    here.ok("apply", "-f", str(file), "-y")


def replicas(here: House) -> dict[int, dict[str, Any]]:
    rows = here.answer("service", "show", "chat")["replica_list"]
    return {row["number"]: row for row in rows}


def state_of(here: House, name: str) -> str:
    jobs = here.answer("ps", "--all")["jobs"]
    return str(next(job["state"] for job in jobs if job["name"] == name))


@contextmanager
def rising(here: House) -> Iterator[list[int]]:
    """Send requests all the time. Yield the status of each answer."""
    is_over, statuses = threading.Event(), list[int]()
    url, token = gateway_url(here), here.place.token.read_text().strip()

    def send() -> None:
        while not is_over.is_set():
            statuses.append(ask(here, token, url).status_code)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def test_a_job_borrows_the_gpu_of_a_sleeping_replica_and_gives_it_back(
    tmp_path: Path,
) -> None:
    server = tmp_path / "server.py"
    server.write_text(SLOW_SERVER)
    file = tmp_path / "chat.yaml"
    file.write_text(SERVICE.format(server=server))
    with house("--nodes", "1", "--gpus", "2") as here:
        try:
            here.ok("apply", "-f", str(file), "-y")
            until(lambda: gateway_url(here), "a gateway runs")
            until(
                lambda: replicas(here)[2]["sleep"] == "asleep", "the second one sleeps"
            )
            submit(here, tmp_path, "slow", "10m")
            until(
                lambda: "LentRoom" in here.ok("why", "slow"), "a slow job is held back"
            )
            here.ok("stop", "slow")
            submit(here, tmp_path, "train", "2s")
            until(lambda: state_of(here, "train") == "RUNNING", "the job borrows")
            until(lambda: replicas(here)[2]["lent_to"], "the loan is recorded")
            with rising(here) as statuses:
                until(lambda: replicas(here)[2]["ready_at"] is not None, "it is awake")
            assert set(statuses) == {200}
            assert state_of(here, "train") == "QUEUED"
            assert "lost" in here.ok("why", "train")
            until(lambda: state_of(here, "train") == "RUNNING", "it sleeps again")
            (lent,) = here.answer("report", "lent")["services"]
            assert (lent["take_backs"], lent["take_backs_in_time"]) == (1, 1)
            assert lent["borrowers"][0]["take_backs"] == 1
            assert "take-back" in here.ok("report", "lent")
        finally:
            here.ok("down", "-y")
