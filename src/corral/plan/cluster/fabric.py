"""Switches and cables of a cluster: rail-optimised fat trees of one to three tiers.

Each rail (the first adapter of every node, the second, ...) has its own leaf, so that
GPUs at the same position in their nodes are one hop apart. Source: NVIDIA DGX SuperPOD
reference architectures for H100 and B200, whose counts the tests repeat; Leiserson
1985, doi:10.1109/TC.1985.6312192.
"""

from dataclasses import dataclass
from typing import Final

from corral.domain.errors import SpecInvalid

# of a leaf's ports to nodes are used at the least, where that saves switches
FULL: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A network of switches. `tiers` is 0 if there is nothing to connect. `down` and
    `up`: ports of a full leaf switch to nodes and to the tier above.

    `pods`: groups of leaf and spine switches below the core switches; 0 without cores.
    `planes`: separate trees that no switch connects, one for each rail; the counts
    include all planes. `node_links`, `leaf_links` and `spine_links`: numbers of links
    from a node, leaf or spine to the tier above.
    """

    tiers: int
    radix: int
    leaves: int = 0
    spines: int = 0
    cores: int = 0
    down: int = 0
    up: int = 0
    pods: int = 0
    node_links: int = 0
    leaf_links: int = 0
    spine_links: int = 0
    planes: int = 1

    @property
    def switches(self) -> int:
        return self.leaves + self.spines + self.cores

    @property
    def links(self) -> int:
        return self.node_links + self.leaf_links + self.spine_links

    @property
    def switch_ports(self) -> int:
        """Return the number of switch ports in use: a cable to a node uses one, any
        other cable two."""
        return self.node_links + 2 * (self.leaf_links + self.spine_links)

    @property
    def bisection_share(self) -> float:
        """Return the bisection bandwidth as a share of the rate at which all nodes
        together can send."""
        if self.tiers < 2:
            return 1.0
        return min(1.0, self.leaf_links / self.node_links)


def fat_tree(
    nodes: int,
    rails: int,
    radix: int,
    *,
    oversubscription: float = 1.0,
    rail_only: bool = False,
) -> Fabric:
    """Return the smallest fabric for `nodes` of `rails` adapters each, of switches with
    `radix` ports.

    Args:
        oversubscription: ports to nodes relative to ports upwards, in the leaves.
        rail_only: rails are connected only by the links inside the nodes
            (arXiv:2307.12169). Rails also get a tree each if one tree of three tiers is
            too small for all of them.

    Raises: SpecInvalid if three tiers are too small for one rail.
    """
    adapter_count = nodes * rails
    if nodes <= 1 or adapter_count == 0:
        return Fabric(tiers=0, radix=radix)
    if adapter_count <= radix:
        return Fabric(
            tiers=1, radix=radix, leaves=1, down=radix, node_links=adapter_count
        )
    if rail_only:
        return _build_rail_fabric(nodes, rails, radix)
    down = int(radix * oversubscription / (1 + oversubscription))
    fabrics = [
        tree
        for lower in range(down, int(down * FULL) - 1, -1)
        for upper in range(-int(-lower // oversubscription), radix - lower + 1)
        if (tree := _two_tiers(nodes, rails, radix, lower, upper)) is not None
    ]
    if fabrics:
        return min(fabrics, key=lambda tree: (tree.switches, tree.links, -tree.down))
    if rails > 1 and _pod_count(_leaf_count(nodes, rails, down), radix) > radix:
        fabric = fat_tree(nodes, 1, radix, oversubscription=oversubscription)
        return _multiply_fabric(fabric, rails)
    return _three_tiers(
        _leaf_count(nodes, rails, down), adapter_count, radix, down, oversubscription
    )


def _pod_count(leaves: int, radix: int) -> int:
    return -(-leaves // (radix // 2))


def _multiply_fabric(one: Fabric, planes: int) -> Fabric:
    return Fabric(
        tiers=one.tiers,
        radix=one.radix,
        down=one.down,
        up=one.up,
        planes=planes,
        leaves=planes * one.leaves,
        spines=planes * one.spines,
        cores=planes * one.cores,
        pods=planes * one.pods,
        node_links=planes * one.node_links,
        leaf_links=planes * one.leaf_links,
        spine_links=planes * one.spine_links,
    )


def _two_tiers(nodes: int, rails: int, radix: int, down: int, up: int) -> Fabric | None:
    """Return a fabric of two tiers; None if the spine switches have too few ports to
    connect all leaves."""
    leaves = _leaf_count(nodes, rails, down)
    if up < 1 or leaves > radix:
        return None
    return Fabric(
        tiers=2,
        radix=radix,
        leaves=leaves,
        spines=_smallest_divisor(up, least=leaves * up / radix),
        down=down,
        up=up,
        node_links=nodes * rails,
        leaf_links=leaves * up,
    )


def _build_rail_fabric(nodes: int, rails: int, radix: int) -> Fabric:
    if nodes > radix:
        raise SpecInvalid(
            f"rails of {nodes} nodes do not fit: each rail has one switch of {radix} ports",
            hint=f"plan {radix} nodes or fewer, or leave out --rail-only to add more switches",
        )
    leaves = -(-rails // (radix // nodes))
    return Fabric(
        tiers=1, radix=radix, leaves=leaves, down=radix, node_links=nodes * rails
    )


def _leaf_count(nodes: int, rails: int, down: int) -> int:
    """Return the number of leaf switches: one for each rail and each group of `down`
    nodes. If there are few nodes, several rails share a leaf."""
    if nodes >= down:
        return -(-nodes // down) * rails
    return -(-rails // (down // nodes))


def _three_tiers(leaves: int, ends: int, radix: int, down: int, ratio: float) -> Fabric:
    """Return a fabric of three tiers. A pod has as many leaves as a spine has ports
    downwards, and one spine for each upward port of a leaf. Spines at the same position
    in their pods share a plane of cores."""
    up = -int(-down // ratio)  # rounded up, so that no more is oversubscribed
    half = radix // 2
    pods = _pod_count(leaves, radix)
    if pods > radix:
        max_adapters = radix * half * down
        raise SpecInvalid(
            f"{ends:,} adapters do not fit under three tiers of switches with {radix} ports",
            hint=f"plan {max_adapters:,} adapters or fewer, or choose a --switch with more ports",
        )
    each_plane = _smallest_divisor(half, least=pods * half / radix)
    return Fabric(
        tiers=3,
        radix=radix,
        leaves=leaves,
        spines=pods * up,
        cores=up * each_plane,
        down=down,
        up=up,
        pods=pods,
        node_links=ends,
        leaf_links=leaves * up,
        spine_links=pods * up * half,
    )


def _smallest_divisor(whole: int, *, least: float) -> int:
    """Return the smallest divisor of `whole` that is not below `least`, so that links
    are spread evenly."""
    return next(
        divisor
        for divisor in range(1, whole + 1)
        if whole % divisor == 0 and divisor >= least
    )
