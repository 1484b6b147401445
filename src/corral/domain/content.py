"""Content that nodes keep on their disks: models, and other sets of files that jobs
read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.domain.ids import AttemptNumber, JobId, NodeId

# Assumed rate of a node that has fetched nothing yet: a tenth of a 10 Gbit/s link.
PRIOR_BYTES_PER_SECOND: Final = 125_000_000.0
SAME_SECONDS: Final = 1.0  # load times that differ by less count as equal


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentItem:
    """Content that a node has completely.

    Args:
        key: Identifies the content and its origin; equal on all nodes.
        name: Source with its resolved revision. For example: hf://org/name@4f2a...
        sources: Sources, as specs write them, that led to it.
        used_at: When an attempt last began to use it (wall clock of the node).
        is_pinned: It is never evicted.
        is_used: An attempt on the node uses it now.
        is_public: Anybody may read it at its source.
    """

    key: str
    name: str
    size_bytes: int
    sources: tuple[str, ...] = ()
    used_at: float = 0.0
    is_pinned: bool = False
    is_used: bool = False
    is_public: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        """Return its name and its sources."""
        return (self.name, *self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentFetch:
    """Content that a node is fetching.

    Args:
        key: As in ContentItem; "" while the source has not answered yet.
        source: Source, as the spec writes it.
        total_bytes: Size of all files; 0 while it is not known.
        attempts: Attempts that wait for it.
        from_outside: The node fetches it from its source, not only from other nodes.
        outside_at: Since when (wall clock of the node); of nodes that begin together, the
            first one goes on.
        trouble: Why the newest try failed; "" if none did.
    """

    key: str
    source: str
    done_bytes: int = 0
    total_bytes: int = 0
    attempts: tuple[tuple[JobId, AttemptNumber], ...] = ()
    from_outside: bool = False
    outside_at: float = 0.0
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentResult:
    """End of a request of a user on a node. `trouble`: why it failed; "" if it did
    not."""

    request: str
    source: str
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentReport:
    """Report of a node about the content that it keeps.

    Args:
        port: Port at which other nodes read the content; 0: at none.
        access_key: Secret with which they may read it.
        bytes_per_second: Measured rate of the newest fetches; None: not measured.
        results: How the newest requests of users ended.
    """

    items: tuple[ContentItem, ...] = ()
    fetches: tuple[ContentFetch, ...] = ()
    results: tuple[ContentResult, ...] = ()
    port: int = 0
    access_key: str = field(default="", repr=False)
    bytes_per_second: float | None = None
    used_bytes: int = 0
    most_bytes: int = 0

    def item_of(self, source: str) -> ContentItem | None:
        """Return the item to which the source leads on this node; None without one."""
        for item in self.items:
            if source in item.labels:
                return item
        return None


def names_like(items: Iterable[ContentItem], text: str) -> list[str]:
    """Return the names of the content that a shorter text can mean: that whose name or
    source equals it without the revision, or else that whose name or source begins with
    it."""
    labels = [(label, item.name) for item in items for label in item.labels]
    equal = {name for label, name in labels if split_revision(label)[0] == text}
    return sorted(equal or {name for label, name in labels if label.startswith(text)})


def split_revision(name: str) -> tuple[str, str]:
    """Return the source and the revision in the name of content. For example:
    hf://org/name and 4f2a of hf://org/name@4f2a"""
    for separator in ("#sha256=", "@"):
        source, _, revision = name.rpartition(separator)
        if source:
            return source, revision
    return name, ""


def load_seconds(
    source: str, reports: Mapping[NodeId, ContentReport]
) -> dict[NodeId, float]:
    """Return for each node how long it takes to have the content of this source on its
    disk; an empty result while no node has it, because its size is not known then."""
    items = {node: report.item_of(source) for node, report in reports.items()}
    sizes = [item.size_bytes for item in items.values() if item is not None]
    if not sizes:
        return {}
    seconds: dict[NodeId, float] = {}
    for node, report in reports.items():
        rate = report.bytes_per_second or PRIOR_BYTES_PER_SECOND
        seconds[node] = 0.0 if items[node] is not None else max(sizes) / max(1.0, rate)
    return seconds


def quickest_nodes(seconds: Mapping[NodeId, float]) -> frozenset[NodeId]:
    """Return the nodes on which the content is there first; an empty set if all nodes
    are about equally quick."""
    if not seconds:
        return frozenset()
    least = min(seconds.values())
    quick = {node for node, time in seconds.items() if time - least < SAME_SECONDS}
    return frozenset(quick) if len(quick) < len(seconds) else frozenset()


def progress_text(node: NodeId, fetch: ContentFetch) -> str:
    """Return a sentence about a fetch. For example: n1 fetches model hf://org/name: 3.1
    of 8.0 GB"""
    amount = "it looks up the files"
    if fetch.total_bytes:
        done, total, unit = _amounts(fetch.done_bytes, fetch.total_bytes)
        amount = f"{done} of {total} {unit}"
    again = f"; trying again after: {fetch.trouble}" if fetch.trouble else ""
    return f"{node} fetches model {fetch.source}: {amount}{again}"


def _amounts(done: int, total: int) -> tuple[str, str, str]:
    """Return both amounts and their common unit."""
    units: Sequence[tuple[str, int]] = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
    unit, size = next((pair for pair in units if total >= pair[1]), ("bytes", 1))
    digits = 1 if size > 1 else 0
    return f"{done / size:.{digits}f}", f"{total / size:.{digits}f}", unit
