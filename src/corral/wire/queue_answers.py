"""Requests and answers of the HTTP API about queues."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from corral.wire.job_parts import ForecastView


class BudgetRow(ForecastView):
    """`runs_out_at`: when it will be spent if what is held is held on; null: not in its
    time."""

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
    """A queue in a listing. `share` is its dominant part of the cluster, past and
    present, over its weight; `due` the part that its weight gives it when all want as
    much as they can get. `owes`: GPUs that it has lately held beyond its own, on
    average, and pays back: below a queue that goes by service."""

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


class UserRow(ForecastView):
    """Use of a queue by one user: what is held, used and given back. `jobs`: the user's
    unfinished jobs in all queues, and `max_jobs` the limit; null for callers who may
    not see the user."""

    user: str
    used: float
    used_gpu_hours: float
    jobs: int | None = None
    max_jobs: int | None = None


class KeptRow(ForecastView):
    """GPUs that are being taken back for a waiting job of the queue, and who is stopped
    for it."""

    job: str
    victims: list[str]
    since: float


class QueueDetail(QueueRow):
    """One queue whole (`corral queue show`)."""

    users: list[UserRow]
    kept: list[KeptRow]


class RelocationRow(ForecastView):
    """Budget of relocations in any 24 hours, and the cost of the last 24; GPU-hours."""

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
    """Changes of queues, made or planned: one line each. `warnings`: their effect in
    the present cluster."""

    changes: list[str]
    warnings: list[str] = []


class QueuesBody(BaseModel):
    """The document of a file of `kind: queues`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    document: dict[str, Any]


class QueueBody(BaseModel):
    """Fields of one queue, as in a file; null takes one away. Others stay as they
    are."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    fields: dict[str, Any]
