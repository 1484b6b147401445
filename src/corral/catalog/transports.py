"""Performance of a collective library over a kind of link: latency and achieved
bandwidth."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.catalog.facts import Fact, table

ANY: Final = "any"  # what holds where no nearer subject says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One protocol for sending a message over a link, such as Simple and LL128 of NCCL.

    `launch_s`: time to start a call. `hop_s`: the shortest time of one step of a ring.
    `fill_s`: time to fill the pipeline of chunks; with the best chunk length it costs 2
    sqrt(fill x transfer). `efficiency`: share of the link's rate that large messages
    reach. `own_bytes_per_s`: rate at which a GPU passes on its part of a message.
    """

    launch_s: float
    hop_s: float
    fill_s: float
    efficiency: float
    own_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """Direct exchange of messages between each pair of GPUs. Small messages start
    sooner (`low_launch_s`) and go to each peer at `peer_bytes_per_s`. Large messages
    reach `efficiency` of the link's rate."""

    launch_s: float
    low_launch_s: float
    peer_bytes_per_s: float
    fill_s: float
    efficiency: float
    own_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """An all-reduce that one kernel does, for inference. Each GPU reads its peers'
    memory. In the one-shot form it reads the whole message; in the two-shot form it
    first reads only its own part. Engines use it for messages below `below_bytes`."""

    launch_s: float
    peer_s: float
    efficiency: float
    second_launch_s: float
    second_efficiency: float
    below_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InSwitch:
    """A reduction inside the switch (NVLS): each GPU sends and receives a message only
    once.

    `from_gpus`: the library uses it from this number of GPUs on.
    """

    launch_s: float
    fill_s: float
    efficiency: float
    from_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """Performance of collectives over one link. `low`: the protocol if a GPU's part of
    the message has less than `low_bytes`; `bulk`: the protocol for larger parts.

    `pair_efficiency`: share of the link's rate that two GPUs reach without a switch.
    `host_bytes_per_s`: rate that a host of such a link carries for all of its GPUs;
    None: no bound is known. `rings`: share of the link's rate by number of GPUs, if
    there are few wires between them. `adapter_bytes_per_s`: rate that a GPU gets from
    one network adapter while the other GPUs of its node are idle. `host_call_s`: time
    that a rank waits for a call through torch.distributed; calls in a stream hide this
    time.
    """

    bulk: Protocol
    low: Protocol
    low_bytes: float
    in_switch: InSwitch | None
    pair_efficiency: float
    host_bytes_per_s: float | None
    rings: Mapping[int, float]
    adapter_bytes_per_s: float
    host_call_s: float
    direct: Direct
    small: Small


@cache
def transport(link_name: str) -> Transport:
    """Return the transport of a link. Missing values of `nvlink-4-400` come from
    `nvlink-4`, then `nvlink`, then `any`: the shorter name is the family."""
    facts = _merge_link_facts(link_name)

    def number(quantity: str) -> float:
        return facts[quantity].number

    def protocol(kind: str) -> Protocol:
        return Protocol(
            launch_s=number(f"{kind}_launch") * 1e-6,
            hop_s=number(f"{kind}_hop") * 1e-6,
            fill_s=number(f"{kind}_fill") * 1e-6,
            efficiency=number(f"{kind}_efficiency"),
            own_bytes_per_s=number(f"{kind}_own") * 1e9,
        )

    return Transport(
        bulk=protocol("bulk"),
        low=protocol("low"),
        low_bytes=number("low_below") * 2**20,
        in_switch=_in_switch(facts),
        pair_efficiency=number(
            "pair_efficiency" if "pair_efficiency" in facts else "bulk_efficiency"
        ),
        host_bytes_per_s=number("host_rate") * 1e9 if "host_rate" in facts else None,
        rings={
            int(quantity.removeprefix("share_of_")): fact.number
            for quantity, fact in facts.items()
            if quantity.startswith("share_of_")
        },
        adapter_bytes_per_s=number("adapter_rate") * 1e9
        if "adapter_rate" in facts
        else 0.0,
        host_call_s=number("host_call") * 1e-6,
        direct=Direct(
            launch_s=number("direct_launch") * 1e-6,
            low_launch_s=number("direct_low_launch") * 1e-6,
            peer_bytes_per_s=number("direct_peer_rate") * 1e9,
            fill_s=number("direct_fill") * 1e-6,
            efficiency=number("direct_efficiency"),
            own_bytes_per_s=number("direct_own") * 1e9,
        ),
        small=Small(
            launch_s=number("small_launch") * 1e-6,
            peer_s=number("small_peer") * 1e-6,
            efficiency=number("small_efficiency"),
            second_launch_s=number("small_second_launch") * 1e-6,
            second_efficiency=number("small_second_efficiency"),
            below_bytes=number("small_below") * 2**20,
        ),
    )


def _merge_link_facts(link_name: str) -> Mapping[str, Fact]:
    families = [
        name
        for name in table("transports")
        if name == ANY or link_name.startswith(name)
    ]
    families.sort(key=lambda name: (name != ANY, len(name)))
    merged: dict[str, Fact] = {}
    for name in families:
        merged |= table("transports")[name]
    return merged


def _in_switch(facts: Mapping[str, Fact]) -> InSwitch | None:
    if "switch_from" not in facts:
        return None
    return InSwitch(
        launch_s=facts["switch_launch"].number * 1e-6,
        fill_s=facts["switch_fill"].number * 1e-6,
        efficiency=facts["switch_efficiency"].number,
        from_gpus=round(facts["switch_from"].number),
    )
