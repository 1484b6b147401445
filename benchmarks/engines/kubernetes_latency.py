"""From a submit to the job's first instruction: Corral on Kubernetes beside the same Job by hand.

Run: PYTHONPATH=benchmarks:. .venv/bin/python benchmarks/engines/kubernetes_latency.py
[--jobs 20] [--write]

The API server, its scheduler and the kubelet are the tests' own (tests/kube): they stand in for a
cluster's and pull no images, so that both sides pay less for Kubernetes than they would there; what
Corral adds is real. In each turn, in an order and after a pause that are drawn (seeded), each on a
cluster that is otherwise idle: the Job that Corral renders, with the job's own command in the place
of the agent's, posted to the API server by a client that is connected; the same by `kubectl apply`;
and one submitted to Corral. All are counted from before the call to the first act of the job's
shell. To reach: nothing was set; the ratio is what is followed.
"""

import argparse
import copy
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2
from embedded import keep, quantile, report

import corral
from tests.engines.kubernetes.team import Team, team
from tests.kube.cluster import NAMESPACE, require_kubelet

WARM: Final = 2  # turns that warm up the path
PATIENCE_SECONDS: Final = 120.0
OWN: Final = frozenset(
    {"part", "head"}
)  # volumes of the rendered Job that its agent alone reads
POSTED, APPLIED, OURS = "its Job, posted", "its Job, by kubectl apply", "Corral"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    require_kubelet()
    with (
        tempfile.TemporaryDirectory(prefix="corral-bench-", dir="/tmp") as place,
        team(Path(place)) as ours,
    ):
        shared = ours.add_claim("shared")
        ours.up("--set", f"claims=shared:{shared}")
        with ours.house.client() as client:
            took = _turns(ours, client, shared, asked.jobs)
    rows = []
    for share in (0.1, 0.5, 0.9):
        told = {who: quantile(seconds, share) * 1e3 for who, seconds in took.items()}
        at = f"p{share * 100:.0f}"
        rows += [
            (f"{who}, {at}", f"{millis:.0f} ms", "") for who, millis in told.items()
        ]
        for base in (POSTED, APPLIED):
            more, ratio = told[OURS] - told[base], told[OURS] / told[base]
            rows.append(
                (f"Corral over {base}, {at}", f"{more:.0f} ms, {ratio:.1f} x", "")
            )
    title = f"Submit to running on the tests' Kubernetes, {asked.jobs} jobs each"
    keep("engine-kubernetes-latency", report(title, rows), asked.write)


def _turns(
    ours: Team, client: corral.Client, shared: Path, jobs: int
) -> dict[str, list[float]]:
    """Seconds from the call to the process, by whom it was handed in."""
    rendered = _rendered(ours, client)
    server = _server(ours)
    config = str(ours.kube.kubeconfig())

    def posted(note: Path) -> None:
        place = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        server.post(place, json=_by_hand(rendered, note)).raise_for_status()

    def applied(note: Path) -> None:
        words = ["kubectl", "--kubeconfig", config, "apply", "-f", "-"]
        told = json.dumps(_by_hand(rendered, note)).encode()
        subprocess.run(words, input=told, check=True, stdout=subprocess.DEVNULL)

    def submitted(note: Path) -> None:
        spec = {"name": note.name, "run": _stamp(note), "resources": {"gpu": 1}}
        client.submit(spec)

    ways = {POSTED: posted, APPLIED: applied, OURS: submitted}
    took: dict[str, list[float]] = {name: [] for name in ways}
    chance = random.Random(1)
    for turn in range(jobs + WARM):
        for name in chance.sample(sorted(ways), len(ways)):
            time.sleep(chance.random())
            note = shared / f"way{list(ways).index(name)}-{turn}"
            began = time.time()
            ways[name](note)
            _until(lambda note=note: note.exists() and note.read_text().endswith("\n"))
            if turn >= WARM:
                took[name].append(float(note.read_text()) - began)
            if name != OURS:
                ours.kube.delete("jobs", note.name, propagationPolicy="Background")
            _until(lambda: not ours.left())
    return took


def _rendered(ours: Team, client: corral.Client) -> dict[str, Any]:
    """The Job of one GPU that Corral makes, as the API server has taken it."""
    client.submit({"name": "first", "run": "sleep 3600", "resources": {"gpu": 1}})
    _until(lambda: ours.kube.all("jobs"))
    (found,) = ours.kube.all("jobs")
    ours.house.ok("stop", "first", "-y")
    _until(lambda: not ours.left())
    return dict(found)


def _by_hand(rendered: dict[str, Any], note: Path) -> dict[str, Any]:
    """The same pod, on the same node, with the job's own command."""
    spec = copy.deepcopy(rendered["spec"])
    spec.pop("selector", None)  # the API server's own
    spec["template"]["metadata"] = {"labels": {"by": "hand"}}
    pod = spec["template"]["spec"]
    pod["affinity"].pop("podAntiAffinity")
    pod["volumes"] = [one for one in pod["volumes"] if one["name"] not in OWN]
    (container,) = pod["containers"]
    container["volumeMounts"] = [
        one for one in container["volumeMounts"] if one["name"] not in OWN
    ]
    container["command"] = ["bash", "-c", _stamp(note)]
    container.pop("args", None)
    about = {"name": note.name, "namespace": NAMESPACE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}


def _stamp(note: Path) -> str:
    return f"echo $EPOCHREALTIME > {note}"


def _server(ours: Team) -> httpx2.Client:
    """A client of the API server that stays connected."""
    return httpx2.Client(
        base_url=ours.kube.url,
        verify=str(ours.kube.place / "ca.pem"),
        headers={"Authorization": f"Bearer {ours.kube.token}"},
    )


def _until(true: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not true():
        if time.monotonic() > give_up_at:
            raise TimeoutError("it did not come")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
