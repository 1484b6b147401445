"""One engine with its real component, as the statements of the contract see it."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from corral.wire import api
from tests.scenarios.house import House, until

HOUR = "sleep 3600"


class Landlord(Protocol):
    """A cluster of two nodes with two GPUs each (pretended where there are none) on one
    engine.

    `exceptions`: statements that the engine does not honour -> why; the function's
    name.
    """

    @property
    def name(self) -> str: ...

    @property
    def exceptions(self) -> Mapping[str, str]: ...

    @property
    def house(self) -> House: ...

    @property
    def shared(self) -> Path:
        """A folder that the head, every node and the tests see."""
        ...

    @property
    def nodes(self) -> tuple[str, str]: ...

    def processes(self, id: str, attempt: int) -> list[int]:
        """Ranks, and what they have left behind, of one attempt that are alive on any
        node."""
        ...

    def kill_agent(self, node: str, id: str) -> None:
        """End the agent that looks after the job on the node, at once and alone."""
        ...

    def private_folders(self, node: str, id: str) -> list[Path]:
        """Folders on the node in which files of the job lie that only its user may
        read."""
        ...

    def kill_node(self, node: str) -> None:
        """The node loses its power: nothing of it is left."""
        ...

    def revive(self, node: str) -> None:
        """Its power is back; a node that comes back by itself needs nothing."""
        ...

    def tell_xid(self, node: str, id: str, gpu: int, code: int) -> None:
        """The node's driver tells it of the GPU that the head calls so and the job
        holds."""
        ...

    def others(self) -> AbstractContextManager[str]:
        """Meanwhile somebody else holds all GPUs of one node, on which nothing runs:
        this one."""
        ...


def xid_line(gpu: int, code: int) -> str:
    """As the kernel of a pretend machine says it."""
    return f"NVRM: Xid (PCI:0000:{gpu:02x}:00): {code}, pid=1, GPU has fallen off the bus.\n"


class Tenant:
    """Who submits: every job has a name of its own and is over when the test is."""

    def __init__(self, landlord: Landlord) -> None:
        self.landlord = landlord
        self.house = landlord.house
        self.shared = landlord.shared
        self._ids: list[str] = []

    def submit(self, run: str, *, name: str = "contract", **more: Any) -> str:
        """The job's id. It takes little of a node unless told otherwise."""
        asked = {"resources": {"cpu": 0.5, "memory": "64MB"}, "grace": "2s", **more}
        return self.keep(self.house.submit(name, run, **asked))

    def keep(self, id: str) -> str:
        """The id of a job that is to be over when the test is."""
        self._ids.append(id)
        return id

    def runs(self, run: str = HOUR, **more: Any) -> str:
        """A job that runs."""
        id = self.submit(run, **more)
        self.until_running(id)
        return id

    def ends(self, run: str, **more: Any) -> api.JobDetail:
        """A job that is over."""
        return self.house.until_over(self.submit(run, **more))

    def says(self, run: str, **more: Any) -> str:
        """What a job has written, that ended as it should."""
        job = self.ends(run, **more)
        assert job.state == "DONE", (job, self.house.logs(job.id))
        return self.house.logs(job.id)

    def until_running(self, id: str) -> None:
        until(
            lambda: self.house.job(id).state == "RUNNING" or self._failed(id),
            f"{id} runs",
        )

    def _failed(self, id: str) -> bool:
        job = self.house.job(id)
        assert not job.is_over, (job, self.house.logs(id))
        return False

    def stop(self, id: str) -> api.JobDetail:
        self.house.ok("stop", id, "-y")
        return self.house.until_over(id)

    def gpu_job(self, nodes: int = 1, gpus: int = 1, **more: Any) -> dict[str, Any]:
        """What a job with GPUs asks for."""
        return {
            "nodes": nodes,
            "resources": {"gpu": gpus, "cpu": 0.5, "memory": "64MB"},
            **more,
        }

    def let_go(self) -> None:
        """Stop what a test has left running, and wait until the nodes are empty."""
        for id in self._ids:
            if not self.house.job(id).is_over:
                self.house.corral("stop", id, "-y")
        for id in self._ids:
            self.house.until_over(id)
        until(self._empty, "all GPUs are free again")

    def _empty(self) -> bool:
        with self.house.client() as client:
            gpus = client.status().gpus
        return gpus.free == gpus.total and not gpus.away


@contextmanager
def tenant_of(landlord: Landlord) -> Iterator[Tenant]:
    tenant = Tenant(landlord)
    yield tenant
    tenant.let_go()
