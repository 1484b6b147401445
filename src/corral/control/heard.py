"""What is new in an agent's word."""

from collections.abc import Iterable, Iterator

from corral.domain.facts import AttemptKey, NodeFacts, Seen
from corral.domain.ids import JobId


def changed(old: NodeFacts | None, new: NodeFacts) -> set[JobId]:
    """Jobs of which the node says something that could move them: not a mere step."""
    before = _pith(old.seen) if old is not None else {}
    after = _pith(new.seen)
    keys = before.keys() | after.keys()
    return {key[0] for key in keys if before.get(key) != after.get(key)}


def stepped(old: NodeFacts | None, new: NodeFacts) -> Iterator[AttemptKey]:
    """Attempts whose training loop has made a step since the last word."""
    before = {one.key: one.progress for one in (old.seen if old is not None else ())}
    for seen in new.seen:
        last = before.get(seen.key)
        if seen.progress is not None and (last is None or last.step != seen.progress.step):
            yield seen.key


def _pith(seen: Iterable[Seen]) -> dict[AttemptKey, tuple[object, ...]]:
    return {one.key: (one.phase, one.exits, one.saves, one.trouble) for one in seen}
