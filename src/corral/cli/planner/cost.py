"""plan cost: own or rent."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from corral.cli.planner.output import Out
from corral.cli.planner.words import named_numbers, number_pairs

_LIST = Parameter(consume_multiple=True, negative="")


def cost(
    *,
    gpus: int = 8,
    gpu: str = "h100-sxm",
    years: float = 3.0,
    utilisation: float = 0.7,
    node_gpus: int | None = None,
    storage_tb: float | None = None,
    egress_tb_month: float = 0.0,
    budget_usd: float | None = None,
    demand: Annotated[list[str] | None, _LIST] = None,
    assume: Annotated[list[str] | None, _LIST] = None,
    cloud: str = "",
    prices: Path | None = None,
    out: Out | None = None,
) -> None:
    """Say what GPUs cost over the years, owned or rented, and where these meet.

    Every assumption is listed, and can be replaced by its name: --assume pue=1.3 kwh=0.12

    Args:
        gpus: GPUs to own or to rent.
        gpu: Their type.
        years: How long.
        utilisation: Share of all hours in which they are used.
        node_gpus: GPUs of a node; else as many as is usual.
        storage_tb: Shared storage; else the usual for so many GPUs.
        egress_tb_month: Terabytes that leave a cloud each month.
        budget_usd: What there is to spend: what it buys, and what it rents.
        demand: GPUS:HOURS of a year, several: the best mix of owned and rented ones.
        assume: NAME=NUMBER, several; names: corral plan catalog economics.
        cloud: Rent at this one; else at the middle of what all ask.
        prices: A list of one's own, in the form that corral plan prices --fetch writes.
    """
    from corral.cli.planner.prices import read_prices_of
    from corral.plan.bills import CostRequest
    from corral.plan.cost import cost as found_of
    from corral.plan.cost_report import report

    request = CostRequest(
        gpus=gpus,
        gpu=gpu,
        years=years,
        utilisation=utilisation,
        node_gpus=node_gpus,
        storage_tb=storage_tb,
        egress_tb_month=egress_tb_month,
        budget_usd=budget_usd,
        demand=number_pairs(demand or (), "--demand"),
        assume=named_numbers(assume or (), "--assume"),
        cloud=cloud,
    )
    (out or Out()).show(report(found_of(request, read_prices_of(prices))))
