"""Requests and answers of the HTTP API about queues."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from corral.wire.job_parts import ForecastView


class BudgetRow(ForecastView):
    """The budget of a queue and its use. `runs_out_at`: when the budget will be spent
    if the GPUs that are held now stay held; null: not within its period."""

    unit: str
    amount: float
    spent: float
    left: float
    since: float
    renewed_at: float | None
    runs_out_at: float | None
    is_spent: bool
    effect: str


class QueueRow(ForecastView):
    """A queue in a listing.

    `share`: its dominant share of the cluster (past and present use), divided by its
    weight. `due`: the share to which its weight entitles it if all queues request as
    much as possible. `owes`: GPUs that the queue has recently held beyond its share, on
    average, and must give back; only below a queue with the policy service.
    """

    name: str
    parent: str | None
    depth: int
    own: float
    used: float
    borrowed: float
    running: int
    waiting: int
    share: float
    due: float
    owes: float
    used_gpu_hours: float
    budget: BudgetRow | None
    form: dict[str, Any]

    @property
    def share_of_cluster(self) -> float:
        """Return the share without the weight, as `due` is one."""
        return self.share * float(self.form.get("weight", 1.0))


class UserRow(ForecastView):
    """One user's use of a queue: held GPUs and used GPU-hours. `jobs`: the unfinished
    jobs of the user in all queues; `max_jobs`: their limit. Both are null for callers
    who may not see the user."""

    user: str
    used: float
    used_gpu_hours: float
    jobs: int | None = None
    max_jobs: int | None = None


class KeptRow(ForecastView):
    """GPUs that are being reclaimed for the waiting job `job` of the queue. `victims`:
    the jobs that are stopped for this."""

    job: str
    victims: list[str]
    since: float


class QueueDetail(QueueRow):
    """Complete view of a queue (`corral queue show`)."""

    users: list[UserRow]
    kept: list[KeptRow]


class RelocationRow(ForecastView):
    """Budget of relocations in any 24 hours, and the cost of the last 24 hours, in
    GPU-hours."""

    gpu_hours: float
    spent_gpu_hours: float
    pause_seconds: float


class Queues(ForecastView):
    """Queues and their common settings.

    `relocation` null: no job is moved to make room. `rack_locality_delay_seconds` and
    `pod_locality_delay_seconds`: time for which a gang waits for a single rack, or a single
    pod. `currency`: of budgets, rates and the prices of nodes.
    """

    queues: list[QueueRow]
    half_life_seconds: float
    min_runtime_seconds: float
    relocation: RelocationRow | None = None
    rack_locality_delay_seconds: float = 0.0
    pod_locality_delay_seconds: float = 0.0
    currency: str = "USD"


class QueueChanges(ForecastView):
    """Changes of queues as text, one line each, either made or only planned.
    `warnings`: effects of the changes in the present cluster."""

    changes: list[str]
    warnings: list[str] = []


class QueuesBody(BaseModel):
    """The document of a queue file (`kind: queues`)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    document: dict[str, Any]


class QueueBody(BaseModel):
    """Change of one queue: its fields, as in a queue file. null resets a field; absent
    fields stay unchanged."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    fields: dict[str, Any]
