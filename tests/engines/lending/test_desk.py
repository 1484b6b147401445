"""What is handed to a batch system, and what is said of it: rules alone."""

from collections.abc import Sequence
from dataclasses import replace

from corral.agent.converge import LOG_SECONDS
from corral.domain.attempt import Exit, Seat
from corral.domain.desired_state import DesiredState, Launch, Stop, Version
from corral.domain.ids import AttemptNumber, BootId, ClusterId, JobId, NodeId
from corral.domain.job import Per
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.domain.pilot import LEAVING, is_part, key_of, node_of, part_of
from corral.domain.resources import Gpu, Inventory
from corral.domain.trouble_kind import TroubleKind
from corral.engines.batch.attempts import (
    LATE_SECONDS,
    LEAVE_SECONDS,
    NEVER_ANSWERED,
    REPORT_SECONDS,
    TELL_SECONDS,
    UNHEARD_SECONDS,
    Desk,
)
from corral.engines.batch.interfaces import (
    BatchSnapshot,
    Foreign,
    LentNode,
    Ticket,
    TicketState,
)
from corral.engines.batch.submitted_attempt import ROOM_SECONDS

A, B = NodeId("gpu01"), NodeId("gpu02")
KEY: AttemptKey = (JobId("j7"), AttemptNumber(1))
GPUS = tuple(
    Gpu(index=at, uuid=f"u{at}", type="h100", memory_bytes=1) for at in range(4)
)


def launch_of(node: NodeId, rank: int, nodes: Sequence[NodeId] = (A, B)) -> Launch:
    return Launch(
        key=KEY,
        job_name="tiny",
        seat=Seat(node=node, gpus=(2, 3), gpu_millis=2000),
        node_rank=rank,
        nodes=tuple(nodes),
        first_rank=rank,
        ranks=1,
        world_size=len(nodes),
        master_address=nodes[0],
        master_port=20_000,
        run="true",
        setup=None,
        per=Per.NODE,
        env=(),
        secrets=(),
        workdir=None,
        owner="ann",
        array_index=None,
        checkpoint=None,
        resume=(),
        grace_seconds=5.0,
        node_mtbf_seconds=86_400.0,
    )


def word(node: NodeId, counter: int, **more: object) -> DesiredState:
    version = Version(term=1, counter=counter)
    return replace(
        DesiredState(cluster=ClusterId("c"), version=version, node=node),
        **more,  # type: ignore[arg-type]
    )


def run_on(desk: Desk, at: float = 0.0) -> None:
    desk.want(word(A, 1, run=(launch_of(A, 0),)), at)
    desk.want(word(B, 1, run=(launch_of(B, 1),)), at)


def stop_on(desk: Desk, at: float) -> None:
    stop = Stop(key=KEY, grace_seconds=5.0, save=False, why="cancel")
    for node in (A, B):
        desk.want(word(node, 2, stop=(stop,)), at)


def settle_on(desk: Desk, at: float, *nodes: NodeId) -> None:
    for node in nodes:
        desk.want(word(node, 3, settled=(KEY,)), at)


def node(id: NodeId, **more: object) -> LentNode:
    inventory = Inventory(gpus=GPUS, cpu_millis=8000, memory_bytes=100)
    lent = LentNode(node=id, boot=BootId("b"), address=id, inventory=inventory)
    return replace(lent, **more)  # type: ignore[arg-type]


def look(
    state: TicketState | None = None, kept: bool = False, **more: object
) -> BatchSnapshot:
    ticket = () if state is None else (Ticket(key=KEY, handle="41", state=state),)
    return BatchSnapshot(
        nodes=(node(A), node(B)),
        tickets=tuple(replace(one, **more) for one in ticket),  # type: ignore[arg-type]
        kept=(KEY,) if kept else (),
    )


def seen_on(desk: Desk, where: NodeId) -> Seen | None:
    word = next(word for word in desk.words(0.0) if word.node == where)
    return next((seen for seen in word.seen if seen.key == KEY), None)


def handed_over() -> Desk:
    desk = Desk()
    desk.look(look(), 0.0)
    run_on(desk)
    desk.submitted(KEY)
    return desk


def test_a_part_is_named_by_its_node_and_its_attempt() -> None:
    part = part_of(A, (JobId("j7_3"), AttemptNumber(12)))
    assert (is_part(part), node_of(part)) == (True, A)
    assert key_of(part) == (JobId("j7_3"), AttemptNumber(12))
    assert (is_part(A), node_of(A), key_of(A)) == (False, A, None)


def test_what_a_part_has_noticed_is_its_nodes_word_until_it_is_recorded() -> None:
    desk = handed_over()
    part = part_of(A, KEY)
    xid = Signal(
        number=1, at=1.0, kind=SignalKind.XID, text="XID 79", gpu=2, told_by=part
    )
    desk.hear(part, (Seen(key=KEY, phase=Phase.UP),), (xid,))
    told = {word.node: word.signals for word in desk.words(0.0)}
    assert told == {A: (xid,), B: ()}
    desk.hear(part, (Seen(key=KEY, phase=Phase.UP),), ())  # the head has recorded it
    assert [word.signals for word in desk.words(0.0)] == [(), ()]


def test_nothing_is_handed_over_before_the_first_look() -> None:
    desk = Desk()
    run_on(desk)
    assert desk.due(0.0).submit == ()
    desk.look(look(), 0.0)
    assert [[one.node_rank for one in gang] for gang in desk.due(0.0).submit] == [
        [0, 1]
    ]


def test_a_gang_is_handed_over_whole() -> None:
    desk = Desk()
    desk.look(look(), 0.0)
    desk.want(word(B, 1, run=(launch_of(B, 1),)), 0.0)
    assert desk.due(0.0).submit == ()
    desk.want(word(A, 1, run=(launch_of(A, 0),)), 0.0)
    assert len(desk.due(0.0).submit) == 1
    desk.submitted(KEY)
    assert desk.due(0.0).submit == ()


def test_what_is_there_already_is_not_handed_over_again() -> None:
    for found in (look(TicketState.WAITING), look(kept=True)):
        desk = Desk()
        desk.look(found, 0.0)
        run_on(desk)
        assert desk.due(0.0).submit == ()


def test_it_is_starting_until_its_part_has_spoken() -> None:
    desk = handed_over()
    assert seen_on(desk, A) == Seen(key=KEY, phase=Phase.STARTING)
    desk.hear(part_of(A, KEY), [Seen(key=KEY, phase=Phase.UP)])
    assert seen_on(desk, A) == Seen(key=KEY, phase=Phase.UP)
    assert seen_on(desk, B) == Seen(key=KEY, phase=Phase.STARTING)


def test_a_part_speaks_of_its_own_attempt_alone() -> None:
    desk = handed_over()
    other = (JobId("j8"), AttemptNumber(1))
    desk.hear(part_of(A, other), [Seen(key=KEY, phase=Phase.ENDED)])
    assert seen_on(desk, A) == Seen(key=KEY, phase=Phase.STARTING)


def test_what_the_batch_system_ended_is_over_with_its_blame() -> None:
    desk = handed_over()
    desk.hear(part_of(A, KEY), [Seen(key=KEY, phase=Phase.UP)])
    desk.look(look(TicketState.ENDED, blame="Slurm preempted it"), 1.0)
    seen = seen_on(desk, A)
    assert seen is not None
    assert (seen.phase, seen.trouble) == (Phase.ENDED, "Slurm preempted it")
    assert seen.trouble_is_infra


def test_the_end_that_its_part_has_told_stands() -> None:
    desk = handed_over()
    ended = Seen(key=KEY, phase=Phase.ENDED, exits=((0, Exit(code=3)),))
    desk.hear(part_of(A, KEY), [ended])
    desk.look(look(TicketState.ENDED, blame="cancelled"), 1.0)
    assert seen_on(desk, A) == ended


def test_a_part_that_was_made_to_end_waits_for_the_batch_system_to_say_why() -> None:
    desk = Desk(lender="Slurm")
    desk.look(look(), 0.0)
    run_on(desk)
    desk.submitted(KEY)
    desk.look(look(TicketState.RUNNING), 1.0)
    killed = Seen(
        key=KEY,
        phase=Phase.ENDED,
        exits=((0, Exit(signal=15)),),
        trouble=LEAVING,
        trouble_kind=TroubleKind.ASKED_TO_END,
    )
    desk.hear(part_of(A, KEY), [killed])
    for at in (1.1, 1.2, 1.0 + TELL_SECONDS - 0.1):  # looks may come as fast as news do
        desk.look(look(TicketState.RUNNING), at)
        (seen,) = desk.words(0.0)[0].seen
        assert (seen.phase, seen.exits, seen.trouble) == (Phase.STOPPING, (), "")
    desk.look(look(TicketState.RUNNING), 1.0 + TELL_SECONDS)
    (seen,) = desk.words(0.0)[0].seen
    assert (seen.phase, seen.trouble, seen.trouble_of) == (
        Phase.ENDED,
        "Slurm asked the job to end",
        "Slurm",
    )


def test_the_batch_systems_reason_stands_for_an_end_that_was_not_the_parts_own() -> (
    None
):
    desk = handed_over()
    killed = Seen(
        key=KEY,
        phase=Phase.ENDED,
        exits=((0, Exit(signal=15)),),
        trouble=LEAVING,
        trouble_kind=TroubleKind.ASKED_TO_END,
    )
    desk.hear(part_of(A, KEY), [killed])
    desk.look(look(TicketState.RUNNING, blame="preempted", blame_on="Slurm"), 1.0)
    (seen,) = desk.words(0.0)[0].seen
    assert (seen.phase, seen.trouble, seen.trouble_of) == (
        Phase.ENDED,
        "preempted",
        "Slurm",
    )
    assert seen.exits == killed.exits


def test_an_end_that_a_part_reports_is_passed_on_while_its_node_is_silent() -> None:
    desk = handed_over()
    assert [word.heard_at for word in desk.words(4.0)] == [4.0, 4.0]
    desk.look(BatchSnapshot(nodes=(node(A, silent=True), node(B)), tickets=()), 5.0)
    ended = Seen(key=KEY, phase=Phase.ENDED, exits=((0, Exit(code=0)),))
    desk.hear(part_of(A, KEY), [ended])
    words = {word.node: word for word in desk.words(9.0)}
    assert (words[A].heard_at, words[A].seen) == (4.0, (ended,))  # as silent as it was
    assert words[B].heard_at == 9.0


def test_an_end_that_a_part_reports_is_passed_on_while_the_batch_system_is_away() -> (
    None
):
    desk = handed_over()
    desk.words(4.0)
    ended = Seen(key=KEY, phase=Phase.ENDED, exits=((0, Exit(code=8)),))
    desk.hear(part_of(A, KEY), [ended])
    words = {word.node: word for word in desk.words(20.0, is_stale=True)}
    assert (words[A].heard_at, words[A].seen) == (4.0, (ended,))
    assert words[B].seen == (Seen(key=KEY, phase=Phase.STARTING),)


def begun(nodes: Sequence[LentNode], at: float = 0.0) -> Desk:
    """A head that has begun while the attempt ran, on nodes as they are now."""
    desk = Desk()
    desk.look(BatchSnapshot(nodes=tuple(nodes), tickets=(running(),)), at)
    run_on(desk)
    return desk


def running() -> Ticket:
    return Ticket(key=KEY, handle="41", state=TicketState.RUNNING, nodes=(A, B))


ENDED = Seen(key=KEY, phase=Phase.ENDED, exits=((0, Exit(code=0)),))


def test_of_a_node_that_was_silent_when_the_head_began_an_end_is_passed_on() -> None:
    desk = begun((node(A, silent=True), node(B)))
    assert [word.node for word in desk.words(1.0)] == [B]
    desk.hear(part_of(A, KEY), [ENDED])
    silent, _ = desk.words(2.0)
    # as silent as since the beginning
    assert (silent.heard_at, silent.seen) == (0.0, (ENDED,))
    assert silent.inventory.closed == NEVER_ANSWERED
    desk.look(BatchSnapshot(nodes=(node(A), node(B)), tickets=(running(),)), 3.0)
    answers, _ = desk.words(4.0)
    assert (answers.heard_at, answers.inventory.closed) == (4.0, "")


def test_parts_of_a_node_that_died_while_no_head_was_there_are_heard_before_that_counts() -> (
    None
):
    dead = node(A, down="deleted", gone=True)
    desk = begun((dead, node(B)), at=100.0)
    desk.hear(part_of(A, KEY), [ENDED])
    assert (desk.proofs(), desk.gone()) == ({}, set())
    words = {word.node: word for word in desk.words(1.0)}
    assert (words[A].heard_at, words[A].seen) == (0.0, (ENDED,))
    desk.look(
        BatchSnapshot(nodes=(dead, node(B)), tickets=(running(),)),
        100.0 + REPORT_SECONDS,
    )
    assert (desk.proofs(), desk.gone()) == ({A: "deleted"}, {A})
    assert [word.node for word in desk.words(9.0)] == [B]


def test_a_node_that_dies_later_is_dead_at_once() -> None:
    desk = begun((node(A), node(B)))
    desk.words(1.0)
    after = BatchSnapshot(
        nodes=(node(A, down="NODE_FAIL"), node(B)), tickets=(running(),)
    )
    desk.look(after, REPORT_SECONDS)
    assert desk.proofs() == {A: "NODE_FAIL"}
    desk = begun((node(A, down="NODE_FAIL"), node(B)))
    settle_on(desk, 1.0, A)
    assert desk.proofs() == {A: "NODE_FAIL"}  # nothing of it is to be recorded


def test_of_a_silent_node_only_its_parts_may_say_that_anything_is_over() -> None:
    """Whoever removes a pod by force has no proof that its node ends it."""
    desk = handed_over()
    desk.words(1.0)
    up = Seen(key=KEY, phase=Phase.UP)
    desk.hear(part_of(A, KEY), [up])
    ticket = Ticket(key=KEY, handle="41", state=TicketState.ENDED)
    desk.look(
        BatchSnapshot(nodes=(node(A, silent=True), node(B)), tickets=(ticket,)), 2.0
    )
    phases = {word.node: word.seen[0].phase for word in desk.words(3.0)}
    assert phases == {A: Phase.UP, B: Phase.ENDED}


def test_what_lacks_room_on_its_node_for_long_is_given_back_and_the_node_is_blamed() -> (
    None
):
    desk = handed_over()
    lacks = look(
        TicketState.WAITING, no_room="1 Insufficient nvidia.com/gpu", nodes=(B,)
    )
    desk.look(lacks, 1.0)
    desk.look(lacks, 1.0 + ROOM_SECONDS)
    assert desk.due(20.0).cancel == ()
    desk.look(lacks, 1.1 + ROOM_SECONDS)
    assert desk.due(20.0).cancel == (KEY,)
    # a pod of it is still there
    assert seen_on(desk, A) == Seen(key=KEY, phase=Phase.STARTING)
    for at in (21.0, 22.0):
        desk.look(look(), at)
    why = f"other jobs use the resources on {A}: 1 Insufficient nvidia.com/gpu"
    assert seen_on(desk, A) == Seen(key=KEY, phase=Phase.ENDED, trouble=why)
    assert seen_on(desk, B) == Seen(key=KEY, phase=Phase.ENDED)


def test_what_gets_room_in_time_is_let_be() -> None:
    desk = handed_over()
    desk.look(look(TicketState.WAITING, no_room="1 Insufficient cpu"), 1.0)
    desk.look(look(TicketState.WAITING), 10.0)
    desk.look(look(TicketState.WAITING, no_room="1 Insufficient cpu"), 12.0)
    desk.look(look(TicketState.WAITING, no_room="1 Insufficient cpu"), 20.0)
    assert desk.due(20.0).cancel == ()


def test_one_missing_look_proves_nothing_and_two_do() -> None:
    desk = handed_over()
    desk.look(look(), 1.0)
    assert seen_on(desk, A) == Seen(key=KEY, phase=Phase.STARTING)
    desk.look(look(), 2.0)
    seen = seen_on(desk, A)
    assert seen is not None
    assert seen.phase == Phase.ENDED


def test_what_only_waits_is_ended_at_once_and_what_runs_has_its_grace() -> None:
    desk = handed_over()
    desk.look(look(TicketState.WAITING), 1.0)
    stop_on(desk, 1.0)
    assert desk.due(1.0).cancel == (KEY,)
    desk.look(look(TicketState.RUNNING), 1.5)
    assert desk.due(2.0).cancel == ()
    assert desk.due(1.0 + 5.0 + LATE_SECONDS + 0.1).cancel == (KEY,)


def test_what_its_part_has_told_runs_although_the_last_look_shows_it_waiting() -> None:
    desk = handed_over()
    desk.look(look(TicketState.WAITING), 1.0)
    desk.hear(part_of(A, KEY), [Seen(key=KEY, phase=Phase.UP)])
    stop_on(desk, 1.2)
    assert desk.due(1.2).cancel == ()
    assert desk.due(1.2 + 5.0 + LATE_SECONDS + 0.1).cancel == (KEY,)


def test_a_stop_that_came_before_it_was_handed_over_is_answered() -> None:
    desk = Desk()
    desk.look(look(), 0.0)
    run_on(desk)
    stop_on(desk, 0.0)
    assert desk.due(0.0).submit == ()
    seen = seen_on(desk, A)
    assert seen is not None
    assert seen.phase == Phase.REFUSED


def test_a_refusal_of_the_batch_system_is_told() -> None:
    desk = Desk()
    desk.look(look(), 0.0)
    run_on(desk)
    desk.refused(KEY, "invalid partition", infra=False)
    seen = seen_on(desk, B)
    assert seen is not None
    assert (seen.phase, seen.trouble_is_infra) == (Phase.REFUSED, False)
    assert desk.due(0.0).submit == ()


def test_it_is_forgotten_when_every_node_is_settled_and_nothing_is_left() -> None:
    desk = handed_over()
    desk.look(look(TicketState.RUNNING, nodes=(A, B)), 1.0)
    settle_on(desk, 2.0, A)
    assert seen_on(desk, A) is None
    settle_on(desk, 2.0, B)
    assert desk.due(2.0).forget == ()
    # its last logs are under way
    assert desk.due(2.0 + LOG_SECONDS + LATE_SECONDS).cancel == ()
    assert desk.due(2.0 + LEAVE_SECONDS + 0.1).cancel == (KEY,)  # its agents do not go
    desk.look(look(TicketState.ENDED), 3.0)
    assert desk.due(3.0).forget == (KEY,)


def test_a_part_hears_only_what_is_of_its_attempt() -> None:
    desk = handed_over()
    other = replace(launch_of(A, 0, (A,)), key=(JobId("j8"), AttemptNumber(1)))
    desk.want(word(A, 2, run=(launch_of(A, 0), other), boot=BootId("b")), 0.0)
    part = desk.part_word(part_of(A, KEY))
    assert part is not None
    assert [launch.key for launch in part.run] == [KEY]
    assert (part.node, part.boot) == (part_of(A, KEY), "")
    assert desk.parts_on(A) == [part_of(A, KEY)]


def test_an_older_word_is_not_taken() -> None:
    desk = handed_over()
    desk.want(word(A, 0), 0.0)
    part = desk.part_word(part_of(A, KEY))
    assert part is not None
    assert part.run


def test_what_others_hold_is_told_beside_what_a_node_has_and_is_nothing_of_ours() -> (
    None
):
    desk = handed_over()
    foreign = Foreign(gpus=1, cpu_millis=3000, memory_bytes=40)
    nodes = (node(A, foreign=foreign), node(NodeId("gpu03"), foreign=foreign))
    desk.look(BatchSnapshot(nodes=nodes, tickets=()), 1.0)
    offered = {word.node: word.inventory for word in desk.words(0.0)}
    assert [word.capacity for word in offered.values()] == [node(A).inventory] * 2
    assert offered[A].taken == (1,)  # the gang holds the last two
    assert offered[NodeId("gpu03")].taken == (3,)
    assert (offered[A].taken_cpu_millis, offered[A].taken_memory_bytes) == (3000, 40)


def test_others_hold_no_more_than_there_is() -> None:
    desk = handed_over()
    foreign = Foreign(gpus=9, cpu_millis=9000, memory_bytes=900)
    desk.look(BatchSnapshot(nodes=(node(A, foreign=foreign),), tickets=()), 1.0)
    (word,) = (word.inventory for word in desk.words(0.0) if word.node == A)
    assert (word.taken, word.taken_cpu_millis, word.taken_memory_bytes) == (
        (0, 1),
        8000,
        100,
    )


def test_a_closed_node_has_what_it_has_and_says_why_it_takes_nothing() -> None:
    desk = Desk()
    desk.look(BatchSnapshot(nodes=(node(A, closed="it is cordoned"),), tickets=()), 0.0)
    (word,) = (word.inventory for word in desk.words(0.0))
    assert (word.closed, word.capacity) == ("it is cordoned", node(A).inventory)


def test_what_was_never_handed_over_is_handed_over_by_the_next_head() -> None:
    desk = Desk()
    desk.look(BatchSnapshot(nodes=(node(A), node(B)), tickets=(), unsent=(KEY,)), 0.0)
    run_on(desk)
    assert [launch.seat.node for launch in desk.due(0.0).submit[0]] == [A, B]
    desk = Desk()
    desk.look(BatchSnapshot(nodes=(node(A), node(B)), tickets=(), kept=(KEY,)), 0.0)
    run_on(desk)
    assert desk.due(0.0).submit == ()  # it may have run


def test_what_was_never_handed_over_and_is_to_stop_is_forgotten() -> None:
    desk = Desk()
    desk.look(BatchSnapshot(nodes=(node(A), node(B)), tickets=(), unsent=(KEY,)), 0.0)
    stop_on(desk, 1.0)
    seen = seen_on(desk, A)
    assert seen is not None
    assert seen.phase == Phase.REFUSED
    settle_on(desk, 2.0, A, B)
    assert desk.due(2.0).forget == (KEY,)


def test_a_dead_node_is_proven_and_a_silent_one_says_nothing() -> None:
    desk = Desk()
    nodes = (node(A, down="NODE_FAIL"), node(B, silent=True))
    desk.look(BatchSnapshot(nodes=nodes, tickets=()), 0.0)
    assert desk.words(0.0) == []
    assert desk.proofs() == {A: "NODE_FAIL"}
    assert not desk.gone()


def test_a_node_that_the_batch_system_has_no_more_is_gone() -> None:
    desk = Desk()
    desk.look(
        BatchSnapshot(nodes=(node(A, down="deleted", gone=True), node(B)), tickets=()),
        0.0,
    )
    assert (desk.gone(), desk.proofs()) == ({A}, {A: "deleted"})
    desk.look(BatchSnapshot(nodes=(node(A), node(B)), tickets=()), 1.0)
    assert not desk.gone()


def test_why_it_waits_there_is_told_while_it_waits() -> None:
    desk = handed_over()
    desk.look(look(TicketState.WAITING, reason="Slurm: Priority"), 1.0)
    assert desk.says(KEY) == "Slurm: Priority"
    desk.look(look(TicketState.RUNNING, reason="Slurm: Priority"), 2.0)
    assert desk.says(KEY) == ""


def test_an_agent_that_does_not_reach_the_head_is_named() -> None:
    desk = handed_over()
    desk.look(look(TicketState.RUNNING), 1.0)
    desk.hear(part_of(A, KEY), [Seen(key=KEY, phase=Phase.STARTING)])
    desk.look(look(TicketState.RUNNING), 1.0 + UNHEARD_SECONDS - 0.1)
    assert (desk.says(KEY), desk.unheard(), desk.is_unheard(KEY)) == ("", [], False)
    desk.look(look(TicketState.RUNNING), 1.0 + UNHEARD_SECONDS)
    why = f"the job runs on {B}, but its agent has not reached the head for 20 s"
    assert (desk.says(KEY), desk.unheard()) == (why, [f"j7: {why}"])
    assert desk.is_unheard(KEY)
    desk.hear(part_of(B, KEY), [Seen(key=KEY, phase=Phase.STARTING)])
    assert desk.says(KEY) == ""


def test_a_part_is_told_that_it_is_settled_for_good() -> None:
    """The node's own word names it once: what is not said any more, is not settled any
    more."""
    desk = Desk()
    run_on(desk)
    desk.submitted(KEY)
    desk.want(word(A, 2, settled=(KEY,)), 1.0)
    desk.want(word(A, 3), 2.0)
    told = desk.part_word(part_of(A, KEY))
    assert told is not None
    assert (told.version.counter, told.settled) == (3, (KEY,))


def test_what_is_being_handed_over_is_neither_handed_over_again_nor_said_never_to_have_come() -> (
    None
):
    desk = Desk()
    desk.look(look(), 0.0)
    run_on(desk)
    desk.hand(KEY)
    desk.look(look(kept=True), 0.0)
    assert desk.due(0.0).submit == ()
    stop_on(desk, 0.0)
    assert seen_on(desk, A) == Seen(key=KEY, phase=Phase.STARTING)
    assert desk.due(0.0).withhold == ()
    desk.not_submitted(KEY)
    seen = seen_on(desk, A)
    assert seen is not None
    assert seen.phase == Phase.REFUSED


def test_what_is_to_stop_is_withheld_once_as_soon_as_it_has_been_handed_over() -> None:
    desk = handed_over()
    assert desk.due(0.0).withhold == ()
    stop_on(desk, 0.0)
    assert desk.due(0.0).withhold == (KEY,)
    desk.withheld(KEY)
    assert desk.due(0.0).withhold == ()
