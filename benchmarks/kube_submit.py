"""Where the time goes from `corral run` to the pod and to its rank, beside the same Job by others.

Run: PYTHONPATH=benchmarks:. .venv/bin/python benchmarks/kube_submit.py [--turns 15] [--write]

The API server, its controllers and the kubelet are the tests' own (tests/kube): they pull no images
and decide at once. So every ratio here is on that server and not on a real control plane. In each
turn, in an order that is drawn (seeded), each on a cluster that is otherwise idle: the Job that
Corral renders, with the job's own command, posted by a client that is connected; applied by a new
process with lightkube, which looks for it and then makes it, as kubectl does; applied by kubectl,
where it is installed; submitted by a client of Corral that is connected; and submitted by
`corral run` as a new process. Times count from before the call. To reach: `corral run` takes at
most 1.2 times `kubectl apply` to the pod.
"""

import argparse
import copy
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2
from embedded import CORRAL, keep, quantile, report

import corral
from tests.engines.kubernetes.team import Team, team
from tests.kube.cluster import NAMESPACE, require_kubelet
from tests.kube.storage import Change

WARM: Final = 2  # turns that warm up the path
RESERVE_AFTER_SECONDS: Final = 120.0
OWN: Final = frozenset(
    {"part", "head"}
)  # volumes of the rendered Job that its agent alone reads
POSTED, LIGHTKUBE, KUBECTL = "POST", "lightkube apply", "kubectl apply"
CLIENT, RUN = "client.submit", "corral run"
STAGES: Final = ("taken by the head", "Secret", "Job", "pod", "container", "rank")
APPLY: Final = """
import json, sys
from lightkube import ApiError, Client, KubeConfig
from lightkube.resources.batch_v1 import Job
client = Client(KubeConfig.from_file(sys.argv[1]), namespace=sys.argv[2])
job = Job.from_dict(json.load(sys.stdin))
try:
    client.get(Job, job.metadata.name)
    client.replace(job)
except ApiError as absent:
    if absent.status.code != 404:
        raise
    client.create(job)
"""


class Moments:
    """Time at which the API server has made or started something, by the name of the job."""

    def __init__(self, ours: Team) -> None:
        self.seen: dict[str, float] = {}
        storage = ours.kube.storage
        before = storage.on_change

        def note(change: Change) -> None:
            before(change)
            after = change.after
            if after is None:
                return
            if change.before is None:
                self.seen.setdefault(change.plural, time.time())
            elif change.plural == "pods" and after["status"].get("phase") == "Running":
                self.seen.setdefault("container", time.time())

        ours.kube.do(lambda: setattr(storage, "on_change", note))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
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
            took = _turns(ours, client, shared, asked.turns)
    title = f"`corral run` to the pod on the tests' Kubernetes, {asked.turns} turns"
    keep("kube-submit", report(title, _rows(took)), asked.write)


def _rows(took: dict[str, list[dict[str, float]]]) -> list[tuple[str, str, str]]:
    """Medians by way and stage, then the ratios."""
    median = {
        (way, stage): quantile([turn[stage] for turn in turns], 0.5)
        for way, turns in took.items()
        for stage in turns[0]
    }
    rows = [
        (f"{way}: to {stage}", f"{at * 1e3:.0f} ms", "")
        for (way, stage), at in median.items()
    ]
    for base in (POSTED, LIGHTKUBE, KUBECTL):
        for own in (CLIENT, RUN):
            for stage in ("pod", "rank"):
                if (base, stage) in median:
                    ratio = median[own, stage] / median[base, stage]
                    is_asked = (base, own, stage) == (KUBECTL, RUN, "pod")
                    bound = "1.2 x" if is_asked else ""
                    rows.append(
                        (f"{own} over {base}, to {stage}", f"{ratio:.2f} x", bound)
                    )
    return rows


def _turns(
    ours: Team, client: corral.Client, shared: Path, turns: int
) -> dict[str, list[dict[str, float]]]:
    """Seconds from the call to each stage, by way and turn."""
    ways = _ways(ours, client)
    moments = Moments(ours)
    took: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    chance = random.Random(1)
    for turn in range(turns + WARM):
        for name in chance.sample(sorted(ways), len(ways)):
            time.sleep(0.3 + chance.random())
            note = shared / f"way{list(ways).index(name)}-{turn}"
            moments.seen.clear()
            began = time.time()
            end = ways[name](note)
            _until(lambda note=note: note.exists() and note.read_text().endswith("\n"))
            end()
            seen = _stages(dict(moments.seen), float(note.read_text()))
            if name in (CLIENT, RUN):
                seen[STAGES[0]] = client.job(note.name).submitted_at
            else:
                ours.kube.delete("jobs", note.name, propagationPolicy="Background")
            if turn >= WARM:
                took[name].append(
                    {one: seen[one] - began for one in STAGES if one in seen}
                )
            _until(lambda: not ours.left())
    return took


def _stages(seen: dict[str, float], rank: float) -> dict[str, float]:
    plurals = {
        "Secret": "secrets",
        "Job": "jobs",
        "pod": "pods",
        "container": "container",
    }
    found = {stage: seen[plural] for stage, plural in plurals.items() if plural in seen}
    return found | {"rank": rank}


def _ways(
    ours: Team, client: corral.Client
) -> dict[str, Callable[[Path], Callable[[], object]]]:
    """Each hands a job in, and returns what is to be done once its rank has begun."""
    rendered = _rendered(ours, client)
    config = str(ours.kube.kubeconfig())
    server = httpx2.Client(
        base_url=ours.kube.url,
        verify=str(ours.kube.place / "ca.pem"),
        headers={"Authorization": f"Bearer {ours.kube.token}"},
    )
    apply = [sys.executable, "-c", APPLY, config, NAMESPACE]
    kubectl = ["kubectl", "--kubeconfig", config, "apply", "-f", "-"]

    def posted(note: Path) -> Callable[[], object]:
        place = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        server.post(place, json=_by_hand(rendered, note)).raise_for_status()
        return lambda: None

    def by(words: list[str]) -> Callable[[Path], Callable[[], object]]:
        def applied(note: Path) -> Callable[[], object]:
            told = json.dumps(_by_hand(rendered, note)).encode()
            subprocess.run(words, input=told, check=True, stdout=subprocess.DEVNULL)
            return lambda: None

        return applied

    def submitted(note: Path) -> Callable[[], object]:
        spec = {"name": note.name, "run": _stamp(note), "resources": {"gpu": 1}}
        client.submit(spec)
        return lambda: None

    def run(note: Path) -> Callable[[], object]:
        root = str(ours.house.root)
        words = [CORRAL, "run", "--dir", root, "--gpus", "1", "--name", note.name]
        process = subprocess.Popen(
            [*words, "--", _stamp(note)],
            cwd=ours.house.root.parent,  # holds no files to bring
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return process.wait

    ways = {POSTED: posted, LIGHTKUBE: by(apply), CLIENT: submitted, RUN: run}
    return ways | ({KUBECTL: by(kubectl)} if shutil.which("kubectl") else {})


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


def _until(true: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + RESERVE_AFTER_SECONDS
    while not true():
        if time.monotonic() > give_up_at:
            raise TimeoutError("it did not come")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
