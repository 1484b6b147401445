"""A pretend node shows what runs on its GPUs, and tells what its kernel says, on a real
cluster."""

import os
import signal

from tests.scenarios.house import House, house, until


def signals(here: House) -> list[tuple[str, str | None, str | None]]:
    """What nodes have told: its kind, the node, the job that was on the device."""
    with here.client() as client:
        events = list(client.events())
    return [
        (one.kind, one.node, one.job)
        for one in events
        if one.kind.startswith("signal_")
    ]


def test_a_gpu_shows_the_job_on_it_and_its_fault_names_that_job_once() -> None:
    with house("--nodes", "1", "--gpus", "2") as here:
        job = here.submit("busy", "while :; do :; done", resources={"gpu": 1})
        here.until_state(job, "RUNNING")
        # the next one reads them when it has begun
        os.kill(here.agent("n1").pid, signal.SIGKILL)

        def shows() -> bool:
            sample = here.node("n1").sample
            gpus = sample.gpus if sample is not None else ()
            return any(gpu.processes and (gpu.utilisation or 0.0) > 0.1 for gpu in gpus)

        until(shows, "the job's process is on a GPU")
        sample = here.node("n1").sample
        assert sample is not None
        used = [(gpu.index, [one.job for one in gpu.processes]) for gpu in sample.gpus]
        assert used == [(0, [job]), (1, [])]
        assert sample.gpus[1].utilisation == 0.0
        log = here.root / "nodes" / "n1" / "kernel.log"
        log.write_text("NVRM: Xid (PCI:0000:00:00): 79, GPU has fallen off the bus.\n")
        until(lambda: signals(here), "the fault is told")
        assert signals(here) == [("signal_xid", "n1", job)]
