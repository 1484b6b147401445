"""Plan of a cluster: its parts, power, weight and emissions."""

from dataclasses import dataclass
from math import ceil
from typing import Annotated, Final

from corral.catalog.carbon import region, usual_pue
from corral.catalog.devices import Device, device
from corral.catalog.economics import Assumption, assume, assumptions
from corral.catalog.equipment import (
    NetworkKit,
    ServerKit,
    network,
    networks,
    rule,
    server,
    switch,
)
from corral.catalog.links import link
from corral.domain.errors import NotFound, SpecInvalid
from corral.domain.units import counted
from corral.plan.bounds import ABOVE, PARAMETERS, Above, Gpus, NumberBound, check
from corral.plan.cluster.materials import (
    MaterialLine,
    Net,
    Racks,
    bill_of,
    nets_of,
    racks_of,
    usual,
)
from corral.plan.cluster.storage import Storage, plan_storage
from corral.plan.cost.market import electricity, rented_only
from corral.plan.parse.fabrics import fabric_said

HOURS: Final = 8_760.0  # of a year
WORLD: Final = "world"
RENTED: Final = ("efa", "dcn")  # networks of clouds
BLOCKING: Final = NumberBound(
    1,
    16,
    hint="give a ratio from 1, which is non-blocking, to 16, for example 2",
)
DRAWN: Final = NumberBound(
    0.001, 1, hint="give a share of the maximum power, for example 0.7"
)
SITE: Final = NumberBound(
    1, 10, hint="give power of the site over power of its machines, from 1 to 10"
)
CARBON: Final = NumberBound(
    0, 10, hint="give kg of CO2 per kWh, from 0 to 10, for example 0.35"
)
PRICE: Final = NumberBound(
    0, 10, hint="give USD per kWh, from 0 to 10, for example 0.12"
)
WAITING: Final = NumberBound(
    1e-6, 0.99, hint="give a share of the time, for example 0.01"
)
LOAD: Final = "the average power is {:g} of the maximum power; change it with --load"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    """Request for a cluster plan. None, "" and 0 mean not given; the catalog's usual
    value then applies, and the answer names it.

    Attributes:
        gpus: Number of GPUs; it is rounded up to whole servers.
        gpu: Type of GPU.
        fabric: Network between the nodes: ib-ndr, roce-400, ...
        switch: Type of switch of the fabric; the default is the usual one.
        oversubscription: Ports of a leaf switch to nodes, divided by its ports to
            spines: 1 is non-blocking, 2 halves the bisection bandwidth.
        rail_only: Build no spine switches: each leaf switch connects only the GPUs at
            the same position of all nodes (a rail).
        rack_kw: Maximum power of a rack, in kW.
        load: Average power of the machines, as a share of their maximum power.
        pue: PUE: power of the whole site, divided by the power of the machines.
        region: Region that the electricity comes from: de, us, world, ...
        carbon: Emissions of the electricity, in kg of CO2 per kWh; overrides the region.
        kwh: Price of the electricity, in USD per kWh; overrides the region.
        parameters: Number of parameters of the largest model to train; it determines
            the size of a checkpoint.
        save_minutes: Minutes between checkpoints.
        async_saves: Write checkpoints while the GPUs continue.
        data_mb_per_gpu_s: Training data that each GPU reads, in MB/s.
        read_gb_per_s: Read rate of the existing storage, in GB/s; the default is what
            is needed.
        write_gb_per_s: Write rate of the existing storage, in GB/s; the default is what
            is needed.
        idle: Maximum share of the time that GPUs may wait for storage.
    """

    gpus: Gpus
    gpu: str
    fabric: str = ""
    switch: str = ""
    oversubscription: Annotated[float, BLOCKING] = 1.0
    rail_only: bool = False
    rack_kw: Above = None
    load: Annotated[float | None, DRAWN] = None
    pue: Annotated[float | None, SITE] = None
    region: str = ""
    carbon: Annotated[float | None, CARBON] = None
    kwh: Annotated[float | None, PRICE] = None
    parameters: Annotated[float | None, PARAMETERS] = None
    save_minutes: Annotated[float, ABOVE] = 30.0
    async_saves: bool = False
    data_mb_per_gpu_s: Above = None
    read_gb_per_s: Above = None
    write_gb_per_s: Above = None
    idle: Annotated[float, WAITING] = 0.01

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Plan of a cluster. `gpus` is the requested number, rounded up to whole servers.
    The powers in W are those of the GPUs alone, the maximum of all machines, and their
    average; names with `site` include the PUE. `liquid_watts`: heat that is carried
    away by water. `kwh`: price of one kWh, in USD."""

    request: ClusterRequest
    gpu: Device
    server: ServerKit
    servers: int
    nodes: int
    gpus: int
    rails: int
    network: NetworkKit
    nets: tuple[Net, ...]
    storage: Storage
    bought: tuple[MaterialLine, ...]
    racks: Racks
    gpu_watts: float
    most_watts: float
    liquid_watts: float
    load: float
    pue: float
    carbon_kg_per_kwh: float
    kwh: Assumption
    remarks: tuple[str, ...]

    @property
    def compute(self) -> Net:
        return self.nets[0]

    @property
    def bisection_bytes_per_s(self) -> float:
        """Return the bandwidth from one half of the GPUs to the other half, in one
        direction. For a single node it is that of the links inside the node."""
        if self.nodes == 1:
            return self.gpus / 2 * self.gpu.scale_up.bytes_per_s
        rate = self.nodes * self.rails * self.network.adapter_gbps * 1e9 / 8
        return rate / 2 * self.compute.fabric.bisection_share

    @property
    def mean_watts(self) -> float:
        return self.most_watts * self.load

    @property
    def site_watts(self) -> float:
        return self.most_watts * self.pue

    @property
    def year_kwh(self) -> float:
        return self.mean_watts * self.pue * HOURS / 1e3

    @property
    def year_carbon_kg(self) -> float:
        return self.year_kwh * self.carbon_kg_per_kwh

    @property
    def year_usd(self) -> float:
        """Return the cost of a year's electricity, in USD."""
        return self.year_kwh * self.kwh.value

    @property
    def weight_kg(self) -> float:
        racks = (
            0 if self.racks.count == 0 else self.racks.count * rule("rack", "weight")
        )
        return sum(line.weight_kg for line in self.bought) + racks


def plan_cluster(request: ClusterRequest) -> ClusterPlan:
    """Return the bill of materials, and the figures that follow from it.

    Raises: NotFound for an unknown GPU, fabric or switch; SpecInvalid for a cluster
    that cannot be built, with the nearest one that can.
    """
    remarks: list[str] = []
    known_assumptions = assumptions()
    gpu = device(request.gpu)
    if kind := rented_only(gpu):
        hint = f"run: corral plan prices {gpu.name}"
        raise SpecInvalid(f"{kind} can only be rented", hint=hint)
    built = server(gpu)
    servers = ceil(request.gpus / built.gpus)
    gpus = servers * built.gpus
    if gpus != request.gpus:
        remarks.append(
            f"{counted(gpus, 'GPU')} are planned: whole servers of {built.gpus}"
        )
    nodes = gpus // gpu.node_gpus
    net = _select_network(request, gpu, remarks)
    rails = max(
        1, round(gpu.node_gpus * link(net.name).bytes_per_s * 8e-9 / net.adapter_gbps)
    )
    storage = plan_storage(request, gpu, gpus, nodes, remarks)
    nets = nets_of(request, nodes, rails, net, storage)
    if (planes := nets[0].fabric.planes) > 1:
        remarks.append(
            f"the network has {planes} planes, one for each rail; only links inside of nodes "
            "connect them"
        )
    bought = bill_of(built, servers, nets, net, nodes * rails, storage, nodes)
    racks = racks_of(request, built, servers, bought, remarks)
    max_watts = sum(line.watts for line in bought)
    return ClusterPlan(
        request=request,
        gpu=gpu,
        server=built,
        servers=servers,
        nodes=nodes,
        gpus=gpus,
        rails=rails,
        network=net,
        nets=nets,
        storage=storage,
        bought=bought,
        racks=racks,
        gpu_watts=gpus * gpu.tdp_watts,
        most_watts=max_watts,
        liquid_watts=servers * built.watts * built.liquid_share,
        load=usual(request.load, known_assumptions["busy_draw"].value, remarks, LOAD),
        pue=usual(request.pue, known_assumptions["pue"].value, remarks, _pue_remark()),
        carbon_kg_per_kwh=_carbon_intensity(request, remarks),
        kwh=_electricity(request, remarks),
        remarks=tuple(remarks),
    )


def _pue_remark() -> str:
    kinds = "; ".join(f"{title}: {pue:g}" for title, pue in usual_pue().items())
    return f"the PUE of the site is {{:g}}; change it with --pue ({kinds})"


def _electricity(request: ClusterRequest, remarks: list[str]) -> Assumption:
    """Return the price of a kWh: that of the request, else that of the region, else the
    usual one, which is noted in `remarks`."""
    if request.kwh is not None:
        return assume({"kwh": request.kwh})["kwh"]
    if request.region and region(request.region).electricity_usd_per_kwh is not None:
        return electricity(request.region)
    usual_one = assumptions()["kwh"]
    remarks.append(f"a kWh costs {usual_one.value:g} USD; change it with --kwh")
    return usual_one


def _carbon_intensity(request: ClusterRequest, remarks: list[str]) -> float:
    if request.carbon is not None:
        return request.carbon
    carbon_region = region(request.region or WORLD)
    if not request.region:
        carbon_remark = (
            f"a kWh emits {carbon_region.carbon_g_per_kwh:g} g of CO2 (world average)"
        )
        remarks.append(f"{carbon_remark}; change it with --region or --carbon")
    return carbon_region.carbon_g_per_kwh / 1e3


def _select_network(
    request: ClusterRequest, gpu: Device, remarks: list[str]
) -> NetworkKit:
    link_kind = fabric_said(request.fabric, gpu) if request.fabric else gpu.fabric
    name = link_kind.name
    if link_kind.bytes_per_s != link(name).bytes_per_s:
        complaint = f"no known adapter has {link_kind.bytes_per_s * 8e-9:g} Gb/s"
        raise SpecInvalid(
            complaint, hint=f"set --fabric to one of {', '.join(networks())}"
        )
    if not request.fabric and name.startswith(RENTED):
        name = "roce-100"
    if not request.fabric:
        remarks.append(f"the network between nodes is {name}; change it with --fabric")
    try:
        network_kit = network(name)
    except NotFound as unknown:
        if not name.startswith(RENTED):
            raise
        hint = f"set --fabric to one of {', '.join(networks())}"
        raise SpecInvalid(
            f"{name} is the network of a cloud and cannot be bought", hint=hint
        ) from unknown
    if not request.switch:
        return network_kit
    chosen_switch = switch(request.switch)
    if not chosen_switch.ports_of(network_kit.adapter_gbps):
        complaint = (
            f"{chosen_switch.title} has no port of {network_kit.adapter_gbps:g} Gb/s"
        )
        raise SpecInvalid(
            complaint, hint=f"leave out --switch to use {network_kit.switch.name}"
        )
    return NetworkKit(
        name=network_kit.name,
        adapter_gbps=network_kit.adapter_gbps,
        adapter_module_watts=network_kit.adapter_module_watts,
        switch=chosen_switch,
    )
