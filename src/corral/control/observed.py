"""Rules for what is new in an agent's report, and for facts that the engine or users
state."""

from collections.abc import Iterable, Iterator, Mapping, Set

from corral.control.latest_samples import Sensed
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job
from corral.domain.observed_state import AttemptKey, Facts, NodeFacts, Progress, Seen
from corral.domain.world import Changes, World


def take_word(facts: Facts, heard: NodeFacts) -> set[JobId] | None:
    """Store a node's new report in place of its last one.

    Return the jobs whose reported state has changed; the set is empty if only something
    about the node itself has changed. Return None if the report says the same as the
    last one.
    """
    previous_facts = facts.nodes.get(heard.node)
    facts.nodes[heard.node] = heard
    last_at = previous_facts.heard_at if previous_facts is not None else 0.0
    if heard.heard_at > last_at:  # else it is as silent as before
        facts.awaited.discard(heard.node)
        facts.excused.pop(heard.node, None)
    facts.stepped.update(dict.fromkeys(stepped(previous_facts, heard), heard.heard_at))
    _take_hangs(facts, previous_facts, heard)
    touched = changed(previous_facts, heard)
    return (
        touched
        if touched or previous_facts is None or is_news(previous_facts, heard)
        else None
    )


def changed(old: NodeFacts | None, new: NodeFacts) -> set[JobId]:
    """Return the jobs whose reported state differs between the two reports. The head
    must consider these jobs again. A new training step alone is not a difference."""
    previous_states = _reported_state(old.seen) if old is not None else {}
    current_states = _reported_state(new.seen)
    keys = previous_states.keys() | current_states.keys()
    return {
        key[0] for key in keys if previous_states.get(key) != current_states.get(key)
    }


def is_news(old: NodeFacts, new: NodeFacts) -> bool:
    """Return whether the new report holds news about the node itself: a signal, another
    boot, or another inventory."""
    node_ids = {(signal.told_by, signal.number) for signal in old.signals}
    signals = any(
        (signal.told_by, signal.number) not in node_ids for signal in new.signals
    )
    return signals or (old.boot, old.inventory) != (new.boot, new.inventory)


def stepped(old: NodeFacts | None, new: NodeFacts) -> Iterator[AttemptKey]:
    """Yield the attempts whose training step differs between the node's last report and
    the new one."""
    previous_progress = {
        attempt.key: attempt.progress
        for attempt in (old.seen if old is not None else ())
    }
    for attempt_report in new.seen:
        last_progress = previous_progress.get(attempt_report.key)
        if attempt_report.progress is not None and (
            last_progress is None or last_progress.step != attempt_report.progress.step
        ):
            yield attempt_report.key


def _take_hangs(facts: Facts, old: NodeFacts | None, new: NodeFacts) -> None:
    """Store which attempts have made a step since the node's last report, and since when
    the node reports that its ranks make none."""
    previous = {attempt.key: attempt for attempt in (old.seen if old else ())}
    for attempt_report in new.seen:
        key, last_report = attempt_report.key, previous.get(attempt_report.key)
        if attempt_report.hang is not None:
            facts.hung.setdefault(key, new.heard_at)
        elif last_report is not None and last_report.hang is not None:
            facts.hung.pop(key, None)
        last_progress = last_report.progress if last_report is not None else None
        progress = attempt_report.progress
        if progress and last_progress and progress.step != last_progress.step:
            facts.moved[key] = new.heard_at


def _reported_state(seen: Iterable[Seen]) -> dict[AttemptKey, tuple[object, ...]]:
    return {
        attempt.key: (
            attempt.phase,
            attempt.exits,
            attempt.saves,
            attempt.trouble,
            attempt.tails,
            attempt.is_ready,
            attempt.hang is not None,
        )
        for attempt in seen
    }


def take_engine(
    facts: Facts, world: World, proofs: Mapping[NodeId, str], gone: Set[NodeId]
) -> None:
    """Store in the facts which nodes are dead and which the engine has removed. A node
    is dead if the engine has proven it (`proofs`) or a user has declared it.

    A declaration counts while no heartbeat has arrived since. Removals (`gone`) are
    limited to known nodes, because an engine may report a node for a long time.
    """
    facts.proofs.clear()
    facts.proofs.update(proofs)
    for id, node in world.nodes.items():
        if node.said_dead and (id in facts.awaited or id not in facts.nodes):
            facts.proofs[id] = node.word
    facts.awaited.update(facts.proofs)
    facts.gone.clear()
    facts.gone.update(world.nodes.keys() & gone)


def take_back(facts: Facts, sensed: Sensed, changes: Changes) -> None:
    """Remove the facts of removed nodes. Reports of nodes that were declared dead count
    no longer."""
    facts.awaited.update(node.id for node in changes.nodes if node.said_dead)
    for id in changes.removed:
        facts.nodes.pop(id, None)
        facts.excused.pop(id, None)
        facts.awaited.discard(id)
        sensed.drop(id)


def forget_steps(facts: Facts, world: World) -> None:
    """Delete the step times of attempts that have ended or were replaced by a newer
    attempt."""
    for id in [id for id in facts.unrecordable if id not in world.jobs]:
        del facts.unrecordable[id]
    for times in (facts.stepped, facts.moved, facts.hung):
        for key in list(times):
            job = world.jobs.get(key[0])
            if job is None or job.attempt != key[1]:
                del times[key]


def progress_of(world: World, facts: Facts, job: Job) -> Progress | None:
    """Return the newest progress report of the training loop in the job's newest
    attempt; None without one."""
    attempt = world.attempts.get(job.id)
    key = (job.id, job.attempt)
    heard = [facts.nodes.get(node) for node in (attempt.nodes if attempt else ())]
    beats = [
        attempt_report.progress
        for node_facts in heard
        for attempt_report in (node_facts.seen if node_facts is not None else ())
        if attempt_report.key == key and attempt_report.progress is not None
    ]
    return max(beats, key=lambda beat: beat.step, default=None)


def excuse(facts: Facts, frozen: Iterable[NodeId], seconds: float) -> None:
    """Subtract these seconds from the silence of the `frozen` nodes. Their silence in
    that time proves nothing, because too many nodes were silent at once."""
    for node in frozen:
        facts.excused[node] = facts.excused.get(node, 0.0) + seconds
