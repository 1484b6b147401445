"""Jobs give way: to the owners of what they borrowed, to higher priorities, and never
in vain."""

import pytest

from corral.domain.attempt import Exit, Save, SeatState
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.job_states import JobState, StopWhy
from corral.domain.observed_state import Phase, Progress
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.receipt import ReceiptKind
from corral.domain.requests import Cancel, Resume, SetNode, SetQueues, Suspend
from corral.domain.usage import PreemptWhy
from corral.schedule.order.late_jobs import GRACE_SECONDS
from corral.schedule.prediction.runtime_model import Class, Ended, Learned
from tests.reconcile.saving import SAVED, gone, save_of, state
from tests.worlds import ALICE, SAVING, Cluster, gang, node

VISION, SPEECH = QueueName("vision"), QueueName("speech")
MIN_RUNTIME = 100.0


def house(*, preempt: Preempt = Preempt.SAVING) -> Cluster:
    """Two nodes of four GPUs, and two queues that own four each."""
    cluster = Cluster(node("n1", gpus=4), node("n2", gpus=4))
    queues = [
        Queue(name=name, nominal=((ANY_TYPE, 4000),), preempt=preempt)
        for name in (VISION, SPEECH)
    ]
    cluster.request(
        SetQueues(queues=tuple(queues), whole=True, min_runtime_seconds=MIN_RUNTIME)
    )
    return cluster


def run_on(
    cluster: Cluster, id: JobId, step: int, *, saves: tuple[Save, ...] = ()
) -> None:
    cluster.say(id, Phase.UP, progress=Progress(step=step), saves=saves)
    cluster.tick()


def submit(cluster: Cluster, queue: QueueName, gpus: int, **more: object) -> JobId:
    spec = gang(f"{queue}-{gpus}", gpus=gpus, queue=queue, **more)  # type: ignore[arg-type]
    id = cluster.submit(spec)
    if cluster.world.jobs[id].state == JobState.STARTING:
        cluster.say(id, Phase.UP)
        cluster.tick()
    return id


def borrowed(cluster: Cluster) -> tuple[JobId, JobId]:
    """Speech has borrowed the GPUs of vision, for longer than its minimum run time; vision wants
    them back."""
    first = submit(cluster, SPEECH, 4, checkpoint=SAVING)
    second = submit(cluster, SPEECH, 4, checkpoint=SAVING)
    for _ in range(3):
        cluster.tick(seconds=MIN_RUNTIME / 2)
    for step, id in enumerate((first, second)):
        run_on(cluster, id, 10, saves=(save_of(cluster, id, 9),) if step else ())
    return first, second


def test_a_queue_gets_its_own_back_from_who_loses_least_and_both_get_a_receipt() -> (
    None
):
    cluster = house()
    dear, cheap = borrowed(cluster)
    submitted = cluster.world.jobs[cheap].submitted
    owner = submit(cluster, VISION, 4)
    victim = cluster.world.jobs[cheap]
    assert (victim.state, victim.why) == (JobState.STOPPING, StopWhy.PREEMPT)
    assert state(cluster, dear) == JobState.RUNNING, (
        "its work since the last save is more"
    )
    assert state(cluster, owner) == JobState.QUEUED
    assert cluster.outcome is not None
    assert cluster.outcome.reasons is not None
    said = cluster.outcome.reasons[owner]
    assert said.code == "Preempting"
    assert f"speech-4 ({cheap}) has to save and stop now" in said.sentence
    receipts = {one.job: one for one in gone(cluster, cheap, step=12)}
    assert state(cluster, owner) == JobState.STARTING
    back = cluster.world.jobs[cheap]
    assert (back.state, back.submitted) == (JobState.QUEUED, submitted)
    assert (back.infra_retries, back.user_retries) == (0, 0)
    assert receipts[cheap].others == (owner,)
    assert receipts[cheap].text == (
        f"preempted for vision-4 ({owner}) of queue vision, which reclaimed its own 4 GPUs; "
        "saved at step 12, lost no work (2.0 GPU-seconds spent stopping)"
    )
    assert receipts[owner].kind == "taking"
    assert receipts[owner].others == (cheap,)
    assert receipts[owner].text == (
        f"took 4 GPUs from speech-4 ({cheap}) of queue speech "
        "(saved at step 12, lost no work (2.0 GPU-seconds spent stopping))"
    )
    assert cluster.world.reservations == {}


def test_a_receipt_says_why_more_was_taken_than_was_needed() -> None:
    cluster = house()
    _, cheap = borrowed(cluster)
    owner = submit(cluster, VISION, 2)
    receipts = {one.job: one for one in gone(cluster, cheap, step=12)}
    assert receipts[owner].text.startswith(
        f"needed 2 GPUs, but speech-4 ({cheap})'s whole gang had to stop: took 4 GPUs from "
        f"speech-4 ({cheap}) of queue speech (saved at step 12"
    )


def test_the_takers_receipt_is_written_anew_when_the_victim_is_seen_gone_everywhere() -> (
    None
):
    """It needs one of the two nodes of its victim, and starts as soon as that one is
    free."""
    cluster = house()
    wide = cluster.submit(
        gang("wide", nodes=2, gpus=4, queue=SPEECH, checkpoint=SAVING)
    )
    cluster.up(wide)
    cluster.tick(seconds=2 * MIN_RUNTIME)
    run_on(cluster, wide, 10, saves=(save_of(cluster, wide, 9),))
    owner = submit(cluster, VISION, 4)
    cluster.say(wide, Phase.ENDED, on="n1", exits=((0, Exit(code=75, at=1.0)),))
    cluster.tick()
    assert cluster.outcome is not None
    (taking,) = cluster.outcome.changes.receipts
    assert (taking.job, taking.kind) == (owner, "taking")
    assert "its processes are still stopping" in taking.text
    assert cluster.world.attempts[owner].open_receipt == taking
    receipts = {one.kind: one for one in gone(cluster, wide, step=12)}
    assert receipts[ReceiptKind.TAKING].attempt == taking.attempt
    taking_text = receipts[ReceiptKind.TAKING].text
    assert f"of queue speech ({receipts[ReceiptKind.PREEMPTION].loss})" in taking_text
    assert (
        receipts[ReceiptKind.TAKING].gpu_seconds_lost
        == receipts[ReceiptKind.PREEMPTION].gpu_seconds_lost
    )
    assert cluster.world.attempts[owner].open_receipt is None


def test_what_was_preempted_goes_on_from_its_save_when_there_is_room_again() -> None:
    cluster = house()
    _, cheap = borrowed(cluster)
    owner = submit(cluster, VISION, 4)
    gone(cluster, cheap, step=12)
    cluster.say(owner, Phase.UP)
    cluster.tick(seconds=MIN_RUNTIME * 5)
    assert state(cluster, cheap) == JobState.QUEUED, (
        "it has no right to what is vision's own"
    )
    cluster.end(owner, Exit(code=0, at=1.0))
    attempt = cluster.world.attempts[cheap]
    assert (state(cluster, cheap), attempt.number, attempt.resume_step) == (
        JobState.STARTING, 2, 12,
    )  # fmt: skip


def test_nobody_is_stopped_within_its_minimum_run_time_and_the_owner_starts_after_it() -> (
    None
):
    cluster = house()
    for _ in range(2):
        submit(cluster, SPEECH, 4, checkpoint=SAVING)
    owner = submit(cluster, VISION, 4)
    assert owner in cluster.world.reservations
    cluster.tick(seconds=MIN_RUNTIME / 2)
    running = [
        one for one in cluster.world.jobs.values() if one.state == JobState.RUNNING
    ]
    assert len(running) == 2
    cluster.tick(seconds=MIN_RUNTIME / 2 + 1)
    cluster.tick()
    stopping = [
        id for id, one in cluster.world.jobs.items() if one.state == JobState.STOPPING
    ]
    assert len(stopping) == 1
    gone(cluster, stopping[0], step=3)
    assert state(cluster, owner) == JobState.STARTING


def test_who_has_not_been_told_yet_is_spared_when_the_other_is_cancelled_or_starts() -> (
    None
):
    for ends in ("cancel", "room"):
        cluster = house()
        first, second = (
            submit(cluster, SPEECH, 4, checkpoint=SAVING) for _ in range(2)
        )
        owner = submit(cluster, VISION, 4)
        (victim,) = cluster.world.reservations[owner].victims
        if ends == "cancel":
            cluster.request(Cancel(job=owner))
        else:
            other = second if victim.job == first else first
            cluster.end(other, Exit(code=0, at=1.0))
            assert state(cluster, owner) == JobState.STARTING
        cluster.tick(seconds=MIN_RUNTIME * 2)
        assert cluster.world.reservations == {}
        assert state(cluster, victim.job) == JobState.RUNNING


def test_freed_gpus_go_to_nobody_else() -> None:
    """Neither to one that came before, nor to one with a higher priority that has no
    right."""
    cluster = house(preempt=Preempt.NEVER)
    _, cheap = borrowed(cluster)
    waits = submit(cluster, SPEECH, 1, priority=100)
    owner = submit(cluster, VISION, 4)
    gone(cluster, cheap, step=12)
    assert state(cluster, owner) == JobState.STARTING
    assert state(cluster, waits) == JobState.QUEUED


def test_nobody_is_stopped_for_a_gang_that_would_not_fit_even_then() -> None:
    cluster = house()
    borrowed(cluster)
    wide = cluster.submit(gang(name="wide", queue=VISION, gpus=2, nodes=2))
    assert wide not in cluster.world.reservations, (
        "half of it would come from speech's own"
    )
    assert not [
        one for one in cluster.world.jobs.values() if one.state == JobState.STOPPING
    ]
    cluster = house()
    own = submit(cluster, VISION, 3)
    submit(cluster, SPEECH, 4, checkpoint=SAVING)
    submit(cluster, SPEECH, 1, checkpoint=SAVING)
    cluster.tick(seconds=MIN_RUNTIME * 2)
    waits = cluster.submit(gang(queue=VISION, gpus=2))
    assert cluster.world.reservations == {}, (
        "two GPUs are more than the one it has left"
    )
    assert state(cluster, waits) == JobState.QUEUED
    assert state(cluster, own) == JobState.RUNNING


@pytest.mark.parametrize(
    ("rule", "saves", "gives_way"),
    [
        (Preempt.SAVING, True, True),
        (Preempt.SAVING, False, False),
        (Preempt.ANY, False, True),
        (Preempt.NEVER, True, False),
    ],
)
def test_a_higher_priority_goes_first_as_far_as_its_queue_lets_it(
    rule: Preempt, saves: bool, gives_way: bool
) -> None:
    cluster = house(preempt=rule)
    checkpoint = SAVING if saves else None
    low = [submit(cluster, SPEECH, 4, checkpoint=checkpoint) for _ in range(2)]
    cluster.tick(seconds=MIN_RUNTIME * 2)
    high = submit(cluster, SPEECH, 4, priority=100)
    stopping = [id for id in low if state(cluster, id) == JobState.STOPPING]
    assert len(stopping) == gives_way
    if gives_way:
        job = cluster.world.jobs[stopping[0]]
        assert job.reason == (
            f"preempted for speech-4 ({high}) of queue speech, whose priority 100 is above that "
            "of this job (0)"
        )


def test_a_preemptible_job_gives_way_to_any_other_and_to_no_preemptible_one() -> None:
    cluster = house(preempt=Preempt.NEVER)
    spot = [submit(cluster, SPEECH, 4, preemptible=True) for _ in range(2)]
    cluster.tick(seconds=MIN_RUNTIME * 2)
    submit(cluster, SPEECH, 4, preemptible=True, priority=100)
    assert {state(cluster, id) for id in spot} == {JobState.RUNNING}
    usual = submit(cluster, SPEECH, 4, priority=-100)
    assert sum(state(cluster, id) == JobState.STOPPING for id in spot) == 1
    assert usual in cluster.world.reservations


def test_a_node_that_is_lost_or_cordoned_ends_what_was_kept_there_and_another_is_found() -> (
    None
):
    cluster = house()
    first, second = (submit(cluster, SPEECH, 4, checkpoint=SAVING) for _ in range(2))
    owner = submit(cluster, VISION, 4)
    (victim,) = cluster.world.reservations[owner].victims
    cluster.request(
        SetNode(node=cluster.world.attempts[victim.job].nodes[0], to="cordon")
    )
    (other,) = cluster.world.reservations[owner].victims
    assert {victim.job, other.job} == {first, second}


def test_a_victim_that_finishes_before_it_is_told_is_no_victim() -> None:
    cluster = house()
    for _ in range(2):
        submit(cluster, SPEECH, 4, checkpoint=SAVING)
    owner = submit(cluster, VISION, 4)
    (victim,) = cluster.world.reservations[owner].victims
    cluster.say(victim.job, Phase.ENDED, exits=((0, Exit(code=0, at=1.0)),))
    receipts = cluster.tick().changes.receipts
    assert receipts == ()
    assert state(cluster, owner) == JobState.STARTING
    assert state(cluster, victim.job) == JobState.DONE


def test_seats_return_only_when_the_ranks_of_a_victim_are_seen_gone() -> None:
    cluster = house()
    _, cheap = borrowed(cluster)
    owner = submit(cluster, VISION, 4)
    for _ in range(5):
        cluster.tick(seconds=10.0)
    held = {one.state for one in cluster.world.allocations.values() if one.job == cheap}
    assert held == {SeatState.STOPPING}
    assert state(cluster, owner) == JobState.QUEUED
    assert NodeId("n1") in cluster.world.nodes


def test_who_was_told_before_other_seats_were_kept_is_written_down_with_its_right() -> (
    None
):
    cluster = house(preempt=Preempt.ANY)
    low = {submit(cluster, SPEECH, 4) for _ in range(2)}
    cluster.tick(seconds=MIN_RUNTIME * 2)
    high = submit(cluster, SPEECH, 4, priority=100)
    (told,) = cluster.world.reservations[high].victims
    assert state(cluster, told.job) == JobState.STOPPING
    cluster.request(
        SetNode(node=cluster.world.attempts[told.job].nodes[0], to="cordon")
    )
    victims = cluster.world.reservations[high].victims
    assert {one.job for one in victims} == low
    assert {one.why for one in victims} == {PreemptWhy.PRIORITY}


def test_service_is_what_was_not_lost_of_each_attempt() -> None:
    cluster = house()
    first, second = (submit(cluster, SPEECH, 4, checkpoint=SAVING) for _ in range(2))
    cluster.tick(seconds=MIN_RUNTIME)
    run_on(cluster, first, 10, saves=(save_of(cluster, first, 9),))
    run_on(cluster, second, 10, saves=(save_of(cluster, second, 10),))
    cluster.tick(seconds=MIN_RUNTIME)
    for id in (first, second):
        cluster.request(Suspend(job=id))
        cluster.end(id, SAVED)
    kept = [cluster.world.jobs[id].served_seconds for id in (first, second)]
    assert MIN_RUNTIME < kept[0] < MIN_RUNTIME + 10, "up to its save"
    assert 2 * MIN_RUNTIME < kept[1] < 2 * MIN_RUNTIME + 10, "it lost nothing"
    for id in (first, second):
        cluster.request(Resume(job=id))
    cluster.up(first, 11)
    cluster.tick()
    cluster.tick(seconds=MIN_RUNTIME)
    cluster.end(first, Exit(code=0, at=cluster.wall))
    assert cluster.outcome is not None
    (done,) = cluster.outcome.changes.jobs
    assert kept[0] + MIN_RUNTIME <= done.served_seconds < kept[0] + MIN_RUNTIME + 10


def test_a_job_that_is_likely_to_end_sooner_buys_the_place_of_one_that_has_run_for_long() -> (
    None
):
    cluster = house()
    fours = Class(SPEECH, 4000)
    cluster.learned = Learned(
        Ended(job_class=fours, user=ALICE, stem="", seconds=took)
        for took in [30.0] * 40 + [9e5]
    )
    young, old = (submit(cluster, SPEECH, 4, checkpoint=SAVING) for _ in range(2))
    cluster.tick(seconds=7200.0)
    for id in (young, old):
        run_on(cluster, id, 10, saves=(save_of(cluster, id, 10),))
    short = submit(cluster, SPEECH, 4)
    cluster.tick(seconds=2.0)
    assert state(cluster, old) == JobState.RUNNING, "it has not waited for that yet"
    cluster.tick(seconds=2.0 * 7200.0)
    stopping = [id for id in (young, old) if state(cluster, id) == JobState.STOPPING]
    assert len(stopping) == 1
    (victim,) = cluster.world.reservations[short].victims
    assert victim.why == PreemptWhy.SERVICE
    receipts = {one.job: one for one in gone(cluster, stopping[0], step=12)}
    assert state(cluster, short) == JobState.STARTING
    assert receipts[stopping[0]].text.startswith(
        f"preempted for speech-4 ({short}) of queue speech, which has had less service (0.0 s "
        "against 6 h) and has waited for as long as the preemption costs; saved at step 12, "
        "lost no work"
    )
    assert receipts[short].others == (stopping[0],)
    cluster.tick(seconds=7200.0)
    assert state(cluster, stopping[0]) == JobState.QUEUED, (
        "it does not take its place back"
    )


def test_a_late_job_has_a_turn_in_which_no_other_buys_its_place() -> None:
    cluster = house()
    first, second = (submit(cluster, SPEECH, 4, checkpoint=SAVING) for _ in range(2))
    waits, other = (submit(cluster, SPEECH, 4) for _ in range(2))
    cluster.tick(seconds=90_000.0)
    cluster.end(first, Exit(code=0, at=1.0))
    turn_ends = cluster.wall + GRACE_SECONDS
    cluster.end(second, Exit(code=0, at=1.0))
    until = {id: cluster.world.attempts[id].protected_until for id in (waits, other)}
    assert until == {waits: turn_ends, other: None}, (
        "one turn at a time, as a tenth of the cluster is less than one job"
    )


def test_a_job_knows_how_long_it_has_waited_before_each_of_its_attempts() -> None:
    cluster = house()
    first, _ = (submit(cluster, SPEECH, 4, checkpoint=SAVING) for _ in range(2))
    waits = submit(cluster, SPEECH, 4)
    cluster.tick(seconds=1000.0)
    cluster.end(first, Exit(code=0, at=1.0))
    once = cluster.world.jobs[waits].waited_seconds
    assert 1000.0 <= once < 1010.0
    cluster.up(waits)
    cluster.request(Suspend(job=waits))
    cluster.end(waits, SAVED)
    cluster.tick(seconds=5000.0)
    cluster.request(Resume(job=waits))
    cluster.tick()
    assert once <= cluster.world.jobs[waits].waited_seconds < once + 10.0, (
        "its rest was no wait"
    )


def test_what_another_queue_has_borrowed_is_bought_and_both_receipts_say_so() -> None:
    cluster = house()
    everything = QueueName("all")
    below = [
        Queue(name=name, parent=everything, nominal=((ANY_TYPE, 2000),))
        for name in (VISION, SPEECH)
    ]
    top = Queue(name=everything, nominal=((ANY_TYPE, 4000),), policy=Policy.ATTAINED)
    cluster.request(
        SetQueues(queues=(top, *below), whole=True, min_runtime_seconds=MIN_RUNTIME)
    )
    cluster.learned = Learned(
        Ended(job_class=Class(queue, 4000), user=ALICE, stem="", seconds=took)
        for queue in (VISION, SPEECH)
        for took in [30.0] * 40 + [9e5]
    )
    old, other = (submit(cluster, SPEECH, 4, checkpoint=SAVING) for _ in range(2))
    cluster.tick(seconds=7200.0)
    for id in (old, other):
        run_on(cluster, id, 10, saves=(save_of(cluster, id, 10),))
    short = submit(cluster, VISION, 4)
    cluster.tick(seconds=2.0 * 7200.0)
    (victim,) = cluster.world.reservations[short].victims
    assert victim.why == PreemptWhy.SERVICE
    receipts = {one.job: one for one in gone(cluster, victim.job, step=12)}
    assert state(cluster, short) == JobState.STARTING
    assert receipts[victim.job].text.startswith(
        f"preempted for vision-4 ({short}) of queue vision, which has had less service (0.0 s "
        "against 6 h) and has waited for as long as the preemption costs; queue speech had "
        "borrowed the GPUs; saved at step 12, lost no work"
    )
    assert receipts[short].others == (victim.job,)
