"""From a submit, as the API receives it, to the job's process running.

Run: .venv/bin/python benchmarks/submit_latency.py [--jobs 100] [--no-peer] [--write]

One job at a time on a cluster that is otherwise idle. The job's shell notes its own clock as its
first act; the head noted when it took the submit in. Beside it: the same as a client sees it, from
sending the request to the event RUNNING. To reach (issue 2): p50 <= 60 ms, p99 <= 200 ms.
Where Slurm is installed it runs the same after it, tuned, counted from sbatch's return.
"""

import argparse
import time

from embedded import cluster, keep, peer, quantile, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    to_process: list[float] = []
    to_event: list[float] = []
    with cluster("--nodes", "2", "--gpus", "2", "--pretend") as (root, client):
        for number in range(asked.jobs + 3):
            note = root / "shared" / f"at-{number}"
            spec = {"name": f"at-{number}", "run": f"echo $EPOCHREALTIME > {note}"}
            began = time.time()
            job = client.submit(spec)[0]
            for event in client.events(job.id, follow=True):
                if event.kind == "job_running" or event.text.endswith("RUNNING"):
                    running_at = event.at
            if number >= 3:  # the first ones warm up the path
                to_process.append(float(note.read_text()) - job.submitted_at)
                to_event.append(running_at - began)
    rows = [
        (
            "received to process running, p50",
            f"{quantile(to_process, 0.5) * 1e3:.1f} ms",
            "60 ms",
        ),
        (
            "received to process running, p99",
            f"{quantile(to_process, 0.99) * 1e3:.1f} ms",
            "200 ms",
        ),
        ("worst", f"{max(to_process) * 1e3:.1f} ms", ""),
        (
            "sent to recorded as RUNNING, p50",
            f"{quantile(to_event, 0.5) * 1e3:.1f} ms",
            "",
        ),
    ]
    slurm = None if asked.no_peer else peer()
    if slurm is not None:
        with slurm.slurm_cluster(nodes=4, gpus=8, settings=slurm.TUNED) as there:
            starts = [
                one.from_return
                for one in slurm.submit_to_running(there, count=asked.jobs)
            ]
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            theirs = quantile(starts, share)
            ratio = theirs / quantile(to_process, share)
            rows.append(
                (f"tuned Slurm, {name}", f"{theirs * 1e3:.0f} ms ({ratio:.0f} x)", "")
            )
    keep(
        "submit_latency",
        report(f"Submit to running, {asked.jobs} jobs", rows),
        asked.write,
    )


if __name__ == "__main__":
    main()
