"""Time of a collective by algorithm and protocol; the library uses the fastest.

Sizes are those of the whole buffer, as NCCL counts them: for an all-gather the gathered
result, for a reduce-scatter the input. A ring of n GPUs moves (n-1)/n of it over each
link, an all-reduce twice that (Patarasuk and Yuan 2009,
doi:10.1016/j.jpdc.2008.09.002).
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from corral.catalog.links import LinkKind
from corral.catalog.transports import Protocol, Transport, transport
from corral.perf.topology import GpuGroup, Wires


class Collective(StrEnum):
    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND_RECV = "send_recv"


class Algorithm(StrEnum):
    RING = "ring"
    TREE = "tree"  # double binary tree across domains: arXiv:0906.2580
    IN_SWITCH = "in_switch"  # NVLS inside of a domain, NVLSTree across
    DIRECT = "direct"  # each pair by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveChoice:
    """An algorithm for a collective, and its seconds."""

    algorithm: Algorithm
    seconds: float


def collective_seconds(
    collective: Collective, size_bytes: float, group: GpuGroup, wires: Wires
) -> float:
    """Return the seconds from call to end on all GPUs, with the fastest algorithm. See
    `collective_ways`."""
    return min(
        choice.seconds
        for choice in collective_ways(collective, size_bytes, group, wires)
    )


def collective_ways(
    collective: Collective, size_bytes: float, group: GpuGroup, wires: Wires
) -> tuple[CollectiveChoice, ...]:
    """Return each algorithm that a library would consider for the collective, with its
    time.

    `size_bytes` is the size of the whole buffer. A group of one GPU takes no time.
    Raises: ValueError if the group has more GPUs in a domain than a domain holds, or
    the size is negative. Source: fits of catalog/data/transports.csv, error in
    validation/README.md.
    """
    if size_bytes < 0 or group.per_domain > wires.domain_gpus:
        raise ValueError(
            f"no collective of {size_bytes} bytes among {group} is possible in domains of "
            f"{wires.domain_gpus} GPUs"
        )
    if group.size == 1 or size_bytes == 0:
        return (CollectiveChoice(algorithm=Algorithm.DIRECT, seconds=0.0),)
    if collective in (Collective.ALL_TO_ALL, Collective.SEND_RECV):
        return (_direct_choice(collective, size_bytes, group, wires),)
    choices = [
        CollectiveChoice(
            algorithm=Algorithm.RING,
            seconds=_ring_seconds(collective, size_bytes, group, wires),
        )
    ]
    if collective is Collective.ALL_REDUCE:
        if group.domains > 1 and wires.fabric.is_switched:
            choices.append(_tree_choice(size_bytes, group, wires))
        choices += _in_switch(size_bytes, group, wires)
    return tuple(choices)


def _ring_step_count(collective: Collective, gpus: int) -> int:
    return (2 if collective is Collective.ALL_REDUCE else 1) * (gpus - 1)


def _ring_link_bytes(collective: Collective, size_bytes: float, gpus: int) -> float:
    """Return the bytes over each link of a ring. Data that goes to or from a single GPU
    passes each link in full."""
    if collective in (Collective.BROADCAST, Collective.REDUCE, Collective.SEND_RECV):
        return size_bytes
    return _ring_step_count(collective, gpus) / gpus * size_bytes


def _inside_rate(
    link: LinkKind,
    carries: Transport,
    group: GpuGroup,
    wires: Wires,
    *,
    among: int | None = None,
) -> float:
    """Return the rate of one GPU towards the others of its domain, in bytes a second,
    before protocol overhead. `among`: only this many GPUs of the group exchange data.
    """
    busy = group.per_domain * group.beside
    rate = link.bytes_per_s * carries.rings.get(among or group.per_domain, 1.0)
    rate *= min(1.0, wires.domain_gpus / busy)
    if carries.host_bytes_per_s is not None and busy > 2:
        rate = min(rate, carries.host_bytes_per_s / busy / carries.bulk.efficiency)
    return rate


def _across_rate(group: GpuGroup, wires: Wires) -> float:
    """Return the rate of all GPUs of the group in one domain towards other domains, in
    bytes a second. They use their own adapters, or one that GPUs share, and get at most
    a fair share of the domain's rate."""
    own_rate = max(
        group.per_domain * wires.fabric.bytes_per_s,
        transport(wires.fabric.name).adapter_bytes_per_s,
    )
    return min(own_rate, wires.domain_gpus * wires.fabric.bytes_per_s / group.beside)


def _inside_efficiency(
    protocol: Protocol, carries: Transport, link: LinkKind, gpus: int
) -> float:
    if gpus == 2 and not link.is_switched and protocol is carries.bulk:
        return carries.pair_efficiency
    return protocol.efficiency


def _ring_transfer_seconds(
    protocol: Protocol, steps: int, hop_s: float, bytes_s: float, own_s: float
) -> float:
    """Return the seconds of a collective over a ring. Each step takes the longer of its
    latency and its share of the transfer time `bytes_s`, smoothed because both vary.
    The chunks must also fill a pipeline, and the GPU's own data is passed on once
    (`own_s`)."""
    step_seconds = math.hypot(hop_s, bytes_s / steps)
    return (
        protocol.launch_s
        + steps * step_seconds
        + 2 * math.sqrt(protocol.fill_s * bytes_s)
        + own_s
    )


def _ring_seconds(
    collective: Collective, size_bytes: float, group: GpuGroup, wires: Wires
) -> float:
    up, scale_out = transport(wires.scale_up.name), transport(wires.fabric.name)
    bulk = _ring_with("bulk", collective, size_bytes, group, wires)
    below = (scale_out if group.domains > 1 else up).low_bytes
    if size_bytes / group.size >= below:
        return bulk
    return min(bulk, _ring_with("low", collective, size_bytes, group, wires))


def _ring_with(
    kind: str, collective: Collective, size_bytes: float, group: GpuGroup, wires: Wires
) -> float:
    up, scale_out = transport(wires.scale_up.name), transport(wires.fabric.name)
    inside, across = (
        (up.bulk, scale_out.bulk) if kind == "bulk" else (up.low, scale_out.low)
    )
    efficiency = _inside_efficiency(inside, up, wires.scale_up, group.per_domain)
    rate = _inside_rate(wires.scale_up, up, group, wires) * efficiency
    steps, moved = (
        _ring_step_count(collective, group.size),
        _ring_link_bytes(collective, size_bytes, group.size),
    )
    own_s = size_bytes / group.size / inside.own_bytes_per_s
    if group.domains == 1:
        return _ring_transfer_seconds(inside, steps, inside.hop_s, moved / rate, own_s)
    if group.per_domain == 1:
        rate = math.inf
    rate = min(rate, _across_rate(group, wires) * across.efficiency)
    crossings = group.domains / group.size
    hop_s = crossings * across.hop_s + (1 - crossings) * inside.hop_s
    return _ring_transfer_seconds(across, steps, hop_s, moved / rate, own_s)


def _tree_choice(size_bytes: float, group: GpuGroup, wires: Wires) -> CollectiveChoice:
    """Return the choice of the tree algorithm, with its time. Inside each domain the
    GPUs reduce along a chain. The domains reduce along two trees, each of which carries
    half of the buffer. A domain sends the whole buffer once if there are two domains,
    and otherwise twice (up and down)."""
    up = transport(wires.scale_up.name)
    inside_s = 0.0
    if group.per_domain > 1:
        rate = _inside_rate(wires.scale_up, up, group, wires) * up.bulk.efficiency
        inside_s = 2 * size_bytes / rate
    chain_s = 2 * (group.per_domain - 1) * up.low.hop_s
    seconds = _across_tree(size_bytes, inside_s, chain_s, group, wires)
    return CollectiveChoice(algorithm=Algorithm.TREE, seconds=seconds)


def _across_tree(
    size_bytes: float, inside_s: float, chain_s: float, group: GpuGroup, wires: Wires
) -> float:
    scale_out = transport(wires.fabric.name)
    sent_bytes = size_bytes * (1 if group.domains == 2 else 2)
    levels = 2 * math.ceil(math.log2(group.domains))
    rate = _across_rate(group, wires)

    def with_(protocol: Protocol) -> float:
        longest = max(inside_s, sent_bytes / (rate * protocol.efficiency))
        latency = protocol.launch_s + levels * protocol.hop_s + chain_s
        return latency + longest + 2 * math.sqrt(protocol.fill_s * longest)

    if size_bytes / group.size >= scale_out.low_bytes:
        return with_(scale_out.bulk)
    return min(with_(scale_out.bulk), with_(scale_out.low))


def _in_switch(
    size_bytes: float, group: GpuGroup, wires: Wires
) -> list[CollectiveChoice]:
    switch = transport(wires.scale_up.name).in_switch
    if (
        switch is None
        or not wires.scale_up.reduces
        or group.per_domain < switch.from_gpus
    ):
        return []
    share = min(1.0, wires.domain_gpus / (group.per_domain * group.beside))
    inside_s = size_bytes / (wires.scale_up.bytes_per_s * switch.efficiency * share)
    if group.domains == 1:
        seconds = switch.launch_s + inside_s + 2 * math.sqrt(switch.fill_s * inside_s)
    else:
        seconds = _across_tree(size_bytes, inside_s, switch.launch_s, group, wires)
    return [CollectiveChoice(algorithm=Algorithm.IN_SWITCH, seconds=seconds)]


def _direct_choice(
    collective: Collective, size_bytes: float, group: GpuGroup, wires: Wires
) -> CollectiveChoice:
    """Return the direct algorithm with its time: each GPU sends to each other GPU.
    Traffic inside the domain and traffic that leaves the domain run at the same time.
    """
    up, scale_out = transport(wires.scale_up.name), transport(wires.fabric.name)
    n, m = group.size, group.per_domain
    is_pair = collective is Collective.SEND_RECV
    bytes_per_peer = size_bytes if is_pair else size_bytes / n
    inside_s = across_s = 0.0
    if m > 1:
        efficiency = up.direct.efficiency
        if m == 2 and not wires.scale_up.is_switched:
            efficiency *= up.pair_efficiency / up.bulk.efficiency
        among = 2 if is_pair else m
        rate = _inside_rate(wires.scale_up, up, group, wires, among=among) * efficiency
        inside_s = bytes_per_peer * (among - 1) / rate
    if group.domains > 1:
        peers = 1 if is_pair else n - m
        across_s = (
            bytes_per_peer
            * peers
            / (_across_rate(group, wires) / m * scale_out.direct.efficiency)
        )
    direct = scale_out.direct if group.domains > 1 else up.direct
    longest = max(inside_s, across_s)
    if is_pair:  # one way, and nothing to wait for
        return CollectiveChoice(
            algorithm=Algorithm.DIRECT, seconds=direct.low_launch_s + longest
        )
    bulk = direct.launch_s + longest + 2 * math.sqrt(direct.fill_s * longest)
    bulk += bytes_per_peer / direct.own_bytes_per_s
    low_latency_s = (
        direct.low_launch_s + bytes_per_peer / direct.peer_bytes_per_s + longest
    )
    return CollectiveChoice(
        algorithm=Algorithm.DIRECT, seconds=min(bulk, low_latency_s)
    )


def handed_on_seconds(
    inside_bytes: float,
    across_bytes: float,
    group: GpuGroup,
    wires: Wires,
    *,
    inside_share: float,
    across_share: float,
) -> float:
    """Return the seconds in which each GPU sends `inside_bytes` to others of its domain
    and `across_bytes` to other domains, at the same time. `inside_share` and
    `across_share` are the shares of the links' rates that the transfer reaches. A group
    of one GPU takes no time."""
    if group.size == 1:
        return 0.0
    up, scale_out = transport(wires.scale_up.name), transport(wires.fabric.name)
    inside_s = across_s = 0.0
    if group.per_domain > 1:
        rate = _inside_rate(wires.scale_up, up, group, wires)
        inside_s = inside_bytes / (rate * inside_share)
    if group.domains > 1:
        own_seconds = _across_rate(group, wires) / group.per_domain
        across_s = across_bytes / (own_seconds * across_share)
    launch_s = (scale_out if group.domains > 1 else up).direct.launch_s
    return launch_s + max(inside_s, across_s)


def peer_all_reduce_seconds(size_bytes: float, group: GpuGroup, wires: Wires) -> float:
    """Return the seconds of an all-reduce as inference engines do it inside a domain.
    It is one kernel in which each GPU reads its peers' memory. With one shot, a GPU
    reads all data of each peer; with two, it reads a share of each peer's data and then
    the sums. The faster one counts; two GPUs use one shot.

    Raises: ValueError across domains. Source: vLLM's custom all-reduce; fits of
    catalog/data/transports.csv.
    """
    if group.domains > 1:
        raise ValueError(f"a GPU cannot read the memory of another domain: {group}")
    carries = transport(wires.scale_up.name)
    small, peers = carries.small, group.size - 1
    if peers == 0:
        return 0.0
    rate = _inside_rate(wires.scale_up, carries, group, wires)
    peer_seconds = small.launch_s + peers * (
        small.peer_s + size_bytes / (rate * small.efficiency)
    )
    if peers == 1:
        return peer_seconds
    share_s = size_bytes / group.size / (rate * small.second_efficiency)
    two = small.launch_s + small.second_launch_s + 2 * peers * (small.peer_s + share_s)
    return min(peer_seconds, two)


def small_all_reduce_seconds(size_bytes: float, group: GpuGroup, wires: Wires) -> float:
    """Return the seconds of an all-reduce as inference engines choose it. They use
    `peer_all_reduce_seconds` inside a domain and below a certain size, for more than
    two GPUs only if it is faster. Otherwise they use `collective_seconds`."""
    below = transport(wires.scale_up.name).small.below_bytes
    if group.domains == 1 and group.size <= 2 and size_bytes < below:
        return peer_all_reduce_seconds(size_bytes, group, wires)
    usual = collective_seconds(Collective.ALL_REDUCE, size_bytes, group, wires)
    if group.domains > 1 or size_bytes >= below:
        return usual
    return min(usual, peer_all_reduce_seconds(size_bytes, group, wires))
