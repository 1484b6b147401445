"""How soon failures are seen: a killed agent, a killed node, a frozen node.

Run: .venv/bin/python benchmarks/failure_detection.py [--rounds 5] [--write]

Killed agent: from SIGKILL until another agent beats for the node. Killed node: from the moment its
last process is gone until the event that its job begins to recover. Frozen: from SIGSTOP of
everything on it until the node is told silent, and until its job runs elsewhere.
To reach (issue 2): killed agent seen <= 1 s, silent node <= 10 s; a replacement <= 15 s (design).
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from embedded import cluster, keep, report, spread

import corral
from corral.engines.local.processes import LocalProcess

SAVING = 'if [ "$CORRAL_ATTEMPT" = 1 ]; then sleep 300; else sleep 1; fi'


def until(done: Callable[[], object], seconds: float = 60.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up_at:
            raise SystemExit("it was not seen at all")
        time.sleep(0.005)


def job_on_a_node(root: Path, client: "corral.Client") -> tuple[str, str]:
    """(id, node) of a running job that may go on elsewhere."""
    saves = {"path": str(root / "shared" / "saves")}
    spec = {
        "name": "moves",
        "run": SAVING,
        "resources": {"gpu": 1},
        "checkpoint": saves,
    }
    id = client.submit(spec)[0].id
    until(lambda: client.job(id).state == "RUNNING")
    return id, client.job(id).nodes[0]


def event_at(client: "corral.Client", id: str, state: str) -> float:
    """When the job was first recorded in this state."""
    for event in client.events(id, follow=True):
        if f"is {state}" in event.text:
            return event.at
    raise SystemExit(f"{id} was never {state}")


def killed_agent(root: Path, client: "corral.Client") -> float:
    """Seconds until the node's next agent is connected, as the head's log says."""
    record = root / "nodes" / "n1" / "agent.pid"
    old = LocalProcess.recorded(record)
    assert old is not None
    before = (root / "head.log").read_text().count("agent_connected")
    began = time.monotonic()
    old.signal(signal.SIGKILL)
    until(lambda: (root / "head.log").read_text().count("has died") > 0)
    seen = time.monotonic() - began
    until(lambda: (root / "head.log").read_text().count("agent_connected") > before)
    return seen


def killed_node(root: Path, client: "corral.Client") -> float:
    id, node = job_on_a_node(root, client)
    kill = [
        sys.executable,
        "-P",
        "-m",
        "corral.agent",
        "--kill",
        str(root / "nodes" / node),
    ]
    subprocess.run(kill, check=True)
    gone_at = time.time()
    seen = event_at(client, id, "RECOVERING") - gone_at
    client.wait(id)
    until(lambda: all(one.liveness == "alive" for one in client.nodes()))
    return max(0.0, seen)


def frozen_node(root: Path, client: "corral.Client") -> tuple[float, float]:
    """(silence seen, running elsewhere) in seconds after the freeze."""
    id, node = job_on_a_node(root, client)
    mark = str(root / "nodes" / node).encode()
    pids = [
        pid
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if mark in about(pid)
    ]
    began = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: client.node(node).liveness != "alive")
        silent = time.time() - began
        until(lambda: client.job(id).attempt == 2 and client.job(id).state == "RUNNING")
        elsewhere = time.time() - began
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    client.wait(id)
    until(lambda: all(one.liveness == "alive" for one in client.nodes()))
    return silent, elsewhere


def about(pid: int) -> bytes:
    try:
        return b"".join(
            Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")
        )
    except OSError:
        return b""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    agents, nodes, frozen = [], [], []
    for _ in range(asked.rounds):
        words = ("--nodes", "2", "--gpus", "1", "--pretend", "--reboot", "1")
        with cluster(*words) as (root, client):
            agents.append(killed_agent(root, client))
            nodes.append(killed_node(root, client))
            frozen.append(frozen_node(root, client))
    rows = [
        ("killed agent seen", spread(agents), "1 s"),
        ("killed node seen", spread(nodes), "1 s"),
        ("frozen node told silent", spread([one for one, _ in frozen]), "10 s"),
        ("its job runs elsewhere", spread([two for _, two in frozen]), "15 s"),
    ]
    text = report(f"Failures seen, {asked.rounds} rounds", rows)
    keep("failure_detection", text, asked.write)


if __name__ == "__main__":
    main()
