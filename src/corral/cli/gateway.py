"""The command gateway, which serves the replicas of a routes file under one address."""

from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from corral.cli.option_types import Address, WholeNumber

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8480


def gateway(
    *,
    routes: Annotated[Path, Parameter(name="--routes")],
    host: Address = DEFAULT_HOST,
    port: WholeNumber = DEFAULT_PORT,
    workers: WholeNumber = 1,
) -> int:
    """Serve the replicas of a routes file to OpenAI clients.

    Args:
        routes: JSON file of services, replicas and callers.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        workers: Processes that share the port; one for each core is the most useful.
    """
    from corral.gateway.server import run_gateway
    from corral.gateway.settings import GatewaySettings

    settings = GatewaySettings(routes=routes, host=host, port=port, workers=workers)
    return run_gateway(settings)
