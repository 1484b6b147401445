"""How soon the death of a node of Ray is seen, and its job runs elsewhere.

Run: PYTHONPATH=benchmarks:. .venv/bin/python benchmarks/engines/ray_faults.py
[--rounds 10] [--write]

Killed: SIGKILL to everything of the node, Ray's processes and Corral's. Frozen: SIGSTOP to the
same, so that no proof can be had. From the signal until `corral node ls` does not call the node
alive, and until its job, which has a checkpoint rule, runs on the other node. To reach (issue 4):
seen within 6 s, replaced within 15 s.
"""

import argparse
import signal
import time

from embedded import keep, report, spread

from corral.engines.local.processes import LocalProcess
from corral.engines.ray.bringup import descendants
from tests.ray_cluster import GPUS, RayHouse, ray_house
from tests.scenarios.house import until

RUN = 'if [ "$CORRAL_ATTEMPT" = 1 ]; then sleep 300; else sleep 5; fi'
FALLS = "r2"


def processes(ray: RayHouse) -> list[LocalProcess]:
    """All of the node."""
    folder = ray.folder(FALLS)
    files = [*folder.glob("*.pid"), *folder.glob("attempts/*/shim.pid")]
    roots = [one for file in files if (one := LocalProcess.recorded(file)) is not None]
    return [
        *ray.ray_of(FALLS),
        *roots,
        *(one for root in roots for one in descendants(root)),
    ]


def fall(ray: RayHouse, number: int) -> tuple[float, float]:
    """(seen, running elsewhere) in seconds after the signal; then the node is there again."""
    saves = {"path": f"{ray.shared}/saves"}
    spec = {"name": "moves", "run": RUN, "resources": {"gpu": 2}, "checkpoint": saves}
    with ray.house.client() as client:
        client.cordon(ray.first)
        until(
            lambda: client.status().gpus.free == GPUS,
            "only the node that falls takes work",
        )
        id = client.submit({**spec, "disconnect": "replace"})[0].id
        until(lambda: client.job(id).state == "RUNNING", "the job runs")
        client.uncordon(ray.first)
        everything = processes(ray)
        began = time.monotonic()
        for one in everything:
            one.signal(number)
        until(lambda: client.node(FALLS).liveness != "alive", "it is seen")
        seen = time.monotonic() - began
        until(
            lambda: client.job(id).attempt == 2 and client.job(id).state == "RUNNING",
            "it goes",
        )
        elsewhere = time.monotonic() - began
        for one in everything:
            one.signal(signal.SIGCONT)
        client.wait(id)
    ray.kill_ray(FALLS)  # one that was frozen too long ends by itself, sooner or later
    ray.start_ray(FALLS)
    ray.until_alive(FALLS)
    return seen, elsewhere


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found: dict[signal.Signals, list[tuple[float, float]]] = {
        signal.SIGKILL: [],
        signal.SIGSTOP: [],
    }
    with ray_house(nodes=(FALLS,)) as ray:
        for _ in range(asked.rounds):
            for number in found:
                found[number].append(fall(ray, number))
                print(
                    f"{number.name}: seen, elsewhere after",
                    *found[number][-1],
                    flush=True,
                )
    killed, frozen = found[signal.SIGKILL], found[signal.SIGSTOP]
    rows = [
        ("killed node seen", spread([seen for seen, _ in killed]), "6 s"),
        ("its job runs elsewhere", spread([there for _, there in killed]), "15 s"),
        ("frozen node seen", spread([seen for seen, _ in frozen]), "6 s"),
        ("its job runs elsewhere", spread([there for _, there in frozen]), "15 s"),
    ]
    keep(
        "engines-ray-faults",
        report(f"Nodes of Ray, {asked.rounds} rounds", rows),
        asked.write,
    )


if __name__ == "__main__":
    main()
