"""Names of option values in `--help` for the fields of planner requests, because the
request classes do not depend on the command line."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar, get_args, get_type_hints

from cyclopts import Parameter

Command = TypeVar("Command", bound=Callable[..., Any])

REQUEST_METAVARS: Final[Mapping[str, str]] = {
    "availability": "FRACTION",
    "batch": "N",
    "carbon": "KG_PER_KWH",
    "context": "TOKENS",
    "context_parallel": "N",
    "counted": "N",
    "crews": "N",
    "data_mb_per_gpu_s": "MB_PER_S",
    "days": "DAYS",
    "engine": "ENGINE",
    "fabric": "FABRIC",
    "gpu": "TYPE",
    "gpus": "N",
    "idle": "FRACTION",
    "input": "TOKENS",
    "interval_minutes": "MINUTES",
    "itl_p90": "MILLISECONDS",
    "kv_precision": "PRECISION",
    "kwh": "USD_PER_KWH",
    "library": "LIBRARY",
    "load": "FRACTION",
    "model": "MODEL",
    "node_gpus": "N",
    "output": "TOKENS",
    "oversubscription": "RATIO",
    "parameters": "COUNT",
    "pipeline": "N",
    "precision": "PRECISION",
    "price": "KIND",
    "pue": "RATIO",
    "qps": "RATE",
    "rack_kw": "KW",
    "rank": "N",
    "rate": "RATE",
    "read_gb_per_s": "GB_PER_S",
    "region": "REGION",
    "repair_hours": "HOURS",
    "restart_minutes": "MINUTES",
    "save_minutes": "MINUTES",
    "shared": "TOKENS",
    "stall_seconds": "SECONDS",
    "switch": "SWITCH",
    "tensor": "N",
    "tokens": "COUNT",
    "ttft_p90": "MILLISECONDS",
    "usd_per_gpu_hour": "USD",
    "write_gb_per_s": "GB_PER_S",
}


def with_metavars(command: Command) -> Command:
    """Set the name that `--help` shows for the value of each field of the command's
    parameter `request`. An option --no-X has no opposite --no-no-X."""
    request, *parameters = get_args(command.__annotations__["request"])
    hints = get_type_hints(request, include_extras=True)
    annotated_fields = {
        name: Annotated[hint, Parameter(metavar=REQUEST_METAVARS[name])]
        for name, hint in hints.items()
        if name in REQUEST_METAVARS
    } | {
        name: Annotated[hint, Parameter(negative="")]
        for name, hint in hints.items()
        if name.startswith("no_")
    }
    body = {
        "__annotations__": annotated_fields,
        "__doc__": request.__doc__,
        "__slots__": (),
    }
    command.__annotations__["request"] = Annotated[
        type(request.__name__, (request,), body), *parameters
    ]
    return command
