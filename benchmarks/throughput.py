"""Jobs a second: 500 one-GPU `true` jobs on 4 nodes of 8 pretend GPUs, until all are done.

Run: .venv/bin/python benchmarks/throughput.py [--jobs 500] [--rounds 3] [--no-peer] [--write]

They are one submission; the time runs from sending it to the event of the last one's end.
To reach (issue 2): 100 jobs/s. Where Slurm is installed it runs the same after it, tuned: as one
array, and with sbatch once a job.
"""

import argparse
import statistics
import time

from embedded import cluster, keep, peer, report, spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    rates = []
    with cluster("--nodes", "4", "--gpus", "8", "--pretend") as (_, client):
        for number in range(asked.rounds):
            specs = [
                {"name": f"r{number}-{index}", "run": "true", "resources": {"gpu": 1}}
                for index in range(asked.jobs)
            ]
            began = time.time()
            open_jobs = {job.id for job in client.submit(specs)}
            last = began
            for event in client.events(follow=True):
                if event.job in open_jobs and event.text.endswith("is DONE"):
                    open_jobs.discard(event.job)
                    last = event.at
                if not open_jobs:
                    break
            rates.append(asked.jobs / (last - began))
            print(f"round {number}: {rates[-1]:.1f} jobs/s", flush=True)
    rows = [("jobs a second", spread(rates, "jobs/s"), "100 jobs/s")]
    slurm = None if asked.no_peer else peer()
    if slurm is not None:
        with slurm.slurm_cluster(nodes=4, gpus=8, settings=slurm.TUNED) as there:
            for how in ("array", "sbatch"):
                rate = slurm.throughput(there, jobs=asked.jobs, how=how).jobs_per_second
                ratio = statistics.median(rates) / rate
                rows.append(
                    (f"tuned Slurm, {how}", f"{rate:.1f} jobs/s ({ratio:.2f} x)", "")
                )
    text = report(f"Throughput, {asked.jobs} jobs, {asked.rounds} rounds", rows)
    keep("throughput", text, asked.write)
    print(f"median {statistics.median(rates):.1f} jobs/s")


if __name__ == "__main__":
    main()
