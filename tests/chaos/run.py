"""Chaos: a real cluster under random faults, and a check of what it acknowledged and
recorded.

Run: .venv/bin/python -m tests.chaos.run [--seeds 1,2,3] [--minutes 10] [--pause 1.0]
    [--folder DIR] [--write FILE.md]

The folder keeps of each run `seed-N.json` (tests/chaos/history.py) and, in
`seed-N-kept`, the logs of its head and agents. `python -m tests.chaos.check FILE`
checks one again.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

import corral
from corral.domain.errors import CorralError
from tests.chaos import report
from tests.chaos.checker import violations
from tests.chaos.clients import Submitter, Watcher, all_jobs
from tests.chaos.cluster import DISK_BYTES, Cluster
from tests.chaos.faults import HEAD, injections
from tests.chaos.gather import check_store, read_evidence, read_jobs
from tests.chaos.history import Backup, History
from tests.chaos.injector import Injector
from tests.chaos.workload import Place, submissions

UP: Final = (
    "--nodes",
    "3",
    "--gpus",
    "2",
    "--pretend",
    "--reboot",
    "4",
    "--disk-reserve",
    "1MB",
)
MOST_UNFINISHED: Final = 24  # more would wait for minutes once the faults are over
# a retry delay is 60 s at most, and several may follow each other
SETTLE_SECONDS: Final = 420.0
PROGRAM: Final = Path(__file__).with_name("rank.py")


def prepared(cluster: Cluster) -> Place:
    """Folders of evidence and saves, and the program of the ranks beside them."""
    shared = cluster.ranks_dir
    for name in ("evidence", "saves"):
        (shared / name).mkdir(parents=True)
    shutil.copy(PROGRAM, shared / "rank.py")
    return Place(
        python=sys.executable,
        program=str(shared / "rank.py"),
        evidence=str(shared / "evidence"),
        saves=str(shared / "saves"),
    )


def run_seed(seed: int, minutes: float, pause_seconds: float, folder: Path) -> History:
    """One run: faults for so many minutes, peace until every job is over, down, and the
    record."""
    folder.mkdir(parents=True)
    cluster = Cluster(folder)
    try:
        notes = [f"no small disks: {why}"] if (why := cluster.make_disks()) else []
        place = prepared(cluster)
        first = cluster.corral("up", *UP, "--shared", str(cluster.ranks_dir))
        if first.returncode:
            raise SystemExit(f"the cluster does not start: {first.stderr}")
        watcher, injector = Watcher(cluster.root), Injector(cluster, folder)
        submitter = Submitter(
            cluster.root,
            submissions(seed, place),
            pause_seconds,
            has_room=lambda: watcher.unfinished < MOST_UNFINISHED,
        )
        submitter.start()
        watcher.start()
        injector.run(injections(seed), minutes * 60.0)
        settle(cluster)
        submitter.end()
        notes += until_all_over(cluster)
        time.sleep(3.0)  # the watcher sees the last ends
        watcher.end()
        return record(
            cluster, place, seed, minutes * 60.0, notes, submitter, watcher, injector
        )
    finally:
        cluster.thaw()
        cluster.keep_logs()
        cluster.remove()


def settle(cluster: Cluster) -> None:
    """Mend everything as an operator would: nothing frozen, no disk full, a head, clear
    nodes."""
    cluster.thaw()
    for target in DISK_BYTES:
        cluster.empty(target)
    cluster.up()
    cluster.clear(HEAD)


def until_all_over(cluster: Cluster) -> list[str]:
    """Wait for the end of every job. Return a note where some are not over in time."""
    give_up_at = time.monotonic() + SETTLE_SECONDS
    waits: list[str] = []
    with corral.Client(dir=cluster.root) as client:
        while time.monotonic() < give_up_at:
            try:
                waits = [job.id for job in all_jobs(client) if not job.is_over]
            except CorralError:
                waits = ["(the head does not answer)"]
            if not waits:
                return []
            time.sleep(2.0)
    return [f"not over {SETTLE_SECONDS:g} s after the last fault: {' '.join(waits)}"]


def record(
    cluster: Cluster,
    place: Place,
    seed: int,
    seconds: float,
    notes: list[str],
    submitter: Submitter,
    watcher: Watcher,
    injector: Injector,
) -> History:
    """Read everything, and bring the cluster down while a few jobs run."""
    jobs = read_jobs(cluster.root)
    with corral.Client(dir=cluster.root) as client:
        for number in range(3):
            client.submit({"name": f"last-{number}", "run": "sleep 300", "grace": "1s"})
    time.sleep(1.0)
    cluster.corral("down", "--jobs", "stop", "-y")
    time.sleep(0.5)
    left = tuple(str(pid) for pid in cluster.house.processes())
    cluster.keep_logs()
    evidence, wrong = read_evidence(Path(place.evidence))
    integrity, _ = check_store(cluster.root / "corral.db")
    mounts = (*cluster.mounts(), *(cluster.drop_disks() if not left else ()))
    return History(
        seed=seed,
        seconds=seconds,
        plans=tuple(submitter.plans),
        acknowledged=tuple(submitter.acknowledged),
        cancelled=tuple(submitter.cancelled),
        faults=tuple(injector.faults),
        sightings=tuple(watcher.sightings),
        answers=tuple(watcher.answers),
        evidence=evidence,
        jobs=jobs,
        backups=tuple(
            restored(cluster, began, file, start=number == len(injector.backups))
            for number, (began, file) in enumerate(injector.backups, start=1)
        ),
        integrity=integrity,
        left_processes=left,
        left_mounts=mounts,
        failed_commands=tuple(cluster.failed),
        wrong=wrong,
        notes=(*notes, *injector.errors, *(f"refused: {o}" for o in submitter.refused)),
        counts={**injector.missed, "unanswered tries": submitter.unanswered},
    )


def restored(cluster: Cluster, began: float, file: Path, *, start: bool) -> Backup:
    """Restore a backup into a folder of its own. With `start`, a head takes it up and
    goes down."""
    root = file.with_suffix(".restored")
    steps: list[tuple[str, ...]] = [("restore", str(file))]
    if start:
        steps += [("up",), ("down", "--jobs", "stop", "-y")]
    for words in steps:
        done = cluster.corral(*words, root=root)
        if done.returncode:
            return Backup(
                begun=began, jobs=(), integrity=f"{words[0]}: {done.stderr.strip()}"
            )
    integrity, jobs = check_store(root / "corral.db")
    return Backup(begun=began, jobs=jobs, integrity=integrity)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--pause", type=float, default=1.0, help="seconds between submissions"
    )
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="corral-chaos-"))
    runs: list[report.Run] = []
    for seed in (int(one) for one in asked.seeds.split(",")):
        history = run_seed(seed, asked.minutes, asked.pause, folder / f"seed-{seed}")
        (folder / f"seed-{seed}.json").write_bytes(msgspec.json.encode(history))
        load = os.getloadavg()[1]
        runs.append(
            report.Run(history=history, violations=violations(history), load=load)
        )
        print(report.of_seed(runs[-1]), flush=True)
        if asked.write is not None:
            asked.write.write_text(report.page(runs))
    print(f"records: {folder}")
    return 1 if any(one.violations for one in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
