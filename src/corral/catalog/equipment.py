"""Equipment of a cluster: servers, switches, networks, racks and accessories."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.catalog.devices import Device
from corral.catalog.economics import assumptions
from corral.catalog.facts import subject, table
from corral.domain.errors import NotFound

EQUIPMENT: Final = "equipment"
CARDS: Final = ("pcie",)  # links of GPUs that sit in slots, not on a board of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A network switch with `ports` ports at `port_gbps`. Each port can be split into
    `splits` slower ones.

    `watts`: power without the optical modules. `links_per_module`: number of links at a
    port's rate that one optical module holds.
    """

    name: str
    title: str
    ports: int
    port_gbps: float
    splits: int
    watts: float
    units: int
    weight_kg: float
    links_per_module: int
    module_watts: float

    def ports_of(self, gbps: float) -> int:
        """Return how many links of that rate the switch takes; 0 if it is too slow."""
        return self.ports * min(self.splits, int(self.port_gbps // gbps))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkKit:
    """Equipment of one network: adapters of one rate, and the switch to which they
    connect."""

    name: str
    adapter_gbps: float
    adapter_module_watts: float
    switch: Switch


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKit:
    """A server as a unit of purchase: a node, or a rack of nodes. `watts`: its peak
    power.

    `gpus`: number of GPUs in the unit. `liquid_share`: share of its heat that water
    carries away.
    """

    name: str
    title: str
    gpus: int
    watts: float
    units: int
    weight_kg: float
    liquid_share: float


def _names_of_kind(kind: str) -> list[str]:
    return [
        name for name, facts in table(EQUIPMENT).items() if facts["kind"].value == kind
    ]


@cache
def switch(name: str) -> Switch:
    """Return the switch of that name, for example qm9700. Raises: NotFound, with the
    nearest name."""
    switches = {
        switch_name: table(EQUIPMENT)[switch_name]
        for switch_name in _names_of_kind("switch")
    }
    facts = subject("switch", name, switches, {}, listed=EQUIPMENT)
    return Switch(
        name=facts["title"].subject,
        title=facts["title"].value,
        ports=round(facts["ports"].number),
        port_gbps=facts["port_rate"].number,
        splits=round(facts["splits"].number),
        watts=facts["watts"].number,
        units=round(facts["units"].number),
        weight_kg=facts["weight"].number,
        links_per_module=round(facts["links_per_module"].number),
        module_watts=facts["module_watts"].number,
    )


@cache
def network(fabric: str) -> NetworkKit:
    """Return the equipment for a network between nodes.

    Raises: NotFound for a network that cannot be bought, such as a cloud's own, or that
    the catalog does not have.
    """
    network_rows = {
        network_name: table(EQUIPMENT)[network_name] for network_name in networks()
    }
    if fabric not in network_rows:
        raise NotFound(
            "equipment in the catalog for the network",
            fabric,
            list(network_rows),
            see="corral plan catalog equipment",
        )
    facts = network_rows[fabric]
    return NetworkKit(
        name=fabric,
        adapter_gbps=facts["adapter_rate"].number,
        adapter_module_watts=facts["adapter_module_watts"].number,
        switch=switch(facts["switch"].value),
    )


def networks() -> tuple[str, ...]:
    """Return the networks of which a cluster can be built."""
    return tuple(_names_of_kind("network"))


def server(gpu: Device) -> ServerKit:
    """Return the server that the GPU is sold in. An unknown GPU gets a server of the
    usual size for its kind, with the usual extra power."""
    server_names = [
        name for name in _names_of_kind("server") if gpu.name in _gpus_of(name)
    ]
    is_card = gpu.scale_up.name.startswith(CARDS)
    name = server_names[0] if server_names else "any-pcie" if is_card else "any"
    facts = table(EQUIPMENT)[name]
    gpus = round(facts["node_gpus"].number) if server_names else gpu.node_gpus
    watts = facts["watts"].number
    if not server_names:
        watts = gpus * gpu.tdp_watts * assumptions()["node_watts"].value
    return ServerKit(
        name=name,
        title=facts["title"].value
        if server_names
        else f"{facts['title'].value}: {gpus} x {gpu.title}",
        gpus=gpus,
        watts=watts,
        units=round(facts["units"].number),
        weight_kg=facts["weight"].number,
        liquid_share=facts["liquid_share"].number,
    )


def _gpus_of(name: str) -> list[str]:
    return table(EQUIPMENT)[name]["gpus"].value.split(";")


def rule(name: str, quantity: str) -> float:
    """Return one number from the equipment table for an entry that is neither a server
    nor a switch, such as a rack, the grid or a head node."""
    return table(EQUIPMENT)[name][quantity].number
