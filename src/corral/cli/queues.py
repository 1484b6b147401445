"""`corral queue ls`, `show`, `set` and `rm`; and `corral apply` for a file of `kind:
queues`."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from corral.cli.batch_changes import change_each
from corral.cli.error_output import Usage
from corral.cli.head_options import Change, Common, declined
from corral.cli.option_types import (
    BudgetEffect,
    DateText,
    Duration,
    GpuCounts,
    GpuHours,
    GpuRates,
    IdleRule,
    Money,
    Policy,
    PreemptRule,
    PriorityRange,
    QueueName,
    UserList,
    Visibility,
    Weight,
)
from corral.cli.printing import (
    clock_text,
    cut,
    note,
    print_json,
    say,
    show_pairs,
    show_table,
    table,
)
from corral.domain.errors import SpecInvalid
from corral.domain.units import counted, share_text

if TYPE_CHECKING:
    from corral.wire import queue_answers as shapes
    from corral.wire.yaml_document import Document

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
NONE = "none"
_OWED = (
    "GPUs: it recently used more than it owns; until this is paid back, it owns no GPUs"
)


def _queue_parameter(help: str) -> Any:
    return Parameter(negative="", show_default=False, help=help)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """Options of `corral queue set` that set or remove the budget of a queue."""

    gpu_hours: Annotated[
        GpuHours | None,
        _queue_parameter("Budget of the queue in GPU-hours; not with --money."),
    ] = None
    money: Annotated[
        Money | None,
        _queue_parameter("Budget of the queue in money; requires --rates."),
    ] = None
    rates: Annotated[
        GpuRates | None,
        _queue_parameter(
            "Price of one GPU-hour, for --money: 2.5, or by type: h100:2.5,any:1."
        ),
    ] = None
    period: Annotated[
        Duration | None,
        _queue_parameter(
            "Renew the full budget after each period of this length: 30d (default: the "
            "budget is never renewed). Not with --until."
        ),
    ] = None
    until: Annotated[
        DateText | None,
        _queue_parameter(
            "Day on which the budget ends, at 0:00 UTC: 2026-12-31 (default: no end). "
            "Not with --period."
        ),
    ] = None
    then: Annotated[
        BudgetEffect | None,
        _queue_parameter(
            "Effect of a spent budget: borrow-only (default; jobs run only on idle "
            "GPUs of other queues), or the highest priority that jobs keep: low."
        ),
    ] = None
    no_budget: Annotated[bool, _queue_parameter("Remove the queue's budget.")] = False

    def fields(self) -> dict[str, Any]:
        """Return the fields of a budget that were given as options.

        Raises: Usage if the same command sets and removes the budget.
        """
        typed = {
            "gpu_hours": self.gpu_hours,
            "money": self.money,
            "rates": _by_type(self.rates),
            "period": self.period,
            "until": self.until,
            "then": _parse_number(self.then),
        }
        given_fields = {key: value for key, value in typed.items() if value is not None}
        if given_fields and self.no_budget:
            option_names = [f"--{key.replace('_', '-')}" for key in given_fields]
            conflict_text = (
                f"--no-budget cannot be combined with {', '.join(option_names)}"
            )
            raise Usage(
                conflict_text,
                hint=f"leave out --no-budget, or {' and '.join(option_names)}",
            )
        return given_fields


def ls(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List the queues, each with its owned, used and borrowed GPUs, waiting jobs, budget,
    its share of the cluster, and its fair share by weight."""
    with common.client() as client:
        queues = client.queues()
    if common.json:
        print_json(queues)
        return
    rows = table(
        "QUEUE",
        "OWN",
        "USED",
        "BORROWED",
        "RUNNING",
        "WAITING",
        "SHARE",
        "FAIR SHARE",
        "BUDGET LEFT",
        right=("OWN", "USED", "BORROWED", "RUNNING", "WAITING", "SHARE", "FAIR SHARE"),
    )
    for row in queues.queues:
        rows.add_row(
            "  " * row.depth + row.name,
            f"{row.own:g}",
            f"{row.used:g}",
            f"{row.borrowed:g}",
            str(row.running),
            str(row.waiting),
            share_text(row.share_of_cluster),
            share_text(row.due),
            cut(_format_budget(row.budget) if row.budget is not None else ""),
        )
    show_table(rows)
    for row in queues.queues:
        if row.budget is not None and row.budget.is_spent:
            note(
                f"warning: the budget of queue {row.name} is spent: {row.budget.effect}"
            )
    if queues.relocation is not None:
        spent, gpu_hours_limit = (
            queues.relocation.spent_gpu_hours,
            queues.relocation.gpu_hours,
        )
        say(
            f"relocations have cost {spent:.3g} of {gpu_hours_limit:g} allowed "
            "GPU-hours in 24 hours"
        )


def _format_budget(budget: "shapes.BudgetRow") -> str:
    text = f"{budget.left:.4g} of {budget.amount:g} {budget.unit}"
    if budget.is_spent:
        return f"{text}; spent"
    if budget.runs_out_at is not None:
        return f"{text}; runs out on {clock_text(budget.runs_out_at)}"
    if budget.renewed_at is not None:
        return f"{text}; renewed on {clock_text(budget.renewed_at)}"
    return text


def show(queue: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Show one queue and its users.

    Args:
        queue: Name of the queue.
    """
    from corral.wire.queue_forms import form_text

    with common.client() as client:
        queue_detail = client.queue(queue)
    if common.json:
        print_json(queue_detail)
        return
    form = [
        (key, form_text(value))
        for key, value in queue_detail.form.items()
        if key != "name"
    ]
    show_pairs(
        [
            ("queue", queue_detail.name),
            *form,
            (
                "uses",
                f"{counted(queue_detail.used, 'GPU')}, {queue_detail.borrowed:g} of them "
                "borrowed",
            ),
            ("jobs", f"{queue_detail.running} running, {queue_detail.waiting} waiting"),
            ("owes", f"{queue_detail.owes:.2g} {_OWED}" if queue_detail.owes else ""),
            (
                "share",
                f"{share_text(queue_detail.share_of_cluster, 1)} of the cluster; its "
                f"fair share is {share_text(queue_detail.due, 1)}",
            ),
            (
                "used",
                f"{queue_detail.used_gpu_hours:.1f} GPU-hours, without GPUs in use now",
            ),
            (
                "budget left",
                _format_budget(queue_detail.budget)
                if queue_detail.budget is not None
                else "",
            ),
        ]
    )
    if queue_detail.budget is not None and queue_detail.budget.is_spent:
        note(
            f"warning: the budget of queue {queue_detail.name} is spent: "
            f"{queue_detail.budget.effect}"
        )
    for kept_row in queue_detail.kept:
        say(
            f"{kept_row.job} waits for GPUs of {', '.join(kept_row.victims)}, which "
            "Corral stops to free them"
        )
    if queue_detail.users:
        say()
        _show_users(queue_detail)


def _show_users(queue: "shapes.QueueDetail") -> None:
    rows = table(
        "USER", "USES", "GPU-HOURS", "JOBS", right=("USES", "GPU-HOURS", "JOBS")
    )
    for user in queue.users:
        jobs = "" if user.jobs is None else f"{user.jobs:,} of {user.max_jobs:,}"
        rows.add_row(user.user, f"{user.used:g}", f"{user.used_gpu_hours:.1f}", jobs)
    show_table(rows)


def put(
    queue: str,
    /,
    *,
    parent: QueueName | None = None,
    gpus: GpuCounts | None = None,
    weight: Weight | None = None,
    borrow: GpuCounts | None = None,
    lend: GpuCounts | None = None,
    max_per_user: GpuCounts | None = None,
    max_duration: Duration | None = None,
    priorities: PriorityRange | None = None,
    allow: UserList | None = None,
    visibility: Visibility | None = None,
    operators: UserList | None = None,
    idle: IdleRule | None = None,
    policy: Policy | None = None,
    preempt: PreemptRule | None = None,
    budget: BudgetOptions = BudgetOptions(),  # noqa: B008 - frozen
    dry_run: _Flag = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Create a queue, or change the given settings of a queue. The value none resets a
    setting.

    Args:
        queue: Name of the queue.
        parent: Queue below which this queue is placed (default: none).
        gpus: GPUs that the queue owns: 8, or by type h100:8,any:4 (default: 0).
        weight: Weight of its share of common GPUs: 2 gives twice as many (default: 1).
        borrow: Limit on idle GPUs of other queues that it may use (default: no limit).
        lend: Limit on its own idle GPUs that other queues may use (default: no limit).
        max_per_user: Limit on GPUs that one user may hold in it (default: no limit).
        max_duration: Longest time limit of a job, which is also the time limit of jobs
            without one: 24h (default: no limit).
        priorities: Lowest and highest priority that jobs may have: low..normal, or
            numbers: -100..50 (default: any priority that the user may request).
        allow: Users who may submit to the queue and to queues below it: alice,bob, or a
            role: @operator (default: all users).
        visibility: Who sees its jobs, in addition to owners and operators: own (no
            other user), queue (who may submit) or all (default: as the parent queue).
        operators: Operators of the queue and of all queues below it: alice,bob
            (default: none).
        idle: Limits on idle GPUs: warn:15m,reclaim:1h warns the owner after 15 min with
            all GPUs idle, and suspends the job after 1 h (default: as parent queue).
        policy: Order of the queue's jobs: default, attained, fifo, fifo-skip, sjf,
            backfill or conservative.
        preempt: Jobs of the queue that its jobs of higher priority may stop: never
            (none), saving (only jobs that save checkpoints; default) or any.
        dry_run: Show what would change, without changing anything.
    """
    given_fields = _validate_fields(queue, _fields_from_options(locals(), budget))
    with common.client() as client:
        if not dry_run and not common.agreed(f"set queue {queue}?"):
            raise declined()
        _print_changes(
            client.set_queue(queue, given_fields, dry_run=dry_run),
            common,
            dry_run=dry_run,
        )


def rm(*queues: str, common: Change = Change()) -> int:  # noqa: B008 - frozen
    """Remove queues. A queue with unfinished jobs or with queues below it is not
    removed.

    Args:
        queues: Names of the queues, lower queues first.
    """
    if not queues:
        raise Usage(
            "the name of a queue is missing after: corral queue rm",
            hint="run: corral queue rm QUEUE; for the names, run: corral queue ls",
        )
    with common.client() as client:
        if not common.agreed(f"remove {', '.join(queues)}?", destroys=True):
            raise declined()
        queue_changes, code = change_each(
            queues,
            lambda name: [name],
            client.drop_queue,
            lambda done: say("\n".join(done.changes)),
            as_json=common.json,
        )
    if common.json and queue_changes:
        print_json(
            {"changes": [line for done in queue_changes for line in done.changes]}
        )
    return code


def _validate_fields(queue: str, given: dict[str, Any]) -> dict[str, Any]:
    """Check fields of a queue before they are sent to the head, and return them.
    Raises: SpecInvalid."""
    from corral.wire.queue_corrections import option_text
    from corral.wire.queue_file import read_queue

    read_queue(queue, dict(given), rendering=option_text)
    return given


def _fields_from_options(
    typed: Mapping[str, Any], budget: BudgetOptions
) -> dict[str, Any]:
    """Return the options of `corral queue set` as fields of a queue file. A field to be
    removed has the value None; options that were not given have no field.

    Raises: Usage if the same command sets and removes the budget; SpecInvalid.
    """
    budget_fields = budget.fields()
    fields: dict[str, Any] = {
        **{name: typed[name] for name in ("parent", "max_duration")},
        **{name: typed[name] for name in ("policy", "preempt", "visibility")},
        **{
            name: _parse_number(typed[name])
            for name in ("borrow", "lend", "max_per_user")
        },
        "weight": _parse_float(typed["weight"]),
        "gpus": _by_type(typed["gpus"]),
        "priorities": _parse_priority_range(typed["priorities"]),
        "allow": _parse_name_list(typed["allow"]),
        "operators": _parse_name_list(typed["operators"]),
        "idle": _parse_idle_steps(typed["idle"]),
        "budget": budget_fields or None,
    }
    given_fields = {key: value for key, value in fields.items() if value is not None}
    given_fields = {
        key: None if value == NONE else value for key, value in given_fields.items()
    }
    return given_fields | {"budget": None} if budget.no_budget else given_fields


def _parse_idle_steps(text: str | None) -> Any:
    """Parse warn:15m,reclaim:1h into the mapping that a queue file holds."""
    if text is None or ":" not in text:
        return text
    return {pair.partition(":")[0]: pair.partition(":")[2] for pair in text.split(",")}


def _parse_number(text: str | None) -> Any:
    """Return the number in the text, or the text unchanged if it is no number. The
    queue reader validates the value later."""
    if text is None or not re.fullmatch(r"[+-]?\d{1,9}(\.\d{1,9})?", text):
        return text
    return float(text) if "." in text else int(text)


def _parse_float(text: str | None) -> Any:
    """Return the text as a float, or unchanged if Python cannot convert it. The queue
    reader checks the bounds later."""
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


def _by_type(text: str | None) -> Any:
    """Parse a number, or numbers by GPU type. For example: 8, or h100:8,any:4.

    Raises: SpecInvalid for a type that is named twice.
    """
    if text is None or ":" not in text:
        return _parse_number(text)
    pairs = [pair_text.partition(":") for pair_text in text.split(",")]
    kinds = Counter(kind.strip().lower() for kind, _, _ in pairs)
    twice = next((kind for kind, count in kinds.items() if count > 1), None)
    if twice is not None:
        raise SpecInvalid(
            f"{text}: the GPU type {twice} is named twice",
            hint="name each type of GPU once",
        )
    return {kind.strip(): _parse_number(count.strip()) for kind, _, count in pairs}


def _parse_priority_range(text: str | None) -> Any:
    """Parse a range of priorities. For example: low..normal."""
    if text is None or text == NONE:
        return text
    lowest_priority, dots, highest_priority = text.partition("..")
    if not dots:
        raise SpecInvalid(
            f"--priorities {text} is not a range of priorities",
            hint="write, for example: --priorities low..normal",
        )
    return [_parse_number(lowest_priority), _parse_number(highest_priority)]


def _parse_name_list(text: str | None) -> Any:
    """Parse names separated by commas. For example: alice,bob."""
    if text is None or text == NONE:
        return text
    return [name_text.strip() for name_text in text.split(",") if name_text.strip()]


def _print_changes(
    found: "shapes.QueueChanges", common: Common, *, dry_run: bool
) -> None:
    if common.json:
        print_json(found)
        return
    for line in found.changes:
        say(line)
    if not found.changes:
        say("no changes: the settings are the same")
    elif dry_run:
        note("nothing was changed, because of --dry-run")
    _print_warnings(found)


def _print_warnings(found: "shapes.QueueChanges") -> None:
    for sentence in found.warnings:
        note(f"warning: {sentence}")


def apply_queues(document: "Document", common: Change, *, dry_run: bool) -> int:
    """Replace the tree of queues by that of a file: show the planned changes, ask for
    confirmation, and apply them. Return the exit code."""
    from corral.wire.queue_file import read_queues

    read_queues(document)  # reports errors with their line before anything is sent
    with common.client() as client:
        planned = client.set_queues(document.value, dry_run=True)
        if dry_run or not planned.changes:
            _print_changes(planned, common, dry_run=dry_run)
            return 0
        if not common.json:
            for line in planned.changes:
                say(line)
            _print_warnings(planned)
        if not common.agreed("change the queues?"):
            raise declined(hint="correct the file, then run it again")
        done = client.set_queues(document.value)
    if common.json:
        print_json(done)
    else:
        note("the queues are changed")
    return 0
