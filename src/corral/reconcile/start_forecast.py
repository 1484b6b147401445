"""Predicted start of a waiting job, computed from the current world. This module is
pure: it does no input or output."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

from corral.domain.attempt import Allocation, Attempt
from corral.domain.ids import JobId
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.replica_jobs import finish_seconds
from corral.domain.run_history import (
    ChangeSuggestion,
    Question,
    Ran,
    StartForecast,
    StartForecastTold,
    TimeSpan,
    stem_of,
)
from corral.reconcile.attained_service import ended_before, live_of, restart_seconds
from corral.reconcile.cache.capacity import suspicion_of
from corral.reconcile.cache.waiting_jobs import OfNodes
from corral.reconcile.changeset import Draft, Now
from corral.reconcile.latest_end import holds_seconds
from corral.reconcile.placement import waiting_of
from corral.reconcile.preemption.reservations import reserved_of
from corral.reconcile.promises import promised_of
from corral.reconcile.seat_reports import seen_at
from corral.reconcile.usage import held_now, judge_budgets, past_of, stripped_of
from corral.replay.conformal_interval import (
    MISS,
    CalibrationRecord,
    Interval,
    Record,
    drawn_interval,
    told_interval,
)
from corral.replay.quantile import quantile
from corral.replay.runtime_history import RuntimeHistory
from corral.replay.snapshot import Present, SeatHolder
from corral.replay.start_distribution import (
    HORIZON_SECONDS,
    Drawn,
    RunTimeKnowledge,
    outlook,
)
from corral.schedule import Learned
from corral.schedule.waiting import Waiting

RUNS: Final = 40  # of the present, for the forecast
RUNS_INSTEAD: Final = 20  # for each suggestion
FEWEST: Final = 5  # runs, where they take no more than PATIENCE times the time for all
PATIENCE: Final = 3
PASSES: Final = 2_000  # of one run
FIRST_PART: Final = 0.5  # of the time is for the forecast, the rest for suggestions
# a suggestion is worth it when it starts in this part of the time, or less
SOONER: Final = 0.75
NOW_SECONDS: Final = 1.0  # a start within them is that of the next pass
MOST_INSTEAD: Final = 3
# of the runs in which a suggestion stops others, from which on it says so
OFTEN: Final = 0.25
STOP_SECONDS: Final = (
    2.0  # from the end of its last save until a job is seen gone, when all is well
)


def foretell(
    question: Question, is_within: Callable[[float], bool]
) -> StartForecast | None:
    """Return the forecast of the job's start. Return None for a job that is not queued,
    or that waits for something that no replay can predict.

    `is_within` takes a part of the available time (0 to 1) and returns whether no more
    than that part has passed. It is called between replays.
    """
    now = Now(wall=question.wall, serving=question.serving)
    draft = Draft(question.world, question.facts, now)
    job = draft.job(question.job)
    if job is None or job.state != JobState.QUEUED:
        return None
    present, lives = present_of(draft)
    learned = Learned(ended_before(question.runs), live_of(draft.world, draft.now.wall))
    present = replace(present, learned=learned)
    past = sorted(question.runs, key=lambda ran: ran.submitted_at)
    plays = _Plays(
        question=question,
        kin=RuntimeHistory(question.runs),
        past=past,
        since=_last_change(draft, question.runs),
        is_within=is_within,
    )
    max_wait_seconds = _promised_seconds(present, job.id)
    drawn = _cap_drawn_waits(
        max_wait_seconds, plays.draw(present, lives, RUNS, FIRST_PART)
    )
    record = record_of(question.told)
    starts = _central_interval(drawn)
    median = quantile(_ranked_waits(drawn), 0.5)
    interval = told_interval(starts, record)
    interval = Interval(
        low=min(interval.low, max_wait_seconds),
        high=min(interval.high, max_wait_seconds),
    )
    job_ids = {
        id
        for id, knowledge in lives.items()
        if knowledge.left_seconds is not None
        or plays.kin.knows(knowledge.kind, knowledge.ran_seconds)
    }
    return StartForecast(
        starts_by=job.starts_by if job.started_at is None else None,
        starts=_time_span(interval),
        ends=_end_span(drawn, interval),
        runs=len(drawn),
        known=len(job_ids) / len(lives),
        limited=_time_limited_share(
            job.id,
            [(id, knowledge) for id, knowledge in lives.items() if id not in job_ids],
        ),
        told=len(record.kept),
        held=None if record.held is None else 100 * record.held,
        row=_forecast_row(job, question.wall, starts, interval),
        instead=_suggest_changes(plays, present, lives, job, median, interval, record),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plays:
    """The replays that answer one question about a job's start. Each variant of the
    cluster state is replayed with the same random draws, so that the results can be
    compared."""

    question: Question
    kin: RuntimeHistory
    past: Sequence[Ran]
    since: float  # the last change of the world (wall clock)
    is_within: Callable[[float], bool]

    def draw(
        self,
        present: Present,
        lives: Mapping[JobId, RunTimeKnowledge],
        runs: int,
        part: float,
    ) -> list[Drawn]:
        """Return the outcomes of at most `runs` replays. No replay begins after `part`
        (0 to 1) of the available time has passed; the first few replays get more time.
        """
        return outlook(
            present,
            lives,
            self.kin,
            self.past,
            self.question.job,
            runs=runs,
            since=self.since,
            most_passes=PASSES,
            keep_on=lambda found: self.is_within(
                part * (PATIENCE if found < FEWEST else 1)
            ),
        )


def _last_change(draft: Draft, runs: Iterable[Ran]) -> float:
    """Return the wall clock time at which a job last changed its state or ended; never
    later than now."""
    moved = [job.since for job in draft.all_jobs()]
    end_times = [ran.ended_at for ran in runs]
    return min(draft.now.wall, max([*moved, *end_times], default=draft.now.wall))


def _ranked_waits(drawn: Iterable[Drawn]) -> list[float]:
    """Return the waits of the replays in ascending order. A replay that was cut off
    before the start counts as a wait of the whole horizon."""
    return sorted(HORIZON_SECONDS if run.is_cut else run.wait_seconds for run in drawn)


def _central_interval(drawn: Sequence[Drawn]) -> Interval:
    """Return the interval that holds the middle four fifths of the drawn starts. If a
    replay was cut off, the job starts at least as late as the replay was followed, so
    only the lower end of the interval uses that time. If the upper end would depend on
    a replay that was cut off, it is the horizon."""
    lower_seconds = drawn_interval(sorted(run.wait_seconds for run in drawn)).low
    waits = _ranked_waits(drawn)
    is_open = waits[ceil((1 - MISS / 2) * (len(waits) - 1))] >= HORIZON_SECONDS
    return Interval(
        low=lower_seconds,
        high=HORIZON_SECONDS if is_open else drawn_interval(waits).high,
    )


def _promised_seconds(present: Present, job: JobId) -> float:
    """Return the seconds from now to the latest promised start; infinite if no promise
    lies ahead."""
    starts = (promise.start for promise in present.promised if promise.job == job)
    return next((start - present.now for start in starts if start > present.now), inf)


def _cap_drawn_waits(most_seconds: float, drawn: Sequence[Drawn]) -> list[Drawn]:
    """Return the draws with every wait limited to `most_seconds`, the time until the
    promised start. The promise relies on the time limits of other jobs, which hold for
    all draws, so no draw is more reliable than the promise."""
    return [
        replace(run, wait_seconds=most_seconds, is_cut=False)
        if most_seconds < inf and (run.is_cut or run.wait_seconds > most_seconds)
        else run
        for run in drawn
    ]


def _time_limited_share(
    job: JobId, unknown: Sequence[tuple[JobId, RunTimeKnowledge]]
) -> float:
    """Return the share of the jobs of unknown run time that have a time limit; 1
    without such jobs. The limit of the job `job` itself does not affect its start, so
    it counts only if no other job of unknown run time exists."""
    run_time_knowledges = [life for id, life in unknown if id != job] or [
        life for _, life in unknown
    ]
    return (
        sum(life.limit_seconds is not None for life in run_time_knowledges)
        / len(run_time_knowledges)
        if run_time_knowledges
        else 1.0
    )


# -- the answer ------------------------------------------------------------------------------------


def record_of(told: Iterable[StartForecastTold]) -> Record:
    """Return the record of earlier forecasts with their actual waits, in order.
    Forecasts for jobs that still wait are left out."""
    record = Record()
    for start_forecast_told in told:
        if start_forecast_told.waited_seconds is not None:
            calibration_record = CalibrationRecord(
                drawn=Interval(
                    low=start_forecast_told.drawn_low_seconds,
                    high=start_forecast_told.drawn_high_seconds,
                ),
                told=Interval(
                    low=start_forecast_told.low_seconds,
                    high=start_forecast_told.high_seconds,
                ),
                actual=start_forecast_told.waited_seconds,
            )
            record = record.after(calibration_record)
    return record


def _time_span(told: Interval) -> TimeSpan:
    beyond = told.high >= HORIZON_SECONDS
    return TimeSpan(
        low_seconds=min(told.low, HORIZON_SECONDS),
        high_seconds=None if beyond else told.high,
    )


def _end_span(drawn: Sequence[Drawn], told: Interval) -> TimeSpan:
    """Return the predicted time span of the job's end: the drawn start plus the run
    time. Each end is moved as far as the reported start interval was moved from the
    drawn one."""
    starts = _central_interval(drawn)
    interval = _central_interval(
        [replace(run, wait_seconds=run.wait_seconds + run.run_seconds) for run in drawn]
    )
    lower_seconds = max(told.low, interval.low + told.low - starts.low)
    upper_seconds = max(
        lower_seconds, told.high, interval.high + told.high - starts.high
    )
    return _time_span(Interval(low=lower_seconds, high=upper_seconds))


def _forecast_row(
    job: Job, now: float, drawn: Interval, told: Interval
) -> StartForecastTold:
    return StartForecastTold(
        job=job.id,
        at=now,
        drawn_low_seconds=drawn.low,
        drawn_high_seconds=drawn.high,
        low_seconds=told.low,
        high_seconds=told.high,
    )


def _suggest_changes(
    plays: _Plays,
    present: Present,
    lives: Mapping[JobId, RunTimeKnowledge],
    job: Job,
    middle_seconds: float,
    told: Interval,
    record: Record,
) -> tuple[ChangeSuggestion, ...]:
    """Return the changes of the request with which the job would start clearly sooner,
    the soonest first.

    With a change, the start must be sooner than `middle_seconds`, the middle of the
    drawn starts. Neither end of the interval may be later than in the forecast without
    the change.
    """
    suggestions: list[tuple[float, ChangeSuggestion]] = []
    changes = plays.question.instead
    for number, (change, spec) in enumerate(changes, start=1):
        time_share = FIRST_PART + (1 - FIRST_PART) * number / len(changes)
        if not plays.is_within(time_share):
            continue
        holds = holds_seconds(spec)
        waiting_gangs = [
            replace(gang, shapes=spec.shapes, queue=spec.queue, holds_seconds=holds)
            if gang.job == job.id
            else gang
            for gang in present.waiting
        ]
        changed = replace(present, waiting=waiting_gangs)
        changed_lives = {
            **lives,
            job.id: _knowledge_of_job(replace(job, spec=spec), 0.0),
        }
        other_drawn = plays.draw(changed, changed_lives, RUNS_INSTEAD, time_share)
        waits = _ranked_waits(other_drawn)
        changed_interval = told_interval(_central_interval(other_drawn), record)
        if all(
            drawn.wait_seconds < NOW_SECONDS and not drawn.is_cut
            for drawn in other_drawn
        ):
            # the next pass places it, whatever comes
            changed_interval = Interval(low=0.0, high=0.0)
        is_sooner = (
            changed_interval.low <= told.low
            and changed_interval.high <= told.high
            and changed_interval != told
        )
        if is_sooner and quantile(waits, 0.5) <= SOONER * middle_seconds:
            stops = _stops_text(present, other_drawn)
            instead = ChangeSuggestion(
                change=change, starts=_time_span(changed_interval), stops=stops
            )
            suggestions.append((quantile(waits, 0.5), instead))
    return tuple(
        change_suggestion
        for _, change_suggestion in sorted(suggestions, key=lambda one: one[0])[
            :MOST_INSTEAD
        ]
    )


def _stops_text(present: Present, drawn: Sequence[Drawn]) -> str:
    """Return which running jobs would be stopped for this job, as counts by queue. For
    example: 2 preemptible jobs of queue a, 1 job of queue b. Return "" if, in less than
    the share OFTEN of the replays, a job that runs now is stopped."""
    gangs = {holder.gang.job: holder.gang for holder in present.holders}
    stopping = [
        job_ids
        for run in drawn
        if (job_ids := [id for id in run.stopped if id in gangs])
    ]
    if len(stopping) < OFTEN * len(drawn):
        return ""
    middle = sorted(stopping, key=len)[len(stopping) // 2]
    counts = Counter((gangs[id].queue, gangs[id].preemptible) for id in middle)
    return ", ".join(
        f"{count} {'preemptible ' * preemptible}job{'s' * (count > 1)} of queue {queue}"
        for (queue, preemptible), count in sorted(counts.items())
    )


# -- the present -----------------------------------------------------------------------------------


def present_of(draft: Draft) -> tuple[Present, dict[JobId, RunTimeKnowledge]]:
    """Return the cluster as the scheduler sees it now, and what is known about the run
    time of each job."""
    charged_allocations = list(held_now(draft))
    spent_queues = judge_budgets(draft, charged_allocations)
    queued_jobs = [job for job in draft.all_jobs() if job.state == JobState.QUEUED]
    on_nodes = [
        (job, attempt)
        for job in draft.all_jobs()
        if job.state.is_on_nodes and (attempt := draft.attempt(job.id)) is not None
    ]
    lives = {job.id: _knowledge_of_job(job, 0.0) for job in queued_jobs}
    lives |= {
        job.id: _knowledge_of_job(
            job,
            max(0.0, draft.now.wall - attempt.placed_at),
            _left_seconds(draft, job, attempt),
        )
        for job, attempt in on_nodes
    }
    heard = draft.facts.nodes.keys() - draft.facts.awaited
    nodes = draft.all_nodes()
    of_nodes = OfNodes.of({id: node.inventory for id, node in nodes.items()})
    present = Present(
        now=draft.now.wall,
        nodes=tuple(nodes.values()),
        tree=draft.tree,
        past=past_of(draft, charged_allocations),
        holders=[
            _seat_holder(
                draft, job, attempt, waiting_of(draft, job, spent_queues, of_nodes)
            )
            for job, attempt in on_nodes
        ],
        waiting=[waiting_of(draft, job, spent_queues, of_nodes) for job in queued_jobs],
        reserved=reserved_of(draft),
        promised=promised_of(draft),
        closed=frozenset(nodes.keys() - heard),
        suspicion={
            id: suspicion_of(node, draft.now.wall) for id, node in nodes.items()
        },
        stripped=stripped_of(draft, spent_queues),
        debts=draft.debts_now(),
    )
    return present, lives


def _left_seconds(draft: Draft, job: Job, attempt: Attempt) -> float | None:
    """Return the seconds until the last step of the job's training loop, as its nodes
    report; None if they report no training loop."""
    key = (job.id, attempt.number)
    attempt_reports = [seen_at(draft, node, key) for node in attempt.nodes]
    beats = [
        attempt.progress
        for attempt in attempt_reports
        if attempt is not None and attempt.progress is not None
    ]
    newest_beat = max(beats, key=lambda beat: beat.step, default=None)
    return (
        newest_beat.left_seconds
        if newest_beat is not None and job.state == JobState.RUNNING
        else None
    )


def _knowledge_of_job(
    job: Job, ran_seconds: float, left_seconds: float | None = None
) -> RunTimeKnowledge:
    """Return what is known about the job's run time. `ran_seconds` is the run time of
    its newest attempt. A time limit applies to one attempt, but the run times of
    similar jobs count all attempts, so earlier service is added to both."""
    spec, served = job.spec, job.served_seconds
    kind = (job.owner, stem_of(spec.name), spec.shapes[0].gpu_millis)
    limit = spec.max_duration_seconds
    return RunTimeKnowledge(
        kind=kind,
        ran_seconds=served + ran_seconds,
        limit_seconds=None if limit is None else served + limit,
        left_seconds=left_seconds,
    )


def _seat_holder(draft: Draft, job: Job, attempt: Attempt, gang: Waiting) -> SeatHolder:
    allocations = draft.seats_of(attempt)
    stopping = job.state.is_leaving
    return SeatHolder(
        gang=gang,
        seats=tuple(allocation.seat for allocation in allocations),
        placed_at=attempt.placed_at,
        port=_rendezvous_port(allocations),
        can_save=job.spec.checkpoint is not None,
        restart_seconds=restart_seconds(attempt),
        frees_at=_frees_at(draft, job) if stopping else None,
        comes_back=job.state == JobState.RECOVERING
        or (job.why is not None and job.why.is_requeue),
        protected_until=attempt.protected_until,
    )


def _rendezvous_port(held: Sequence[Allocation]) -> int:
    return next(
        (allocation.port for allocation in held if allocation.port is not None), 0
    )


def _frees_at(draft: Draft, job: Job) -> float:
    """Return when the seats of a stopping job become free. This is the time of the stop
    request, plus the duration of its newest save, plus a small margin. If that moment
    has passed or exceeds the grace period, or there is no save, return the end of the
    grace period. A replica of a service finishes its requests before that period."""
    now, saves = draft.now.wall, draft.saves_of(job.id)
    role = job.spec.replica
    service = draft.service(role.service) if role is not None else None
    grace_seconds = job.spec.grace_seconds + finish_seconds(service, job)
    grace_ends_at = max(now, job.since + grace_seconds)
    saved = job.since + saves[-1].seconds + STOP_SECONDS if saves else grace_ends_at
    return saved if now < saved < grace_ends_at else grace_ends_at
