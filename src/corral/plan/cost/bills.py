"""Cost of GPUs over years: owned, rented on demand, reserved and spot; and the
break-even points.

All amounts are present values of the monthly payments at the cost of capital, in USD.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Final

from corral.catalog.devices import device
from corral.catalog.economics import Assumption, assume
from corral.catalog.prices import PriceList as Market
from corral.catalog.prices import prices
from corral.domain.errors import SpecInvalid
from corral.plan.bounds import GPUS, NODE_GPUS, Gpus, NumberBound, check
from corral.plan.cost.market import electricity, of_market

MONTH_HOURS: Final = 8_760 / 12
RENTS: Final = ("on demand", "reserved", "spot")
YEARS: Final = NumberBound(0.08, 20, hint="give 0.08, a month, to 20 years")
USED: Final = NumberBound(
    0.001, 1, hint="give a share of all hours above 0, for example 0.7 for 70 % of them"
)
TERABYTES: Final = NumberBound(0, 1e9)
BUDGET: Final = NumberBound(1, 1e13)
YEAR_HOURS: Final = 8_784.0  # of the longest


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRequest:
    """GPUs for some years, bought or rented.

    Attributes:
        gpus: Number of GPUs.
        gpu: Type of GPU.
        years: Number of years.
        utilisation: Share of all hours in which the GPUs are used, the same for owning
            and renting.
        node_gpus: GPUs of a node; the default depends on the type of GPU.
        storage_tb: Storage for the GPUs, in TB.
        egress_tb_month: Data that leaves a cloud each month, in TB.
        budget_usd: Budget in USD. It replaces the number of GPUs, or is given in
            addition to it.
        demand: Pairs of GPUs and the hours of a year in which they are used, for the
            best mix of owned and rented GPUs.
        assume: Numbers that replace those of catalog/data/economics.csv, by name.
        cloud: Cloud to rent from; the default is the median of all clouds.
        region: Region of the GPUs, for the price of electricity.
    """

    gpus: Gpus
    gpu: str = "h100-sxm"
    years: Annotated[float, YEARS] = 3.0
    utilisation: Annotated[float, USED] = 0.7
    node_gpus: Annotated[int | None, NODE_GPUS] = None
    storage_tb: Annotated[float | None, TERABYTES] = None
    egress_tb_month: Annotated[float, TERABYTES] = 0.0
    budget_usd: Annotated[float | None, BUDGET] = None
    demand: tuple[tuple[float, float], ...] = ()
    assume: Mapping[str, float] = field(default_factory=dict)
    cloud: str = ""
    region: str = ""

    def __post_init__(self) -> None:
        check(self)
        check_demand(self.demand)


def check_demand(demand: Sequence[tuple[float, float]]) -> None:
    """Check the demand curve of a request.

    Raises: SpecInvalid for impossible numbers of GPUs or hours of a year.
    """
    if not all(0 <= number <= GPUS.most for pair in demand for number in pair):
        hint = f"give GPUS:HOURS from 0 to {GPUS.most:,.0f} each, for example 64:1000"
        raise SpecInvalid("--demand contains a number that is not allowed", hint=hint)
    if (hours := sum(hours for _, hours in demand)) > YEAR_HOURS:
        raise SpecInvalid(
            f"--demand contains {hours:g} hours, more than a year has",
            hint=f"give hours of one year, at most {YEAR_HOURS:,.0f} in all",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """A line of a bill. `once` is paid at the start, and `monthly` each month; `usd` is
    the present value of both. Money that is returned is negative."""

    name: str
    once: float = 0.0
    monthly: float = 0.0
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    lines: tuple[BillLine, ...]

    @property
    def usd(self) -> float:
        return sum(line.usd for line in self.lines)

    @property
    def spent(self) -> float:
        """Return the present value of the bill without the money that is returned at
        the end."""
        return sum(max(0.0, line.usd) for line in self.lines)

    @property
    def once(self) -> float:
        """Return the payment at the start."""
        return sum(line.once for line in self.lines)


@dataclass(frozen=True)
class PriceAssumptions:
    """Prices under one set of assumptions, with methods that compute bills for any
    number of GPUs. `of` has the assumptions by name."""

    of: Mapping[str, float]
    months: int
    watts: float  # rated, of one GPU
    node_gpus: int
    storage_tb_per_gpu: float
    egress_tb_month: float

    @cached_property
    def worth(self) -> float:
        """Return the present value of one USD that is paid at the end of each month."""
        return sum(self.discount(month) for month in range(1, self.months + 1))

    @cached_property
    def falling(self) -> float:
        """Return the present value of a monthly rent that is one USD in the first month
        and then falls with the market price."""
        price_share = 1 - self.of["price_fall"]
        months = range(1, self.months + 1)
        return sum(
            float(price_share ** ((month - 1) / 12)) * self.discount(month)
            for month in months
        )

    def discount(self, month: int) -> float:
        """Return the present value of a USD at the end of that month."""
        return float((1 + self.of["capital"]) ** (-month / 12))

    def own(self, gpus: float, used: float) -> Bill:
        """Return the bill of owned GPUs; `used` is the share of the hours in which they
        are used."""
        if gpus <= 0:
            return Bill(lines=())
        of = self.of
        servers = gpus * of["server_per_gpu"]
        network = servers * of["network_share"]
        storage = gpus * self.storage_tb_per_gpu * of["storage_per_tb"]
        spares = servers * of["spare_share"]
        hardware = servers + network + storage + spares
        kw = gpus * self.watts * of["node_watts"] / 1_000
        draw = used * of["busy_draw"] + (1 - used) * of["idle_draw"]
        lines = [
            self._one_time_line("servers", servers),
            self._one_time_line("network", network),
            self._one_time_line("storage", storage),
            self._one_time_line("spares", spares),
            self._one_time_line("installation", servers * of["install_share"]),
            self._monthly_line(
                "power", kw * draw * of["pue"] * MONTH_HOURS * of["kwh"]
            ),
            self._monthly_line("space", kw * of["space_kw_month"]),
            self._monthly_line("people", self._monthly_people_usd(gpus)),
            self._monthly_line("support", hardware * of["support_share"] / 12),
            self._monthly_line("software licences", gpus * of["software_per_gpu"] / 12),
            self._monthly_line("insurance and line", hardware * of["other_share"] / 12),
        ]
        residual = hardware * of["yearly_value"] ** (self.months / 12)
        residual_line = BillLine(
            name="residual value", usd=-residual * self.discount(self.months)
        )
        return Bill(lines=(*lines, residual_line))

    def rent(self, gpus: float, used: float, kind: str) -> Bill:
        """Return the bill of rented GPUs; `used` is the share of the hours in which
        they are used. Reserved GPUs are paid for all hours."""
        of, hours = self.of, gpus * MONTH_HOURS
        price = of["on_demand"]
        if kind == "reserved":
            rent = self._monthly_line(
                "rent", hours * price * (1 - of["reserved_discount"])
            )
        else:
            if kind == "spot":
                price *= (1 - of["spot_discount"]) / (1 - of["spot_lost"])
            first_month_usd = hours * used * price
            rent = BillLine(
                name="rent", monthly=first_month_usd, usd=first_month_usd * self.falling
            )
        storage = gpus * self.storage_tb_per_gpu * of["cloud_storage"]
        return Bill(
            lines=(
                rent,
                self._monthly_line("storage", storage),
                self._monthly_line("egress", self.egress_tb_month * of["egress"]),
                self._monthly_line(
                    "people", self._monthly_people_usd(gpus) * of["cloud_people"]
                ),
            )
        )

    def mix(
        self, owned: float, demand: Sequence[tuple[float, float]], kind: str
    ) -> Bill:
        """Return the bill of `owned` GPUs for a demand of (GPUs, share of the hours),
        with rented GPUs for the rest. Costs of storage, egress and staff count for
        owned and rented GPUs in proportion to their work."""
        of = self.of
        work = sum(gpus * share for gpus, share in demand)
        own_work = sum(min(gpus, owned) * share for gpus, share in demand)
        rented = work - own_work  # on the average
        bill = self.own(owned, own_work / owned if owned else 0.0)
        rent = self.rent(rented, 1.0, kind)
        rented_share = rented / work if work else 0.0
        people = of["engineers_per_gpu"] * (owned + of["cloud_people"] * rented)
        people += of["engineers_least"] * (1.0 if owned else of["cloud_people"])
        lines = [line for line in bill.lines if line.name != "people"]
        peak = max(0.0, max(gpus for gpus, _ in demand) - owned)
        stored_cost = peak * self.storage_tb_per_gpu * of["cloud_storage"]
        egress_usd = self.egress_tb_month * of["egress"] * rented_share
        lines += [
            *(
                replace(line, name="rented GPUs")
                for line in rent.lines
                if line.name == "rent"
            ),
            self._monthly_line("rented storage", stored_cost),
            self._monthly_line("egress", egress_usd),
        ]
        lines.append(self._monthly_line("people", people * of["engineer"] / 12))
        return Bill(lines=tuple(lines))

    def _monthly_people_usd(self, gpus: float) -> float:
        if gpus <= 0:
            return 0.0
        people = self.of["engineers_least"] + self.of["engineers_per_gpu"] * gpus
        return people * self.of["engineer"] / 12

    def _one_time_line(self, name: str, usd: float) -> BillLine:
        return BillLine(name=name, once=usd, usd=usd)

    def _monthly_line(self, name: str, usd: float) -> BillLine:
        return BillLine(name=name, monthly=usd, usd=usd * self.worth)

    def hours(self, gpus: float, used: float) -> float:
        """Return the used GPU-hours over the years, discounted to the present. A price
        per GPU-hour times this number equals the bill."""
        return gpus * used * MONTH_HOURS * self.worth

    def even_use(self, gpus: float, kind: str) -> float | None:
        """Return the lowest use, as a share of the hours, at which owning costs no more
        than renting; None if it costs more even at all hours. Both costs are linear in
        the share."""
        idle, full_use_usd = (
            self.own(gpus, use_share).usd - self.rent(gpus, use_share, kind).usd
            for use_share in (0.0, 1.0)
        )
        if full_use_usd > 0:
            return None
        return 0.0 if idle <= 0 else idle / (idle - full_use_usd)

    def even_month(self, gpus: float, used: float, kind: str) -> int | None:
        """Return the first month by whose end the rent has cost as much as the owned
        GPUs, which the owner still has then; None if that is not within the years."""
        bill = self.own(gpus, used)
        paid_own, paid_rent = bill.once, 0.0
        running = sum(line.monthly for line in bill.lines)
        rent = {line.name: line.monthly for line in self.rent(gpus, used, kind).lines}
        fall = 0.0 if kind == "reserved" else self.of["price_fall"]
        for month in range(1, self.months + 1):
            paid_own += running
            month_rent_usd = rent["rent"] * (1 - fall) ** ((month - 1) / 12)
            paid_rent += month_rent_usd + sum(
                usd for name, usd in rent.items() if name != "rent"
            )
            if paid_rent >= paid_own:
                return month
        return None


def prices_of(request: CostRequest, values: Mapping[str, float]) -> PriceAssumptions:
    """Return the bills for the request under these assumptions.

    Raises: NotFound for an unknown GPU.
    """
    gpu_device = device(request.gpu)
    storage = request.storage_tb
    return PriceAssumptions(
        of=values,
        months=max(1, round(12 * request.years)),
        watts=gpu_device.tdp_watts,
        node_gpus=request.node_gpus or gpu_device.node_gpus,
        storage_tb_per_gpu=(
            values["storage_tb_per_gpu"] if storage is None else storage / request.gpus
        ),
        egress_tb_month=request.egress_tb_month,
    )


def assumed(
    request: CostRequest, market: Market | None = None
) -> dict[str, Assumption]:
    """Return all assumptions. A value comes from the request, else from the price list
    (by default that of the catalog) and the region, else it is the usual one.

    Raises: NotFound, SpecInvalid for an unknown or impossible value.
    """
    listed = of_market(
        request.gpu, market or prices(), years=request.years, cloud=request.cloud
    )
    if request.region and "kwh" not in request.assume:
        listed["kwh"] = electricity(request.region)
    return assume(request.assume, listed)


def values_of(known: Mapping[str, Assumption]) -> dict[str, float]:
    return {name: assumption.value for name, assumption in known.items()}
