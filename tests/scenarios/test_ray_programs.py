"""`kind: ray` with real Ray: a program on a Ray cluster that its gang makes, on two
nodes."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ray_cluster import need_ray, ray_house
from tests.scenarios.house import House, house, until

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
PROGRAM = """
import json, os, sys, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(log_to_driver=False)
def look():
    return ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CORRAL_NODE"]
there = {node["NodeName"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
look = ray.remote(num_gpus=1, num_cpus=0)(look)
asked = {name: look.options(scheduling_strategy=On(id, soft=False)).remote()
         for name, id in there.items()}
ranks = [name for name in os.environ if name.startswith("SLURM") or "RANK" in name]
print("seen", json.dumps([{name: ray.get(one) for name, one in asked.items()}, ranks]), flush=True)
"""


@pytest.fixture
def cluster() -> Iterator[House]:
    need_ray()
    with house() as one:
        one.up("--nodes", "2", "--gpus", "3")
        yield one


def submit(at: House, name: str, after: str = "", gpus: int = 1, **more: Any) -> str:
    run = f"python - <<'END'\n{PROGRAM}{after}\nEND"
    given = {
        "nodes": 2,
        "kind": "ray",
        "resources": {"gpu": gpus},
        "env": {"PATH": PATH},
    }
    return at.submit(name, run, **{**given, **more})


def seen(at: House, id: str) -> Any:
    line = next(line for line in at.logs(id).splitlines() if "seen" in line)
    return json.loads(line.partition("seen ")[2])


def test_a_program_runs_once_on_all_nodes_of_its_gang_and_its_end_is_the_jobs(
    cluster: House,
) -> None:
    held = cluster.submit("holder", "sleep 1000", nodes=2, resources={"gpu": 1})
    cluster.until_state(held, "RUNNING")
    id = submit(cluster, "program", after="sys.exit(7)")
    over = cluster.until_over(id)
    assert (over.state, over.exit_code) == ("FAILED", 7), cluster.logs(id)
    assert seen(cluster, id) == [
        {name: [["1"], "1", name] for name in ("n1", "n2")},
        [],
    ]
    until(lambda: not cluster.ranks(id, 1), "nothing of its Ray is left")


@pytest.mark.soak
def test_two_programs_on_the_same_nodes_do_not_see_each_other_and_a_cancel_leaves_nothing(
    cluster: House,
) -> None:
    up = cluster.shared / "up"
    stays = submit(
        cluster, "stays", after=f"import time; open({str(up)!r}, 'w'); time.sleep(1000)"
    )
    cluster.until_there(up)
    id = submit(cluster, "program", gpus=2)
    over = cluster.until_over(id)
    assert over.state == "DONE", cluster.logs(id)
    (found, _) = seen(cluster, id)
    assert sorted(found) == ["n1", "n2"]
    assert {gpu for indices, _, _ in found.values() for gpu in indices} <= {"1", "2"}
    cluster.ok("stop", stays, "-y")
    assert cluster.until_over(stays).state == "CANCELLED"
    until(
        lambda: not cluster.ranks(stays, 1) + cluster.ranks(id, 1),
        "nothing of both is left",
    )


@pytest.mark.soak
def test_the_example_runs_without_gpus(cluster: House) -> None:
    workdir = str(Path(__file__).parents[2] / "examples/ray_count")
    given: Any = {"kind": "ray", "nodes": 2, "workdir": workdir, "env": {"PATH": PATH}}
    id = cluster.submit("ray-count", "python program.py", **given)
    assert cluster.until_over(id).state == "DONE", cluster.logs(id)
    assert "2262 primes below 20000" in cluster.logs(id)


@pytest.mark.soak
def test_on_the_ray_engine_it_does_not_meet_the_engines_own_ray() -> None:
    need_ray()
    with ray_house() as ray:
        id = submit(ray.house, "program", nodes=1)
        over = ray.house.until_over(id)
        assert over.state == "DONE", ray.house.logs(id)
        (found, _) = seen(ray.house, id)
        assert list(found) == [ray.first]
        assert ray.house.node(ray.first).liveness == "alive"
