"""The bill of materials of a cluster: networks, lines to buy, racks."""

from dataclasses import dataclass
from math import ceil
from typing import Protocol

from corral.catalog.equipment import NetworkKit, ServerKit, Switch, rule, switch
from corral.domain.errors import SpecInvalid
from corral.plan.cluster.fabric import Fabric, fat_tree
from corral.plan.cluster.storage import Storage


class FabricRequest(Protocol):
    """Fields of a cluster request about networks and racks. `ClusterRequest` has fields
    of the same names."""

    @property
    def oversubscription(self) -> float: ...
    @property
    def rail_only(self) -> bool: ...
    @property
    def rack_kw(self) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterialLine:
    """One line of the bill of materials. `watts` and `weight_kg` are those of all its
    items together."""

    what: str
    count: int
    watts: float
    units: int
    weight_kg: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """One network of a cluster: that of the GPUs, of storage, or for management (in
    band, out of band)."""

    name: str
    switch: Switch
    fabric: Fabric
    modules: int
    watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Racks:
    """Racks of a cluster. `each`: servers in a full rack. `heaviest_kg` and
    `most_watts`: the highest weight and power of one rack."""

    servers: int
    others: int
    each: int
    heaviest_kg: float
    most_watts: float

    @property
    def count(self) -> int:
        return self.servers + self.others


def usual(said: float | None, value: float, remarks: list[str], words: str) -> float:
    """Return the given value. If it is None, return the usual `value` and add a remark
    with `words`."""
    if said is not None:
        return said
    remarks.append(words.format(value))
    return value


def net_of(name: str, kind: Switch, gbps: float, fabric: Fabric) -> Net:
    """Return the network of these switches, with the number of optical modules in the
    switches and its power in W. A module holds a fixed number of links at a port's own
    rate, and more of slower links."""
    module_links = kind.links_per_module * max(1, kind.ports_of(gbps) // kind.ports)
    modules = ceil(fabric.switch_ports / module_links)
    watts = fabric.switches * kind.watts + modules * kind.module_watts
    return Net(name=name, switch=kind, fabric=fabric, modules=modules, watts=watts)


def nets_of(
    request: FabricRequest, nodes: int, rails: int, net: NetworkKit, storage: Storage
) -> tuple[Net, ...]:
    gbps, kind = net.adapter_gbps, net.switch
    compute = fat_tree(
        nodes,
        rails,
        kind.ports_of(gbps),
        oversubscription=request.oversubscription,
        rail_only=request.rail_only,
    )
    nets = [net_of("GPUs", kind, gbps, compute)]
    if nodes == 1:
        return tuple(nets)
    attached_nodes = nodes + storage.servers + heads_of(nodes)
    nets.append(net_of("storage", kind, gbps, _files_on(compute, attached_nodes)))
    ethernet, slow = switch("sn4600c"), switch("sn2201")
    band = fat_tree(
        attached_nodes,
        round(rule("node-ports", "in_band")),
        ethernet.ports_of(100),
        oversubscription=3,
    )
    nets.append(net_of("in band", ethernet, 100, band))
    switches = sum(net.fabric.switches for net in nets)
    managed = attached_nodes * round(rule("node-ports", "out_of_band")) + switches
    leaves = ceil(managed / slow.ports)
    out_of_band = Fabric(
        tiers=1, radix=slow.ports, leaves=leaves, down=slow.ports, node_links=managed
    )
    nets.append(
        Net(
            name="out of band",
            switch=slow,
            fabric=out_of_band,
            modules=0,
            watts=leaves * slow.watts,
        )
    )
    return tuple(nets)


def _files_on(compute: Fabric, ends: int) -> Fabric:
    """Return the storage network for `ends` connected machines. In a small cluster it
    uses the free ports of the GPUs' only switch, as in NVIDIA's enterprise reference
    architectures."""
    ports = round(rule("node-ports", "storage"))
    if compute.leaves == 1 and compute.node_links + ends * ports <= compute.radix:
        return Fabric(tiers=1, radix=compute.radix, node_links=ends * ports)
    return fat_tree(ends, ports, compute.radix, oversubscription=2)


def bill_of(
    built: ServerKit,
    servers: int,
    nets: tuple[Net, ...],
    net: NetworkKit,
    adapters: int,
    storage: Storage,
    nodes: int,
) -> tuple[MaterialLine, ...]:
    lines = [
        MaterialLine(
            what=built.title,
            count=servers,
            watts=servers * built.watts,
            units=servers * built.units,
            weight_kg=servers * built.weight_kg,
            note=f"{built.gpus} GPUs each",
        )
    ]
    for network in nets:
        tree, kind = network.fabric, network.switch
        layers = (("leaf", tree.leaves), ("spine", tree.spines), ("core", tree.cores))
        for layer, count in layers:
            if count:
                lines.append(
                    MaterialLine(
                        what=kind.title,
                        count=count,
                        watts=count * kind.watts,
                        units=count * kind.units,
                        weight_kg=count * kind.weight_kg,
                        note=f"{layer} switches, {network.name}",
                    )
                )
        if tree.links:
            lines.append(_material_line("cable", tree.links, 0.0, f"{network.name}"))
        if network.modules:
            watts = network.modules * kind.module_watts
            lines.append(
                _material_line(
                    "transceiver in a switch", network.modules, watts, network.name
                )
            )
    if nodes > 1:
        watts = adapters * net.adapter_module_watts
        lines.append(_material_line("transceiver in a server", adapters, watts, "GPUs"))
        lines += _shared_lines(nodes, storage)
    return tuple(lines)


def heads_of(nodes: int) -> int:
    """Return the number of head and login nodes: two of each, plus one for every
    `nodes_each` nodes."""
    return 4 + nodes // round(rule("head-node", "nodes_each"))


def _material_line(what: str, count: int, watts: float, note: str) -> MaterialLine:
    return MaterialLine(
        what=what, count=count, watts=watts, units=0, weight_kg=0.0, note=note
    )


def _shared_lines(nodes: int, storage: Storage) -> list[MaterialLine]:
    """Return the lines for what all nodes share: storage, head nodes and login nodes."""
    heads = heads_of(nodes)

    def line(what: str, kind: str, count: int, note: str) -> MaterialLine:
        return MaterialLine(
            what=what,
            count=count,
            watts=count * rule(kind, "watts"),
            units=count * round(rule(kind, "units")),
            weight_kg=count * rule(kind, "weight"),
            note=note,
        )

    return [
        line(
            "head and login nodes",
            "head-node",
            heads,
            "2 heads, 2 to log in, and services",
        ),
        line(
            "storage appliance",
            "storage-server",
            storage.servers,
            f"{storage.built_read:.0f} GB/s read, {storage.built_write:.0f} GB/s write",
        ),
    ]


def racks_of(
    request: FabricRequest,
    built: ServerKit,
    servers: int,
    bought: tuple[MaterialLine, ...],
    remarks: list[str],
) -> Racks:
    units, empty_weight_kg = round(rule("rack", "units")), rule("rack", "weight")
    other_lines = bought[1:]
    if built.units > units:  # the server is a rack, of its own power
        watts, servers_per_rack, heaviest = built.watts, 1, built.weight_kg
    else:
        power_remark = "a rack may draw {:g} kW; change it with --rack-kw"
        watts = (
            usual(request.rack_kw, rule("rack", "power") / 1e3, remarks, power_remark)
            * 1e3
        )
        servers_per_rack = min(units // built.units, int(watts // built.watts))
        heaviest = servers_per_rack * built.weight_kg + empty_weight_kg
    if servers_per_rack < 1:
        raise SpecInvalid(
            f"one server draws {built.watts / 1e3:.1f} kW, but a rack only "
            f"{watts / 1e3:g} kW",
            hint=f"give --rack-kw {ceil(built.watts / 1e3)}",
        )
    rest = max(
        ceil(sum(line.units for line in other_lines) / units),
        ceil(sum(line.watts for line in other_lines if line.units) / watts),
    )
    filled = min(servers_per_rack, servers)
    return Racks(
        servers=ceil(servers / servers_per_rack),
        others=rest,
        each=servers_per_rack,
        heaviest_kg=heaviest
        if filled == servers_per_rack
        else filled * built.weight_kg + empty_weight_kg,
        most_watts=filled * built.watts,
    )
