"""The command plan cost: whether to own or rent GPUs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.option_types import (
    Assignment,
    Cloud,
    Demand,
    Fraction,
    GpuType,
    Money,
    Region,
    Terabytes,
    WholeNumber,
    Years,
)
from corral.cli.planner.number_lists import named_numbers, number_pairs
from corral.cli.planner.output import Out

if TYPE_CHECKING:
    from corral.plan.cost.bills import CostRequest

USUAL_GPUS = 8
USUAL_USE = 0.7
_LIST = Parameter(consume_multiple=True, negative="")


def cost(
    *,
    gpus: WholeNumber | None = None,
    gpu: GpuType = "h100-sxm",
    years: Years = 3.0,
    utilisation: Fraction | None = None,
    node_gpus: WholeNumber | None = None,
    storage_tb: Terabytes | None = None,
    egress_tb_month: Terabytes = 0.0,
    budget_usd: Money | None = None,
    demand: Annotated[list[Demand] | None, _LIST] = None,
    assume: Annotated[list[Assignment] | None, _LIST] = None,
    cloud: Cloud = "",
    region: Region = "",
    prices: Path | None = None,
    out: Out | None = None,
) -> None:
    """Compute the cost of GPUs over years, owned or rented, and the break-even.

    Every assumption is listed and can be replaced by name: --assume pue=1.3 kwh=0.12

    Args:
        gpus: Number of GPUs (default: 8, or the peak of --demand).
        gpu: Type of GPU.
        years: Number of years for which the cost is computed.
        utilisation: Share of all hours in which the GPUs are used (default: 0.7, or the
            share that follows from --demand).
        node_gpus: GPUs of a node (default: the usual number).
        storage_tb: Shared storage in TB (default: the usual amount).
        egress_tb_month: Terabytes that leave a cloud each month.
        budget_usd: Budget in USD: compute how many GPUs can be bought or rented with it.
        demand: Expected use as GPUS:HOURS, the hours of a year in which this number of
            GPUs is used: compute the best mix of owned and rented GPUs.
        assume: Assumptions to replace, as NAME=NUMBER: corral plan catalog economics.
        cloud: Cloud to rent from (default: the median of all clouds).
        region: Region for the price of electricity: us-tx, fi, ie, ...
        prices: File with your own price list; see corral plan prices --help.
    """
    from corral.plan.cost.bills import CostRequest
    from corral.plan.cost.hybrid import peak_and_use

    demand_pairs = number_pairs(demand or (), "--demand")
    peak_gpus, use = (
        peak_and_use(demand_pairs) if demand_pairs else (USUAL_GPUS, USUAL_USE)
    )
    request = CostRequest(
        gpus=peak_gpus if gpus is None else gpus,
        gpu=gpu,
        years=years,
        utilisation=use if utilisation is None else utilisation,
        node_gpus=node_gpus,
        storage_tb=storage_tb,
        egress_tb_month=egress_tb_month,
        budget_usd=budget_usd,
        demand=demand_pairs,
        assume=named_numbers(assume or (), "--assume"),
        cloud=cloud,
        region=region,
    )
    _show_cost(request, prices, out or Out())


def _show_cost(request: "CostRequest", prices: Path | None, out: Out) -> None:
    from corral.cli.planner.prices import read_prices_of
    from corral.plan.cost.plan import cost as found_of
    from corral.plan.cost.report import report

    report_output = out.apart_from(prices)
    report_output.show(report(found_of(request, read_prices_of(prices))))
