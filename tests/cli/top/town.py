"""A cluster that a test writes down, and a head that answers with it."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from corral.domain.errors import CorralError, NotFound, Unreachable
from corral.wire import api, gpus
from corral.wire.time_series import SeriesView

NOW = 1_000_000.0


def node(name: str, count: int = 8, free: float = 0.0, **more: Any) -> api.NodeView:
    plain: dict[str, Any] = {
        "id": name, "address": "127.0.0.1", "liveness": "alive", "has_heartbeat": True, "why": "",
        "since": NOW, "cordoned": False, "draining": False, "cpus": 64.0, "memory_bytes": 2**40,
        "labels": {"rack": "r1"}, "jobs": [],
        "gpus": {"total": count, "free": free, "types": ["h100"]},
    }  # fmt: skip
    return api.NodeView.model_validate(plain | more)


def sensed(
    name: str, holders: Sequence[str], busy: Sequence[float | None]
) -> gpus.GpusOfNode:
    """What the node's GPUs say; of one that is free little is to be said."""
    count = len(holders)
    return gpus.GpusOfNode(
        node=name,
        at=NOW,
        index=list(range(count)),
        utilisation=list(busy),
        memory=[0.5] * count,
        power_watts=[100.0 + 600 * (one or 0.0) for one in busy],
        temperature_celsius=[30.0 + 40 * (one or 0.0) for one in busy],
        holders=list(holders),
        signs=[""] * count,
    )


def job(number: int, state: str = "RUNNING", **more: Any) -> api.JobView:
    plain: dict[str, Any] = {
        "id": f"j{number}", "name": f"train-{number}", "state": state, "reason": "",
        "reason_code": "", "owner": f"user-{number % 7}", "queue": f"team-{number % 3}",
        "priority": 0, "nodes": ["n1"] if state == "RUNNING" else [], "attempt": 1,
        "shape": {"nodes": 1, "gpus_per_node": 1 + number % 8, "gpu_type": None,
                  "cpus_per_node": 1, "memory_bytes_per_node": 0},
        "exit_code": None, "submitted_at": NOW - 10 * number, "since": NOW, "started_at": None,
        "ended_at": None, "infra_retries": 0, "user_retries": 0, "array_index": None,
        "array": None, "progress": None,
    }  # fmt: skip
    return api.JobView.model_validate(plain | more)


def status(
    nodes: Sequence[api.NodeView], jobs: Sequence[api.JobView], **more: Any
) -> api.Status:
    total = sum(one.gpus.total for one in nodes)
    free = sum(one.gpus.free for one in nodes)
    plain: dict[str, Any] = {
        "head": {
            "pid": 1,
            "url": "http://127.0.0.1:1",
            "version": "1",
            "started_at": NOW,
        },
        "cluster": {"id": "c", "engine": "local", "term": 1},
        "nodes": [one.model_dump() for one in nodes],
        "gpus": {"total": total, "free": free, "used": total - free, "away": 0},
        "jobs": dict(Counter(one.state for one in jobs)),
        "warnings": [],
    }
    return api.Status.model_validate(plain | more)


class Town:
    """A head of a test's own: it counts what it is asked, and goes away when it is told
    to."""

    def __init__(
        self, nodes: Sequence[api.NodeView], jobs: Sequence[api.JobView] = ()
    ) -> None:
        self.nodes = list(nodes)
        self.listed = list(jobs)
        self.sensed: list[gpus.GpusOfNode] = []
        self.number = 1
        self.asked: Counter[str] = Counter()
        self.wants: list[dict[str, Any]] = []
        self.trouble: CorralError | None = None
        self.cancelled: list[str] = []
        self.refusal: CorralError | None = None
        self.log = ["one", "two"]

    @classmethod
    def of(cls, nodes: int, jobs: int, running: int = 0) -> "Town":
        """So many nodes of 8 GPUs; the first jobs run, each on a GPU."""
        work = [job(at, "RUNNING" if at < running else "QUEUED") for at in range(jobs)]
        town = cls([node(f"n{at}") for at in range(nodes)], work)
        ids = [f"j{at}" if at < running else "" for at in range(8 * nodes)]
        town.sensed = [
            sensed(
                f"n{at}",
                ids[8 * at : 8 * at + 8],
                [(at * 8 + gpu) % 101 / 100 for gpu in range(8)],
            )
            for at in range(nodes)
        ]
        return town

    def away(self) -> None:
        self.trouble = Unreachable("no head answers there", hint="run: corral up")

    def back(self) -> None:
        self.trouble = None
        self.number += 1

    def _answer(self, what: str) -> None:
        self.asked[what] += 1
        if self.trouble is not None:
            raise self.trouble

    async def newest_events(self, count: int = 1) -> list[api.EventView]:
        self._answer("events")
        plain = {"number": self.number, "at": NOW, "kind": "k", "text": "t"}
        return [api.EventView(**plain, job=None, node=None, attempt=None)]  # type: ignore[arg-type]

    async def status(self) -> api.Status:
        self._answer("status")
        return status(self.nodes, self.listed)

    async def gpus(self) -> gpus.GpusNow:
        self._answer("gpus")
        return gpus.GpusNow(cost_per_hour=12.5, unpriced_gpus=0.0, nodes=self.sensed)

    async def jobs(
        self,
        *,
        everything: bool = False,
        limit: int = 100,
        before: str | None = None,
        states: Sequence[str] = (),
        text: str = "",
    ) -> list[api.JobView]:
        self._answer("jobs")
        self.wants.append(
            {"limit": limit, "states": states, "text": text, "all": everything}
        )
        found = [
            one
            for one in self.listed
            if (not states or one.state in states)
            and (everything or not one.is_over)
            and text in one.name
        ]
        return found[:limit]

    async def job(self, job: str) -> api.JobDetail:
        self._answer("job")
        found = next((one for one in self.listed if one.id == job), None)
        if found is None:
            raise NotFound("job", job, see="corral ps --all")
        seat = {"node": "n1", "gpus": [0], "gpu_count": 1, "cpus": 1, "memory_bytes": 1}
        attempt = {
            "number": 1, "nodes": ["n1"], "seats": [seat], "master_port": 1,
            "placed_at": NOW - 100, "running_at": None, "ended_at": None, "cause": "",
            "culprit": "", "evidence": "", "exit_code": None, "resume_step": None,
            "last_step": None,
        }  # fmt: skip
        place = {
            "constraints": [],
            "topology": "prefer",
            "exclusive": False,
            "apart_from": [],
        }
        more = {
            "run": "true", "per": "node", "workdir": None, "begins_at": None, "starts_by": None,
            "place": place, "preemptible": False, "receipts": [], "checkpoints": [],
            "attempts": [attempt] if found.state == "RUNNING" else [],
        }  # fmt: skip
        return api.JobDetail.model_validate(found.model_dump() | more)

    async def why(self, job: str) -> api.Why:
        self._answer("why")
        said = {
            "reason": "2 nodes are taken",
            "code": "Resources",
            "suggestions": ["ask for less"],
        }
        return api.Why.model_validate(
            {"id": job, "name": job, "state": "QUEUED", "receipts": [], **said}
        )

    async def logs(
        self, job: str, *, rank: int | None = None, tail: int | None = None
    ) -> AsyncIterator[api.LogLines]:
        self._answer("logs")
        if self.refusal is not None:
            raise self.refusal
        yield api.LogLines(data="\n".join(self.log))
        yield api.LogLines(end="RUNNING")

    async def series(
        self,
        key: str,
        *,
        since: float | None = None,
        until: float | None = None,
        fields: tuple[str, ...] = (),
        points: int = 360,
    ) -> SeriesView:
        self._answer("series")
        times = [NOW - 90.0, NOW - 50.0, NOW - 10.0]
        name = "gpu0.utilisation" if key.startswith("node:") else "loss"
        return SeriesView(key=key, times=times, fields={name: [0.25, 0.5, 0.75]})

    async def cancel(self, job: str) -> api.JobDetail:
        if self.refusal is not None:
            raise self.refusal
        self.cancelled.append(job)
        self.number += 1
        return await self.job(job)
