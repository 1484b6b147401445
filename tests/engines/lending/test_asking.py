"""What waits where the batch system places by itself: rules alone."""

from collections.abc import Sequence
from dataclasses import replace

from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.engines.batch.external_queue import AGAIN_SECONDS, MOST_INDEX, Asking
from corral.engines.batch.interfaces import BatchSnapshot, Ticket, TicketState
from tests.worlds import gang

A, B = NodeId("gpu01"), NodeId("gpu02")
KEY: AttemptKey = (JobId("j7"), AttemptNumber(1))
WAITING, RUNNING, ENDED = TicketState.WAITING, TicketState.RUNNING, TicketState.ENDED


def one(job: str = "j7", **more: object) -> ExternalCandidate:
    found = ExternalCandidate(key=(JobId(job), AttemptNumber(1)), spec=gang())
    return replace(found, **more)  # type: ignore[arg-type]


def of_array(
    *indices: int, limit: int | None = None, running: int = 0
) -> list[ExternalCandidate]:
    return [
        one(
            f"j8_{index}",
            spec=gang(f"a_{index}", array_index=index, array_limit=limit),
            array=JobId("j8"),
            running=running,
        )
        for index in indices
    ]


def said(
    state: TicketState, *nodes: NodeId, key: AttemptKey = KEY, **more: object
) -> BatchSnapshot:
    ticket = Ticket(key=key, handle="41", state=state, nodes=nodes)
    ticket = replace(ticket, **more)  # type: ignore[arg-type]
    return BatchSnapshot(nodes=(), tickets=(ticket,), kept=(key,))


NOTHING = BatchSnapshot(nodes=(), tickets=())


def asking(*offered: ExternalCandidate, look: BatchSnapshot = NOTHING) -> Asking:
    found = Asking()
    found.offer(offered)
    found.look(look, ())
    return found


def jobs(groups: Sequence[Sequence[ExternalCandidate]]) -> list[list[str]]:
    return [[str(one.key[0]) for one in group] for group in groups]


def test_nothing_is_done_before_both_sides_have_said_what_there_is() -> None:
    line = Asking()
    line.offer([one()])
    assert not line.due(0.0).ask
    line = Asking()
    line.look(said(WAITING), ())
    due = line.due(0.0)
    assert (due.ask, due.cancel, due.forget) == ((), (), ())


def test_who_waits_is_asked_for_once() -> None:
    line = asking(one())
    (group,) = line.due(0.0).ask
    line.submitted(group)
    assert not line.due(0.0).ask
    line.look(said(WAITING, reason="the job waits in Slurm: (Priority)"), ())
    assert not line.due(0.0).ask
    assert line.says() == {KEY: "the job waits in Slurm: (Priority)"}


def test_what_a_head_finds_of_the_last_one_is_not_asked_again() -> None:
    assert not asking(one(), look=said(WAITING)).due(0.0).ask
    assert (
        not asking(one(), look=BatchSnapshot(nodes=(), tickets=(), kept=(KEY,)))
        .due(0.0)
        .ask
    )


def test_who_is_given_nodes_is_told_and_is_the_desks_from_its_begin_on() -> None:
    line = asking(one(), look=said(RUNNING, B, A))
    assert line.chosen() == {KEY: (B, A)}
    ticket = line.begins(KEY)
    assert ticket is not None
    assert ticket.nodes == (B, A)
    line.look(said(RUNNING, B, A), begun=[KEY])
    assert not line.asked


def test_what_is_offered_no_more_is_taken_back_and_forgotten_and_may_come_again() -> (
    None
):
    line = asking(one(), look=said(WAITING))
    line.offer([])
    assert line.due(0.0).cancel == (KEY,)
    line.offer([one()])  # resumed meanwhile: what is being taken back stays so
    assert line.due(0.0).cancel == (KEY,)
    assert line.chosen() == {}
    line.look(
        said(ENDED, blame="the batch job was cancelled in Slurm with scancel"), ()
    )
    assert line.due(0.0).forget == (KEY,)
    line.forgotten(KEY, 0.0)
    assert jobs(line.due(0.0).ask) == [["j7"]]


def test_what_somebody_ends_there_before_it_has_begun_is_asked_again_a_minute_later() -> (
    None
):
    line = asking(
        one(),
        look=said(ENDED, blame="the batch job was cancelled in Slurm with scancel"),
    )
    assert line.due(0.0).forget == (KEY,)
    line.forgotten(KEY, 0.0)
    assert not line.due(AGAIN_SECONDS - 1).ask
    assert line.says()[KEY].startswith(
        "the batch job was cancelled in Slurm with scancel; it is submitted again"
    )
    assert line.due(AGAIN_SECONDS).ask


def test_what_is_refused_says_so_and_is_asked_again_a_minute_later() -> None:
    line = asking(one())
    line.refused([one()], "Invalid account")
    assert line.says() == {KEY: "Invalid account"}
    assert line.due(0.0).forget == (KEY,)
    line.forgotten(KEY, 0.0)
    assert not line.due(1.0).ask
    assert line.due(AGAIN_SECONDS).ask


def test_a_job_that_the_batch_system_has_lost_is_asked_again() -> None:
    line = asking(one())
    line.submitted([one()])
    line.look(NOTHING, ())
    assert not line.due(0.0).forget
    line.look(NOTHING, ())
    assert line.due(0.0).forget == (KEY,)
    line.forgotten(KEY, 0.0)
    assert line.due(0.0).ask


def test_nodes_that_will_not_do_any_more_are_given_back() -> None:
    line = asking(one(), look=said(RUNNING, A))
    line.offer([one(excluded=(A,))])
    line.look(said(RUNNING, A), ())
    assert line.chosen() == {}
    assert line.due(0.0).cancel == (KEY,)


def test_one_that_may_have_a_node_which_it_was_asked_without_is_asked_anew() -> None:
    line = asking(one(excluded=(A,)))
    line.submitted([one(excluded=(A,))])
    # fewer: should one of them be chosen, it is given back
    line.offer([one(excluded=(A, B))])
    line.look(said(WAITING), ())
    assert not line.due(0.0).cancel
    line.offer([one()])
    line.look(said(WAITING), ())
    assert line.due(0.0).cancel == (KEY,)


def test_indices_of_an_array_go_together_and_those_that_an_array_cannot_have_alone() -> (
    None
):
    line = asking(one(), *of_array(0, 1, 5, MOST_INDEX + 1))
    assert jobs(line.due(0.0).ask) == [["j7"], ["j8_0", "j8_1", "j8_5"], ["j8_1001"]]


def test_the_limit_of_an_array_holds_beside_what_of_it_was_asked_before() -> None:
    assert jobs(asking(*of_array(0, 1, 2, limit=2)).due(0.0).ask) == [
        ["j8_0", "j8_1", "j8_2"]
    ]
    assert jobs(asking(*of_array(0, 1, 2, limit=2, running=1)).due(0.0).ask) == [
        ["j8_0"]
    ]
    assert not asking(*of_array(0, 1, limit=2, running=2)).due(0.0).ask
    line = asking(*of_array(0, 1, 2, limit=2))
    line.submitted(of_array(0, 1, limit=2))
    assert not line.due(0.0).ask
