"""Routes of queues: show their settings, jobs and usage, and change them."""

from collections import Counter
from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.job_visibility import CallerView, sight_of
from corral.api.jobs import Asker, Within
from corral.control import Control
from corral.control.queue_checks import check_queues, warnings_of
from corral.domain.access_list import users_of
from corral.domain.errors import NotFound, SpecInvalid
from corral.domain.ids import QueueName, UserName
from corral.domain.job_states import JobState
from corral.domain.queue import Queue
from corral.domain.quota import Quota
from corral.domain.relocation import spent_gpu_seconds
from corral.domain.requests import SetQueues
from corral.domain.units import HOUR_SECONDS, MILLIS_PER_GPU
from corral.domain.usage import BudgetSpent
from corral.domain.visibility import check_operator
from corral.domain.world import World
from corral.reconcile.changeset import Draft
from corral.reconcile.usage import (
    ChargedAllocation,
    effect,
    held_now,
    is_spent,
    judge_budgets,
    spent_now,
    standing_of,
)
from corral.schedule.quota.balances import Standing
from corral.schedule.quota.borrowing import gpus_of
from corral.schedule.quota.fair_share import targets
from corral.wire import queue_answers as wire
from corral.wire.queue_file import read_queue, read_queues
from corral.wire.queue_forms import changes_of, form_of
from corral.wire.yaml_document import Document

router = APIRouter()
USER: Final = ("GET", "/v1/users/{user}")


class QueueSnapshot:
    """State of all queues at one moment: usage and job counts."""

    def __init__(self, control: Control) -> None:
        self.world = control.world
        draft = Draft(control.world, control.facts, control.now())
        self.now = draft.now.wall
        self.tree = draft.tree
        self.held: list[ChargedAllocation] = list(held_now(draft))
        self.standing: Standing = standing_of(
            draft, self.held, judge_budgets(draft, self.held)
        )
        self.spent = spent_now(draft, self.held)
        weights = {
            str(queue_row.name): queue_row.weight for queue_row in self.tree.queues
        }
        self.due = targets(
            weights,
            {str(queue_row.name): queue_row.parent for queue_row in self.tree.queues},
        )
        jobs = self.world.jobs.values()
        self.waiting = self._subtree_counts(
            Counter(job.spec.queue for job in jobs if job.state == JobState.QUEUED)
        )
        running = (JobState.STARTING, JobState.RUNNING)
        self.running = self._subtree_counts(
            Counter(j.spec.queue for j in jobs if j.state in running)
        )

    def _subtree_counts(self, counts: Counter[QueueName]) -> Counter[QueueName]:
        """Return the counts by queue, where each queue's count includes those of the
        queues below it."""
        child_counts: Counter[QueueName] = Counter()
        for name, count in counts.items():
            for queue in self.tree.path(name):
                child_counts[queue.name] += count
        return child_counts

    def rows(self) -> list[wire.QueueRow]:
        return [
            wire.QueueRow(**self._queue_row_fields(depth, queue))
            for depth, queue in self.tree.walk()
        ]

    def detail(self, name: str, sight: CallerView) -> wire.QueueDetail:
        """Return the details of the queue with this name.

        Raises: NotFound.
        """
        for depth, queue in self.tree.walk():
            if queue.name == name:
                return wire.QueueDetail(
                    **self._queue_row_fields(depth, queue),
                    users=self._users(queue, sight),
                    kept=self._kept(queue, sight),
                )
        raise NotFound(
            "queue", name[:100], list(self.tree.by_name), see="corral queue ls"
        )

    def _queue_row_fields(self, depth: int, queue: Queue) -> dict[str, Any]:
        standing, name = self.standing, queue.name
        usage_records = [
            u for u in self.world.uses.values() if queue in self.tree.path(u.queue)
        ]
        return dict(
            name=name,
            parent=queue.parent,
            depth=depth,
            own=queue.nominal_millis / MILLIS_PER_GPU,
            used=standing.held_millis(name) / MILLIS_PER_GPU,
            borrowed=standing.borrowed_millis(name) / MILLIS_PER_GPU,
            running=self.running[name],
            waiting=self.waiting[name],
            share=standing.share(name),
            due=self.due[name],
            owes=self._owed_gpus(name),
            used_gpu_hours=sum(
                queue_usage.total_gpu_seconds for queue_usage in usage_records
            )
            / HOUR_SECONDS,
            budget=self._budget_row(queue, self.spent[name])
            if queue.budget is not None
            else None,
            form=form_of(queue),
        )

    def _owed_gpus(self, name: QueueName) -> float:
        debt = self.world.debts.get(name)
        if debt is None or name not in self.standing.owing:
            return 0.0
        return gpus_of(debt, self.now, self.tree.half_life_seconds)

    def _budget_row(self, queue: Queue, spent: BudgetSpent) -> wire.BudgetRow:
        budget = queue.budget
        assert budget is not None
        in_money = budget.money is not None
        hours = spent.gpu_seconds / HOUR_SECONDS
        amount = (budget.money if budget.money is not None else budget.gpu_hours) or 0.0
        done = spent.money if in_money else hours
        rate = 0.0  # in an hour, by what is held now
        for charged_allocation in self.held:
            if queue in self.tree.path(charged_allocation.holding.queue):
                gpus = (
                    (kind, millis / MILLIS_PER_GPU)
                    for kind, millis in charged_allocation.holding.gpu_millis
                )
                rate += sum(
                    n * budget.rate(kind) if in_money else n for kind, n in gpus
                )
        end_times = [budget.until, self._renewed_at(queue)]
        remaining = max(0.0, amount - done)
        runs_out_at = (
            self.now + remaining / rate * HOUR_SECONDS
            if rate > 0 and remaining > 0
            else None
        )
        if runs_out_at is not None and any(
            end_time is not None and end_time <= runs_out_at for end_time in end_times
        ):
            runs_out_at = None
        return wire.BudgetRow(
            unit=self.tree.currency if in_money else "GPU-hours",
            amount=amount,
            spent=done,
            left=remaining,
            since=spent.since,
            renewed_at=self._renewed_at(queue),
            runs_out_at=runs_out_at,
            is_spent=is_spent(budget, spent, self.now),
            effect=effect(budget),
        )

    def _renewed_at(self, queue: Queue) -> float | None:
        budget = queue.budget
        if budget is None or budget.period_seconds is None:
            return None
        return budget.period_start(self.now) + budget.period_seconds

    def _users(self, queue: Queue, sight: CallerView) -> list[wire.UserRow]:
        """Return one row for each user with the allocated resources and recent usage in
        the queue and the queues below it. Users who are hidden from the caller are left
        out."""
        below = {
            queue_row.name
            for queue_row in self.tree.queues
            if queue in self.tree.path(queue_row.name)
        }
        hours: Counter[UserName] = Counter()
        millis: Counter[UserName] = Counter()
        for use in self.world.uses.values():
            if use.queue in below and sight.of(use.queue, use.user):
                hours[use.user] += use.total_gpu_seconds / HOUR_SECONDS  # type: ignore[assignment]
        for charged_allocation in self.held:
            holding = charged_allocation.holding
            if holding.queue in below and sight.of(holding.queue, holding.user):
                millis[holding.user] += sum(amount for _, amount in holding.gpu_millis)
        return [
            wire.UserRow(
                user=user,
                used=millis[user] / MILLIS_PER_GPU,
                used_gpu_hours=hours[user],
            )
            for user in sorted(set(hours) | set(millis))
        ]

    def _kept(self, queue: Queue, sight: CallerView) -> list[wire.KeptRow]:
        return [
            wire.KeptRow(
                job=reservation.job,
                victims=[
                    str(id)
                    for id in sight.ids(victim.job for victim in reservation.victims)
                ],
                since=reservation.since,
            )
            for reservation in self.world.reservations.values()
            # a promise waits for ends, and displaces no job
            if reservation.latest_start is None
            and (job := self.world.jobs.get(reservation.job))
            and job.spec.queue == queue.name
            and sight.job(job)
        ]


@router.get("/v1/queues")
async def queues(house: Within) -> wire.Queues:
    """Return all queues, each after its parent."""
    tree = house.control.world.queues
    return wire.Queues(
        queues=QueueSnapshot(house.control).rows(),
        half_life_seconds=tree.half_life_seconds,
        min_runtime_seconds=tree.min_runtime_seconds,
        relocation=_relocation(house.control.world, house.control.now().wall),
        rack_locality_delay_seconds=tree.rack_locality_delay_seconds,
        pod_locality_delay_seconds=tree.pod_locality_delay_seconds,
        currency=tree.currency,
    )


def _relocation(world: World, now: float) -> wire.RelocationRow | None:
    rule = world.queues.relocation
    if rule is None:
        return None
    return wire.RelocationRow(
        gpu_hours=rule.gpu_hours,
        spent_gpu_hours=spent_gpu_seconds(world.relocations.values(), now)
        / HOUR_SECONDS,
        pause_seconds=rule.pause_seconds,
    )


@router.get("/v1/queues/{queue}")
async def queue(queue: str, house: Within, caller: Asker) -> wire.QueueDetail:
    """Return one queue and its users. The users' job quota is included if the caller
    may see these users."""
    queue_detail = QueueSnapshot(house.control).detail(
        queue, sight_of(house.control, caller)
    )
    users_by_user_name = {user.name: user for user in await house.control.store.users()}
    users = []
    for row in queue_detail.users:
        user = users_by_user_name.get(UserName(row.user))
        if user is not None and caller.may(owner=user.name, key=USER):
            job_limit = house.quotas.of_user(user).limit(Quota.JOBS)
            jobs = house.control.world.unfinished_of(user.name)
            row = row.model_copy(update={"jobs": jobs, "max_jobs": job_limit})
        users.append(row)
    return queue_detail.model_copy(update={"users": users})


@router.put("/v1/queues")
async def put_queues(
    body: wire.QueuesBody, house: Within, caller: Asker, dry_run: bool = False
) -> wire.QueueChanges:
    """Replace the whole tree of queues at the next tick. With `dry_run` nothing is
    changed."""
    set_queues = read_queues(Document(value=body.document, source="queues"))
    return await _apply_queue_changes(house, set_queues, caller, dry_run)


@router.put("/v1/queues/{queue}")
async def put_queue(
    queue: str,
    body: wire.QueueBody,
    house: Within,
    caller: Asker,
    dry_run: bool = False,
) -> wire.QueueChanges:
    """Create the queue of this name, or change it if it exists."""
    known_queue = house.control.world.queues.by_name.get(QueueName(queue))
    form = form_of(known_queue) if known_queue is not None else {}
    if "queues" in body.fields:
        raise SpecInvalid(
            "the field `queues` is not allowed in the settings of one queue",
            hint="to set several queues, run: corral apply -f queues.yaml",
        )
    return await _apply_queue_changes(
        house, read_queue(queue, {**form, **body.fields}), caller, dry_run
    )


@router.delete("/v1/queues/{queue}")
async def drop_queue(
    queue: str, house: Within, caller: Asker, dry_run: bool = False
) -> wire.QueueChanges:
    """Remove a queue that has neither unfinished jobs nor queues below it."""
    set_queues = SetQueues(queues=(), whole=False, removed=(QueueName(queue),))
    return await _apply_queue_changes(house, set_queues, caller, dry_run)


async def _apply_queue_changes(
    house: House, asked: SetQueues, caller: Caller, dry_run: bool
) -> wire.QueueChanges:
    current_queues = house.control.world.queues
    changed_queues = check_queues(house.control.world, asked, house.control.now().wall)
    if not caller.oversees:
        check_operator(current_queues, changed_queues, caller.name)
    changes = changes_of(current_queues, changed_queues)
    if changes and not dry_run:
        set_queues = replace(asked, changes=tuple(changes))
        await house.control.ask(set_queues, by=caller.name, speaker=caller.speaker)
    warnings = [
        *warnings_of(house.control.world, changed_queues),
        *await _warn_unknown_users(house, asked),
    ]
    return wire.QueueChanges(changes=changes, warnings=warnings)


async def _warn_unknown_users(house: House, asked: SetQueues) -> list[str]:
    """Return the names that a queue allows but that are not users of the cluster. Such
    a name may be a typing error, or a future user."""
    allowed_users = [
        (queue.name, name) for queue in asked.queues for name in users_of(queue.allow)
    ]
    user_names = (
        {user.name for user in await house.control.store.users()}
        if allowed_users
        else set()
    )
    return [
        f"queue {queue} allows {name}, but no user has this name; to add the user, run: "
        f"corral user add {name}"
        for queue, name in allowed_users
        if name not in user_names
    ]
