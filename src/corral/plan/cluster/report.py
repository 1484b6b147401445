"""The cluster plan as a report."""

from collections.abc import Sequence
from dataclasses import asdict
from math import ceil, log10, prod
from typing import Any, Final

from corral.catalog.economics import Assumption, assumptions
from corral.catalog.equipment import rule
from corral.domain.errors import SpecInvalid
from corral.domain.units import counted, share_text
from corral.plan.cluster.fabric import Fabric, fat_tree
from corral.plan.cluster.materials import Net, net_of
from corral.plan.cluster.plan import ClusterPlan
from corral.plan.cluster.storage import save_idle
from corral.plan.report import (
    Figure,
    FigureSeries,
    PlannerReport,
    ReportFigure,
    ReportTable,
    TableColumn,
    columns,
)
from corral.plan.ticks import number_text

TON_WATTS: Final = 3_517.0  # of refrigeration
POINTS: Final = 30
RATIOS: Final = (1.0, 2.0, 3.0, 4.0)
SPAN: Final = 10.0  # times the write rate, either way, that the figure shows
WIDE: Final = 0.05  # of the time waited for storage, from which on it is warned
FLOOR_KG: Final = 1_200.0  # a m2: what raised floors of data centres usually bear


def report(plan: ClusterPlan) -> PlannerReport:
    tree = plan.compute.fabric
    switches = counted(tree.switches, "switch", "switches")
    joined = f"{switches} in the GPUs' network" if tree.switches else "no switch"
    return PlannerReport(
        title=f"Cluster: {plan.gpus:,} x {plan.gpu.title}",
        verdict=(
            f"{plan.servers:,} x {plan.server.title} in {counted(plan.racks.count, 'rack')}, with "
            f"{joined}. "
            f"Maximum power: {_format_watts(plan.most_watts)}, "
            f"{_format_watts(plan.site_watts)} with cooling; the "
            f"GPUs alone {_format_watts(plan.gpu_watts)}."
        ),
        answers=_answer_figures(plan),
        tables=(
            _materials_table(plan),
            _network_table(plan),
            *_alternative_tables(plan),
            _storage_table(plan),
            _site_table(plan),
        ),
        figures=(_storage_wait_figure(plan),) if plan.nodes > 1 else (),
        assumed=plan.remarks,
        sources=(
            "switches, servers and racks: catalog/data/equipment.csv",
            "counts of switches: NVIDIA DGX SuperPOD reference architectures for H100 and B200",
            "share of the power, PUE: catalog/data/economics.csv",
        ),
        warnings=_warning_texts(plan),
        data=_plan_as_dict(plan),
    )


def _answer_figures(plan: ClusterPlan) -> tuple[ReportFigure, ...]:
    return (
        *_network_figures(plan),
        *_storage_figures(plan),
        ReportFigure(name="racks", value=plan.racks.count),
        *_power_figures(plan),
        ReportFigure(name="weight", value=plan.weight_kg / 1e3, unit="t"),
    )


def _network_figures(plan: ClusterPlan) -> tuple[ReportFigure, ...]:
    """Return figures about the GPUs and nodes, and the network between them."""
    tree = plan.compute.fabric
    return (
        ReportFigure(name="GPUs", value=plan.gpus),
        ReportFigure(name="nodes", value=plan.nodes),
        ReportFigure(
            name="rails",
            value=plan.rails,
            note=f"adapters of {plan.network.adapter_gbps:g} Gb/s in a node",
        ),
        ReportFigure(name="leaf switches", value=tree.leaves),
        ReportFigure(name="spine switches", value=tree.spines),
        ReportFigure(name="core switches", value=tree.cores),
        ReportFigure(name="cables", value=sum(net.fabric.links for net in plan.nets)),
        ReportFigure(
            name="bisection",
            value=plan.bisection_bytes_per_s / 1e12,
            unit="TB/s",
            note=f"in one direction; {share_text(tree.bisection_share)} of what the nodes can send",
        ),
    )


def _storage_figures(plan: ClusterPlan) -> tuple[ReportFigure, ...]:
    return (
        ReportFigure(
            name="storage, read",
            value=plan.storage.need_read,
            unit="GB/s",
            note="needed",
        ),
        ReportFigure(
            name="storage, write",
            value=plan.storage.need_write,
            unit="GB/s",
            note="needed",
        ),
        ReportFigure(
            name="idle for storage",
            value=100 * plan.storage.idle,
            unit="%",
            note="of the GPUs' time, with the planned storage",
        ),
    )


def _power_figures(plan: ClusterPlan) -> tuple[ReportFigure, ...]:
    """Return figures about power, and about a year's energy, carbon and cost."""
    request = plan.request
    cooled = _default_assumptions(pue=request.pue)
    drawn = _default_assumptions(pue=request.pue, busy_draw=request.load)
    return (
        ReportFigure(name="GPU power", value=plan.gpu_watts / 1e3, unit="kW"),
        ReportFigure(
            name="machine power",
            value=plan.most_watts / 1e3,
            unit="kW",
            note="maximum",
        ),
        _figure_with_range(
            "site power", plan.site_watts / 1e3, "kW", cooled, note="to be provided"
        ),
        _figure_with_range("energy", plan.year_kwh / 1e3, "MWh a year", drawn),
        _figure_with_range("carbon", plan.year_carbon_kg / 1e3, "t CO2 a year", drawn),
        _figure_with_range(
            "electricity",
            plan.year_usd,
            "USD a year",
            [*drawn, plan.kwh],
            note=f"at {plan.kwh.value:g} USD a kWh",
        ),
    )


def _default_assumptions(**said: float | None) -> list[Assumption]:
    """Return the catalog's assumptions for those names whose value in the request is
    None."""
    return [assumptions()[name] for name, value in said.items() if value is None]


def _figure_with_range(
    name: str, value: float, unit: str, of: Sequence[Assumption], *, note: str = ""
) -> ReportFigure:
    """Return a value as a figure. It is a product of the assumptions in `of`: its range
    is from all of them at their low value to all at their high."""
    if all(assumption.is_known for assumption in of):
        return ReportFigure(name=name, value=value, unit=unit, note=note)
    low_value, high_value = (
        value
        * prod(getattr(assumption, bound_name) / assumption.value for assumption in of)
        for bound_name in ("low", "high")
    )
    return ReportFigure(
        name=name, value=value, unit=unit, low=low_value, high=high_value, note=note
    )


def _materials_table(plan: ClusterPlan) -> ReportTable:
    rows = tuple(
        (
            line.what,
            line.count,
            line.note,
            line.watts / 1e3,
            line.units or None,
            line.weight_kg,
        )
        for line in plan.bought
    )
    return ReportTable(
        title="Bill of materials",
        columns=columns(
            "what", "count", "for", ("power", "kW"), ("space", "U"), ("weight", "kg")
        ),
        rows=rows,
        note="Lengths of cables depend on the building and are not planned. Power is the maximum.",
    )


def _network_table(plan: ClusterPlan) -> ReportTable:
    def row(net: Net) -> tuple[str | int | float, ...]:
        tree = net.fabric
        return (
            net.name,
            net.switch.title,
            tree.tiers,
            tree.leaves,
            tree.spines,
            tree.cores,
            tree.node_links,
            tree.leaf_links,
            tree.spine_links,
            100 * tree.bisection_share,
        )

    return ReportTable(
        title="Networks",
        columns=columns(
            "network",
            "switch",
            "tiers",
            "leaves",
            "spines",
            "cores",
            "node cables",
            "leaf-spine cables",
            "spine-core cables",
            ("bisection", "%"),
        ),
        rows=tuple(row(net) for net in plan.nets),
    )


def _alternative_tables(plan: ClusterPlan) -> tuple[ReportTable, ...]:
    """Return a table of the GPUs' network at other oversubscriptions, and as separate
    rails if that is possible."""
    if plan.compute.fabric.tiers < 2 and not plan.request.rail_only:
        return ()
    radix = plan.compute.fabric.radix
    rows = []
    for ratio in RATIOS:
        try:
            tree = fat_tree(plan.nodes, plan.rails, radix, oversubscription=ratio)
        except SpecInvalid:
            continue
        rows.append(_fabric_row(plan, f"{ratio:g} to 1", tree))
    if plan.nodes <= radix:
        alone = fat_tree(plan.nodes, plan.rails, radix, rail_only=True)
        rows.append(_fabric_row(plan, "rails only", alone))
    return (
        ReportTable(
            title="Other networks of the GPUs",
            columns=columns(
                "oversubscription",
                "tiers",
                "switches",
                "cables",
                ("power", "kW"),
                ("bisection", "TB/s"),
            ),
            rows=tuple(rows),
            note="Rails only: data between different positions of two nodes also goes through "
            "the links inside of a node.",
        ),
    )


def _fabric_row(
    plan: ClusterPlan, name: str, tree: Fabric
) -> tuple[str | int | float, ...]:
    net = net_of(
        plan.compute.name, plan.network.switch, plan.network.adapter_gbps, tree
    )
    half = plan.nodes * plan.rails * plan.network.adapter_gbps / 16
    return (
        name,
        tree.tiers,
        tree.switches,
        tree.links,
        net.watts / 1e3,
        half * tree.bisection_share / 1e3,
    )


def _storage_table(plan: ClusterPlan) -> ReportTable:
    storage = plan.storage
    interval_minutes = storage.interval_seconds / 60
    return ReportTable(
        title="Storage",
        columns=columns("what", "value", "unit"),
        rows=(
            ("size of a checkpoint", storage.checkpoint_bytes / 1e9, "GB"),
            ("time between checkpoints", interval_minutes, "min"),
            ("time to write a checkpoint", storage.save_seconds, "s"),
            ("time to read a checkpoint", storage.load_seconds, "s"),
            ("data that all GPUs read", storage.data_gb_per_s, "GB/s"),
            ("read, needed", storage.need_read, "GB/s"),
            ("read, available", storage.read, "GB/s"),
            ("write, needed", storage.need_write, "GB/s"),
            ("write, available", storage.write, "GB/s"),
            ("GPUs wait for checkpoints", 100 * storage.save_idle, "%"),
            ("GPUs wait for data", 100 * storage.data_idle, "%"),
            ("GPUs lost by waiting", storage.idle * plan.gpus, "GPUs"),
        ),
        note="Checkpoints are written in the background."
        if storage.async_saves
        else "Training stops while a checkpoint is written.",
    )


def _site_table(plan: ClusterPlan) -> ReportTable:
    """Return a table of what the site must provide. Heat equals the power of the
    machines; the heat capacities of air and water determine the flows that carry it
    away."""
    water_watts = plan.liquid_watts
    air_watts = plan.most_watts - water_watts
    air = air_watts / 1e3 / rule("air", "heat") / rule("air", "warmer") * 3_600
    water = water_watts / 1e3 / rule("water", "heat") / rule("water", "warmer") * 60_000
    racks = plan.racks
    return ReportTable(
        title="Site",
        columns=columns("what", "value", "unit"),
        rows=(
            ("racks with servers", racks.servers, "racks"),
            ("racks with switches, storage and heads", racks.others, "racks"),
            ("servers in a full rack", racks.each, "servers"),
            ("power of a rack of servers", racks.most_watts / 1e3, "kW"),
            ("weight of the heaviest rack", racks.heaviest_kg, "kg"),
            ("load on the floor below it", _floor_load(plan), "kg/m2"),
            ("floor below the racks", racks.count * rule("rack", "area"), "m2"),
            ("maximum power of all machines", plan.most_watts / 1e3, "kW"),
            ("average power of all machines", plan.mean_watts / 1e3, "kW"),
            ("maximum power with cooling and losses", plan.site_watts / 1e3, "kW"),
            ("cooling", plan.most_watts / TON_WATTS, "tons of refrigeration"),
            ("air through the machines", air, "m3/h"),
            ("water through the racks", water, "l/min"),
        ),
    )


def _floor_load(plan: ClusterPlan) -> float:
    return plan.racks.heaviest_kg / rule("rack", "area")


def _storage_wait_figure(plan: ClusterPlan) -> Figure:
    """Return a figure of the share of time that GPUs wait for checkpoints, over the
    write rate of the storage."""
    storage = plan.storage
    middle = log10(storage.write)
    points = []
    for step in range(POINTS + 1):
        rate = 10 ** (middle + log10(SPAN) * (2 * step / POINTS - 1))
        seconds = storage.checkpoint_bytes / 1e9 / rate
        share = save_idle(
            seconds, storage.interval_seconds, async_saves=storage.async_saves
        )
        points.append((rate, 100 * share))
    return Figure(
        title="GPUs waiting for checkpoints",
        x=TableColumn(name="write rate of the storage", unit="GB/s"),
        y=TableColumn(name="share of the time", unit="%"),
        series=(FigureSeries(name="idle", points=tuple(points)),),
        x_is_log=True,
    )


def _warning_texts(plan: ClusterPlan) -> tuple[str, ...]:
    warning_list = []
    storage = plan.storage
    if storage.idle > WIDE:
        worth = counted(ceil(storage.idle * plan.gpus), "GPU")
        warning_list.append(
            f"GPUs wait {share_text(storage.idle)} of the time for storage, which is a loss "
            f"of {worth}. "
            f"The storage should read {storage.need_read:,.0f} GB/s and write "
            f"{storage.need_write:,.0f} GB/s."
        )
    if plan.request.rail_only and plan.nodes > 1:
        warning_list.append(
            "GPUs of different rails communicate only through the links inside of a node."
        )
    if plan.liquid_watts:
        warning_list.append(
            f"Racks of {plan.racks.most_watts / 1e3:.0f} kW require water cooling at the rack."
        )
    if _floor_load(plan) > FLOOR_KG:
        warning_list.append(
            f"The heaviest rack loads the floor with {_floor_load(plan):,.0f} kg per m2; raised "
            f"floors usually bear {FLOOR_KG:,.0f} kg per m2."
        )
    return tuple(warning_list)


def _plan_as_dict(plan: ClusterPlan) -> dict[str, Any]:
    return {
        "request": asdict(plan.request),
        "gpu": plan.gpu.name,
        "gpus": plan.gpus,
        "nodes": plan.nodes,
        "server": plan.server.name,
        "rails": plan.rails,
        "fabric": plan.network.name,
        "networks": {
            net.name: asdict(net.fabric)
            | {"switch": net.switch.name, "modules": net.modules, "watts": net.watts}
            for net in plan.nets
        },
        "bought": [asdict(line) for line in plan.bought],
        "racks": asdict(plan.racks) | {"count": plan.racks.count},
        "bisection_bytes_per_s": plan.bisection_bytes_per_s,
        "storage": asdict(plan.storage) | {"idle": plan.storage.idle},
        "gpu_watts": plan.gpu_watts,
        "most_watts": plan.most_watts,
        "mean_watts": plan.mean_watts,
        "site_watts": plan.site_watts,
        "year_kwh": plan.year_kwh,
        "year_carbon_kg": plan.year_carbon_kg,
        "year_usd": plan.year_usd,
        "weight_kg": plan.weight_kg,
    }


def _format_watts(watts: float) -> str:
    large = watts >= 1e6
    return f"{number_text(watts / (1e6 if large else 1e3))} {'MW' if large else 'kW'}"
