"""What a cluster of so many GPUs is built of, what it draws, weighs and emits."""

from dataclasses import dataclass
from math import ceil, isfinite
from typing import Final

from corral.catalog.carbon import region
from corral.catalog.devices import Device, device
from corral.catalog.economics import assumptions
from corral.catalog.equipment import Network, Server, network, rule, server, switch
from corral.catalog.links import link
from corral.domain.errors import NotFound, SpecInvalid
from corral.plan.materials import Bought, Net, Racks, bill_of, nets_of, racks_of, usual
from corral.plan.storage import Storage, plan_storage

HOURS: Final = 8_760.0  # of a year
CLOUDS: Final = {"google": "TPUs", "aws": "Trainium"}
WORLD: Final = "world"
RENTED: Final = ("efa", "dcn")  # networks of clouds
LOAD: Final = "{:.0%} of the greatest power are drawn on the average: --load says another share"
PUE: Final = "the site draws {:g} times what its machines do: --pue says another"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    """What is asked. None, "" and 0 are not said: the catalog's usual value, which the answer
    tells.

    Attributes:
        gpus: How many; whole servers are built.
        gpu: Of which type.
        fabric: What joins the nodes: ib-ndr, roce-400, ...
        switch: Of which the fabric is built, where not of the usual one.
        oversubscription: Ports of a leaf to nodes, against those upwards: 1 blocks nothing.
        rail_only: Join equal places of the nodes only, without spines.
        rack_kw: What a rack may draw.
        load: Share of the greatest power that is drawn on the average.
        pue: Power of the site against that of the machines.
        region: Where its electricity comes from: de, us, world, ...
        carbon: Of the electricity, in kg of CO2 a kWh; goes before the region.
        parameters: Of the largest model that is trained, for its checkpoints.
        save_minutes: Between checkpoints.
        async_saves: Checkpoints are written while the GPUs go on.
        data_mb_per_gpu_s: Training data that a GPU reads.
        read_gb_per_s: Of the storage that there is; 0: as much as is needed.
        write_gb_per_s: The same for writing.
        idle: Share of the time that GPUs may wait for storage.
    """

    gpus: int
    gpu: str
    fabric: str = ""
    switch: str = ""
    oversubscription: float = 1.0
    rail_only: bool = False
    rack_kw: float | None = None
    load: float | None = None
    pue: float | None = None
    region: str = ""
    carbon: float | None = None
    parameters: float | None = None
    save_minutes: float = 30.0
    async_saves: bool = False
    data_mb_per_gpu_s: float | None = None
    read_gb_per_s: float | None = None
    write_gb_per_s: float | None = None
    idle: float = 0.01

    def __post_init__(self) -> None:
        least = {
            name: getattr(self, name)
            for name in ("gpus", "rack_kw", "load", "carbon", "parameters", "save_minutes",
                         "data_mb_per_gpu_s", "read_gb_per_s", "write_gb_per_s")
        }  # fmt: skip
        for name, value in least.items():
            if value is not None and not (value > 0 and isfinite(value)):
                raise SpecInvalid(f"{name} is {value:g}", hint="give a number above 0")
        if self.load is not None and self.load > 1:
            hint = "give a share of the greatest power, for example 0.7"
            raise SpecInvalid(f"a load of {self.load:g}", hint=hint)
        if not 1 <= self.oversubscription <= 16:
            hint = "1 blocks nothing; 2 halves what the halves of the cluster can exchange"
            raise SpecInvalid(f"an oversubscription of {self.oversubscription:g}", hint=hint)
        if self.pue is not None and self.pue < 1:
            raise SpecInvalid(f"a PUE of {self.pue:g}", hint="a site draws what its machines do")
        if not 0 < self.idle < 1:
            raise SpecInvalid(f"an idle share of {self.idle:g}", hint="give a share, as 0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """`gpus` are those of whole servers. Powers in W: of the GPUs alone, of all machines at the
    most, and of these on the average; `site` ones are times the PUE. `liquid_watts`: heat that
    leaves in water."""

    request: ClusterRequest
    gpu: Device
    server: Server
    servers: int
    nodes: int
    gpus: int
    rails: int
    network: Network
    nets: tuple[Net, ...]
    storage: Storage
    bought: tuple[Bought, ...]
    racks: Racks
    gpu_watts: float
    most_watts: float
    liquid_watts: float
    load: float
    pue: float
    carbon_kg_per_kwh: float
    told: tuple[str, ...]

    @property
    def compute(self) -> Net:
        return self.nets[0]

    @property
    def bisection_bytes_per_s(self) -> float:
        """From one half of the GPUs to the other, one way. Inside of one node: by its own links."""
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
    def weight_kg(self) -> float:
        racks = 0 if self.racks.count == 0 else self.racks.count * rule("rack", "weight")
        return sum(line.weight_kg for line in self.bought) + racks


def plan_cluster(request: ClusterRequest) -> ClusterPlan:
    """The bill of materials and what follows from it.

    Raises: NotFound for an unknown GPU, fabric or switch; SpecInvalid for what cannot be built,
    with the nearest that can.
    """
    told: list[str] = []
    known = assumptions()
    gpu = device(request.gpu)
    if gpu.vendor.lower() in CLOUDS:
        kind = CLOUDS[gpu.vendor.lower()]
        raise SpecInvalid(f"{kind} can be rented only", hint="see: corral plan cost")
    built = server(gpu)
    servers = ceil(request.gpus / built.gpus)
    gpus = servers * built.gpus
    if gpus != request.gpus:
        told.append(f"{gpus} GPUs are built, as they come {built.gpus} to a server")
    nodes = gpus // gpu.node_gpus
    net = _network(request, gpu, told)
    rails = max(1, round(gpu.node_gpus * link(net.name).bytes_per_s * 8e-9 / net.adapter_gbps))
    storage = plan_storage(request, gpu, gpus, nodes, told)
    nets = nets_of(request, nodes, rails, net, storage)
    bought = bill_of(built, servers, nets, net, nodes * rails, storage, nodes)
    racks = racks_of(request, built, servers, bought, told)
    most = sum(line.watts for line in bought)
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
        most_watts=most,
        liquid_watts=servers * built.watts * built.liquid_share,
        load=usual(request.load, known["busy_draw"].value, told, LOAD),
        pue=usual(request.pue, known["pue"].value, told, PUE),
        carbon_kg_per_kwh=_carbon(request, told),
        told=tuple(told),
    )


def _carbon(request: ClusterRequest, told: list[str]) -> float:
    if request.carbon is not None:
        return request.carbon
    found = region(request.region or WORLD)
    if not request.region:
        words = f"a kWh emits {found.carbon_g_per_kwh:g} g of CO2, as in the world"
        told.append(f"{words}: --region says where, --carbon how many kg")
    return found.carbon_g_per_kwh / 1e3


def _network(request: ClusterRequest, gpu: Device, told: list[str]) -> Network:
    name = request.fabric or gpu.fabric.name
    if not request.fabric and name.startswith(RENTED):
        name = "roce-100"
    if not request.fabric:
        told.append(f"nodes are joined by {name}: --fabric says another")
    try:
        found = network(name)
    except NotFound as unknown:
        if not name.startswith(RENTED):
            raise
        hint = "build with ib-ndr or roce-400"
        raise SpecInvalid(f"{name} is the network of a cloud", hint=hint) from unknown
    if not request.switch:
        return found
    other = switch(request.switch)
    if not other.ports_of(found.adapter_gbps):
        what = f"{other.title} has no port of {found.adapter_gbps:g} Gb/s"
        raise SpecInvalid(what, hint=f"leave it out for {found.switch.name}")
    return Network(
        name=found.name,
        adapter_gbps=found.adapter_gbps,
        adapter_module_watts=found.adapter_module_watts,
        switch=other,
    )
