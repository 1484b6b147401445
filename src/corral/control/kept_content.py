"""Content on the disks of nodes, as their agents report it: which nodes have it, and
which are fetching it."""

from corral.domain.content import ContentReport, progress_text
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.node import Liveness
from corral.domain.observed_state import Facts
from corral.domain.world import World
from corral.wire.content_messages import ContentPeer, ContentPeers


def content_reports(world: World, facts: Facts) -> dict[NodeId, ContentReport]:
    """Return the reports of the nodes that are alive."""
    return {
        id: facts.nodes[id].content
        for id, node in world.nodes.items()
        if node.liveness is Liveness.ALIVE and id in facts.nodes
    }


def peers_with(
    world: World, facts: Facts, key: str, *, asking: NodeId, most_bytes: int | None
) -> ContentPeers:
    """Return the other nodes that have the content of this key or are fetching it."""
    peers: list[ContentPeer] = []
    is_announced = False
    for node, report in content_reports(world, facts).items():
        if node == asking:
            is_announced = any(
                fetch.key == key and fetch.from_outside for fetch in report.fetches
            )
        if node == asking or not report.port:
            continue
        is_complete = any(item.key == key for item in report.items)
        fetches = [fetch for fetch in report.fetches if fetch.key == key]
        if is_complete or fetches:
            peer = ContentPeer(
                node=node,
                address=facts.nodes[node].address,
                port=report.port,
                access_key=report.access_key,
                is_complete=is_complete,
                is_from_outside=any(fetch.from_outside for fetch in fetches),
                outside_at=max((fetch.outside_at for fetch in fetches), default=0.0),
                done_bytes=sum(fetch.done_bytes for fetch in fetches),
            )
            peers.append(peer)
    return ContentPeers(
        peers=tuple(peers), most_bytes=most_bytes, is_announced=is_announced
    )


def fetch_text(world: World, facts: Facts, job: Job) -> str:
    """Return which nodes are fetching the model of a job that is starting, and how far
    they are; "" if none is."""
    attempt = world.attempts.get(job.id)
    if attempt is None or job.spec.model is None:
        return ""
    key = (job.id, attempt.number)
    texts = [
        progress_text(node, fetch)
        for node in attempt.nodes
        if node in facts.nodes
        for fetch in facts.nodes[node].content.fetches
        if key in fetch.attempts
    ]
    return "; ".join(texts)
