"""The simulated network, nodes and agents keep the rules that the real ones must
keep."""

from dataclasses import replace
from random import Random

from corral.domain.attempt import Exit, Seat
from corral.domain.desired_state import DesiredState, Launch, Stop, Version
from corral.domain.ids import AttemptNumber, BootId, ClusterId, JobId, NodeId
from corral.domain.job import Per
from corral.domain.observed_state import AttemptKey, Phase
from corral.simulate.agent import SimulatedAgent
from corral.simulate.heads import SimulatedHeads
from corral.simulate.machine import inventory
from corral.simulate.network import SimulatedNetwork
from corral.simulate.node import SimulatedNode
from corral.simulate.rank_behaviour import RankBehaviour
from corral.simulate.ranks import Gangs
from corral.simulate.virtual_loop import VirtualLoop
from corral.simulate.world import Stage
from corral.store.memory_store import MemoryStore

N1 = NodeId("n1")
KEY: AttemptKey = (JobId("j1"), AttemptNumber(1))
LIFE = RankBehaviour(
    steps=50,
    step_seconds=1.0,
    save_every=5,
    save_seconds=0.1,
    failures=0,
    fails_after_steps=0,
    failure=Exit(code=1),
    ignores_term=False,
    stop_seconds=0.5,
    hangs_without_peers=False,
    prepare_seconds=0.2,
    refused_once=False,
    corrupt_saves=frozenset(),
)


def alone(life: RankBehaviour = LIFE) -> tuple[Stage, SimulatedNode]:
    """A node without any head, and without an auditor: every start is taken as it
    comes."""
    stage = Stage(0, verbose=False)
    stage.lives["train"] = life
    stage.network.join(N1)

    def start(launch: Launch, node: NodeId, ranks: set[int]) -> None:
        stage.evidence.start(launch.key, node, launch.seat, ranks)

    heads = SimulatedHeads(stage, MemoryStore(), {}, lambda *beat: None)
    offer = inventory(2, shares=False)
    return stage, SimulatedNode(stage, N1, offer, Gangs(stage, start), heads)


def launch(key: AttemptKey = KEY) -> Launch:
    return Launch(
        key=key, job_name="train", seat=Seat(node=N1, gpus=(0,), gpu_millis=1000), node_rank=0,
        nodes=("a",), first_rank=0, ranks=1, world_size=1, master_address="a", master_port=1,
        run="x", setup=None, per=Per.NODE, env=(), secrets=(), workdir=None, owner="ann",
        array_index=None, checkpoint=None, resume=(), grace_seconds=1.0, node_mtbf_seconds=1.0,
    )  # fmt: skip


def word(counter: int, *, term: int = 1, boot: str = "n1-boot-1") -> DesiredState:
    return DesiredState(
        cluster=ClusterId("c"),
        version=Version(term=term, counter=counter),
        node=N1,
        boot=BootId(boot),
    )


def run(stage: Stage, seconds: float) -> None:
    stage.loop.later(seconds, stage.loop.stop)
    stage.loop.run_forever()


def agent_of(node: SimulatedNode) -> SimulatedAgent:
    assert node.agent is not None
    return node.agent


def phases(node: SimulatedNode) -> dict[AttemptKey, Phase]:
    return {seen.key: seen.phase for seen in agent_of(node).seen()}


def running() -> tuple[Stage, SimulatedNode]:
    stage, node = alone()
    agent_of(node).wanted(replace(word(1), run=(launch(),)))
    run(stage, 1.0)
    assert phases(node) == {KEY: Phase.UP}
    return stage, node


def test_an_older_word_is_refused_and_a_repeated_one_does_no_harm() -> None:
    stage, node = running()
    agent_of(node).wanted(replace(word(9, term=2), run=(launch(),)))
    stop = Stop(key=KEY, grace_seconds=0, save=False, why="cancel")
    agent_of(node).wanted(replace(word(8, term=2), stop=(stop,)))
    agent_of(node).wanted(replace(word(99), stop=(stop,)))
    agent_of(node).wanted(replace(word(9, term=2), run=(launch(),)))
    run(stage, 2.0)
    assert phases(node) == {KEY: Phase.UP}
    stage.loop.close()


def test_an_agent_that_returns_still_knows_the_newest_word_and_its_attempts() -> None:
    stage, node = running()
    agent_of(node).wanted(word(5))
    node.end_agent()
    node.start_agent()
    assert not agent_of(node).may_obey(word(4))
    assert agent_of(node).may_obey(word(5))
    assert phases(node) == {KEY: Phase.UP}
    stage.loop.close()


def test_an_attempt_that_no_word_names_is_left_alone() -> None:
    stage, node = running()
    agent_of(node).wanted(word(2))
    run(stage, 5.0)
    assert phases(node) == {KEY: Phase.UP}
    stage.loop.close()


def test_what_was_said_to_another_boot_is_left() -> None:
    stage, node = running()
    node.power_off(0.1)
    node.power_on()
    agent_of(node).wanted(
        replace(word(2), run=(launch((JobId("j2"), AttemptNumber(1))),))
    )
    run(stage, 2.0)
    assert phases(node) == {KEY: Phase.ENDED}
    [seen] = agent_of(node).seen()
    assert (seen.trouble, seen.trouble_is_infra) == ("the node restarted", True)
    stage.loop.close()


def test_an_end_is_told_until_it_is_settled_and_a_living_attempt_is_never_settled() -> (
    None
):
    stage, node = running()
    agent_of(node).wanted(replace(word(2), settled=(KEY,)))
    assert phases(node) == {KEY: Phase.UP}
    stop = Stop(key=KEY, grace_seconds=2.0, save=True, why="suspend")
    agent_of(node).wanted(replace(word(3), stop=(stop,)))
    run(stage, 1.0)
    [seen] = agent_of(node).seen()
    assert seen.phase == Phase.ENDED
    assert [end.code for _, end in seen.exits] == [75]
    assert [save.step for save in seen.saves] == [0]
    agent_of(node).wanted(replace(word(4), settled=(KEY,)))
    assert phases(node) == {}
    stage.loop.close()


def test_an_attempt_that_ignores_term_is_killed_after_its_grace_also_without_an_agent() -> (
    None
):
    stage, node = alone(replace(LIFE, ignores_term=True))
    agent_of(node).wanted(replace(word(1), run=(launch(),)))
    run(stage, 1.0)
    stop = Stop(key=KEY, grace_seconds=3.0, save=False, why="cancel")
    agent_of(node).wanted(replace(word(2), stop=(stop,)))
    node.end_agent()
    run(stage, 2.9)
    assert stage.evidence.lives(KEY, N1)
    run(stage, 0.2)
    assert not stage.evidence.lives(KEY, N1)
    node.start_agent()
    assert phases(node) == {KEY: Phase.ENDED}
    stage.loop.close()


def test_a_stop_of_what_is_not_there_is_answered() -> None:
    stage, node = alone()
    stop = Stop(key=KEY, grace_seconds=1.0, save=False, why="cancel")
    agent_of(node).wanted(replace(word(1), stop=(stop,)))
    assert phases(node) == {KEY: Phase.REFUSED}
    agent_of(node).wanted(replace(word(2), run=(launch(),)))
    run(stage, 1.0)
    assert phases(node) == {KEY: Phase.REFUSED}
    stage.loop.close()


def test_a_gang_ends_as_its_life_says_and_saves_on_the_way() -> None:
    stage, node = running()
    run(stage, 60.0)
    assert [end.code for end in stage.evidence.exits[KEY].values()] == [0]
    assert sorted(stage.evidence.made[KEY]) == list(range(5, 51, 5))
    stage.loop.close()


def heard_of(network: SimulatedNetwork, loop: VirtualLoop, seconds: float) -> None:
    loop.later(seconds, loop.stop)
    loop.run_forever()


def test_what_is_sent_into_a_cut_is_lost_or_comes_when_it_heals() -> None:
    loop = VirtualLoop(lambda error: None)
    network = SimulatedNetwork(loop, Random(1))
    network.join(N1)
    network.cut(N1, up=True, down=False)
    arrived: list[int] = []
    for number in range(40):
        network.send(network.up[N1], lambda number=number: arrived.append(number))  # type: ignore[misc]
    network.send(network.down[N1], lambda: arrived.append(-1))
    heard_of(network, loop, 10.0)
    assert arrived == [-1]
    assert not network.reaches(N1)
    network.heal(N1)
    heard_of(network, loop, 10.0)
    assert network.reaches(N1)
    assert 0 < len(arrived) - 1 < 40
    loop.close()


def test_a_bad_line_loses_doubles_and_reorders() -> None:
    loop = VirtualLoop(lambda error: None)
    network = SimulatedNetwork(loop, Random(1))
    network.join(N1)
    line = network.up[N1]
    line.lost, line.doubled, line.late_seconds = 0.2, 0.3, 1.0
    arrived: list[int] = []
    for number in range(200):
        network.send(line, lambda number=number: arrived.append(number))  # type: ignore[misc]
    heard_of(network, loop, 5.0)
    assert len(set(arrived)) < 200
    assert len(arrived) > len(set(arrived))
    assert arrived != sorted(arrived)
    loop.close()
