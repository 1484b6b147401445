"""The command plan serve: which GPUs serve a model within its latency targets, how many
are needed, and what a token costs."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from corral.cli.error_output import Usage
from corral.cli.planner.metavars import with_metavars
from corral.cli.planner.models import with_config
from corral.cli.planner.output import Out
from corral.cli.planner.prices import read_prices_of
from corral.cli.planner.service_replay import ReplayOptions, show_replay
from corral.plan.bounds import Length
from corral.plan.serve.plan import QPS, ServeRequest, plan_serve
from corral.plan.serve.report import report


def _help(text: str) -> Parameter:
    return Parameter(help=f"{text} Required without --replay.", show_default=False)


@dataclass(frozen=True, slots=True)
class ServeInput(ServeRequest):
    """Request for a serving plan, whose load may be that of a trace."""

    _: KW_ONLY
    qps: Annotated[float, QPS, _help("Requests per second, of all users together.")] = (
        0.0
    )
    input: Annotated[Length, _help("Number of tokens of a prompt.")] = 0
    output: Annotated[Length, _help("Number of tokens of an answer.")] = 0


ServeInput.__doc__ = ServeRequest.__doc__


@with_metavars
def serve(
    request: Annotated[ServeInput, Parameter(name="*")],
    *,
    replay: ReplayOptions = ReplayOptions(),  # noqa: B008 - frozen
    prices: Path | None = None,
    out: Out | None = None,
) -> None:
    """Find the cheapest GPUs that serve a model within latency targets; waiting in the
    queue is included. With --replay, the requests of a trace meet the gateway and the
    scaling of a service in virtual time.

    Args:
        prices: File with your own price list; for its format, see corral plan prices
            --help.
    """
    report_output = (out or Out()).apart_from(prices, replay.replay)
    listed = read_prices_of(prices)
    resolved = with_config(request)
    if replay.replay is not None:
        show_replay(resolved, replay, listed, report_output)
        return
    replay.check_unused()
    for name in ("qps", "input", "output"):
        if not getattr(request, name):
            raise Usage(
                f"plan serve requires --{name}",
                hint="set --qps, --input and --output, or replay a trace with --replay "
                "FILE",
            )
    report_output.show(report(plan_serve(resolved, listed=listed)))
