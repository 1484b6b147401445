"""Helper processes of the head, for work that would block its event loop."""

from dataclasses import dataclass

from corral.boot.forecast_process import ForetellerProcess
from corral.boot.gateway_process import GatewayProcess
from corral.boot.log_reader_process import ReaderProcess
from corral.boot.planner_process import PlannerProcess
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class Beside:
    """The helper processes of the head: forecasts, plans, log reading, and the gateway
    to services. Each starts when first needed."""

    foreteller: ForetellerProcess
    planner: PlannerProcess
    reader: ReaderProcess
    gateway: GatewayProcess

    async def close(self) -> None:
        """End the processes, and wait until they have ended. The gateway stays, because
        it outlives the head."""
        await self.foreteller.close()
        await self.planner.close()
        await self.reader.close()


def beside_of(clock: Clock, place: ClusterDir, settings: ClusterSettings) -> Beside:
    """Return the head's helper processes for these settings."""
    planner = PlannerProcess(
        clock=clock.monotonic, hourly_seconds=settings.plan_seconds
    )
    gateway = GatewayProcess(place=place, settings=settings)
    return Beside(ForetellerProcess(), planner, ReaderProcess(), gateway)
