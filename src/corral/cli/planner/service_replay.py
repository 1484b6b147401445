"""`corral plan serve --replay`: a trace of requests, played through the gateway's choice
and the scaling of a service in virtual time."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.cli.error_output import Usage
from corral.cli.option_types import Factor, ReplicaRange, ScaleOrGpu, ScaleText, Seconds
from corral.cli.planner.output import Out

if TYPE_CHECKING:
    from corral.catalog.prices import PriceList
    from corral.domain.service import ScaleRule
    from corral.plan.serve.plan import ServeRequest
    from corral.plan.service_replay.replay_plan import ReplayRequest

USUAL_SCALE = "{queue: 4}"
_POSITIVE = Parameter(validator=Number(gt=0, lte=1e6))
_START = Parameter(validator=Number(gte=0, lte=86_400))


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options for the replay of a trace.

    Attributes:
        replay: Replay the requests of this file, plain or gzipped, in virtual time: lines
            of JSON with timestamp (ms), input_length, output_length and hash_ids, or CSV
            with the columns TIMESTAMP, ContextTokens and GeneratedTokens.
        replicas: With --replay: replicas of the service: 4, or a range: 1..8 (default:
            from 1 to three times what the mean load needs).
        scale: With --replay: what decides their number, as a service has it: queue: 4,
            rps: 5, tokens: 2000, or ttft_p90: 500ms, itl_p90: 50ms.
        start: With --replay: seconds until a new replica is ready.
        speed: With --replay: factor by which requests arrive faster than in the trace.
        compare: With --replay: replay again with this type of GPU or scale rule, and
            compare.
    """

    replay: Path | None = None
    replicas: ReplicaRange | None = None
    scale: ScaleText | None = None
    start: Annotated[Seconds | None, _START] = None
    speed: Annotated[Factor | None, _POSITIVE] = None
    compare: ScaleOrGpu | None = None

    def check_unused(self) -> None:
        """Check that no other option is set without --replay. Raises: Usage."""
        for name in ("replicas", "scale", "start", "speed", "compare"):
            if getattr(self, name) is not None:
                raise Usage(
                    f"--{name} requires a trace",
                    hint="set the trace with --replay FILE",
                )


def show_replay(
    request: "ServeRequest",
    options: ReplayOptions,
    listed: "PriceList | None",
    out: Out,
) -> None:
    """Replay the trace and show the report.

    Raises: Usage, SpecInvalid, and as plan_replay.
    """
    from corral.plan.service_replay.replay_plan import plan_replay
    from corral.plan.service_replay.replay_report import replay_report
    from corral.traces.request_traces import read_request_trace

    assert options.replay is not None
    if request.qps or request.input or request.output:
        raise Usage(
            "--qps, --input and --output cannot be combined with --replay: the trace "
            "has them",
            hint="leave them out",
        )
    first = _replay_request(request, options)
    second = None if options.compare is None else _compared(first, options.compare)
    requests = read_request_trace(options.replay, speed=options.speed or 1.0)
    plan = plan_replay(first, requests, listed=listed)
    compared = None if second is None else plan_replay(second, requests, listed=listed)
    out.show(replay_report(plan, compared))


def _replay_request(request: "ServeRequest", options: ReplayOptions) -> "ReplayRequest":
    from corral.plan.service_replay.replay_plan import ReplayRequest
    from corral.wire.service_answers import replica_range

    replicas = None if options.replicas is None else replica_range(options.replicas)
    if replicas is not None and not replicas[1]:
        raise Usage(
            "--replicas 0 answers no request", hint="give a range, for example: 0..8"
        )
    text = _flow_text(options.scale or USUAL_SCALE)
    return ReplayRequest(
        serve=request,
        scale=scale_rule(text),
        scale_text=text,
        replicas=replicas,
        start_seconds=60.0 if options.start is None else options.start,
    )


def _compared(first: "ReplayRequest", text: str) -> "ReplayRequest":
    """Return the request with another scale rule, if the text has a colon, else with
    another type of GPU."""
    if ":" not in text:
        return replace(first, serve=replace(first.serve, gpu=text))
    flow = _flow_text(text)
    return replace(first, scale=scale_rule(flow), scale_text=flow)


def _flow_text(text: str) -> str:
    """Return the rule as a mapping on one line. For example: {queue: 4}"""
    text = " ".join(text.replace(":", ": ").split())
    return text if text.startswith("{") else f"{{{text}}}"


def scale_rule(text: str) -> "ScaleRule":
    """Return the rule of a text such as {queue: 4}. Raises: SpecInvalid."""
    from corral.wire.service_document import read_service
    from corral.wire.yaml_document import documents_of

    source = f"scale: {text}\nkind: service\nname: replay\nrun: serve\n"
    (document,) = documents_of(source, source="--scale")
    return read_service(document).spec.scale
