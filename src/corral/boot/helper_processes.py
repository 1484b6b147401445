"""Helper processes of the head, for work that would block its event loop."""

from dataclasses import dataclass

from corral.boot.forecast_process import ForetellerProcess
from corral.boot.log_reader_process import ReaderProcess
from corral.boot.planner_process import PlannerProcess
from corral.boot.settings import ClusterSettings
from corral.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class Beside:
    """The helper processes of the head: forecasts, plans and log reading. Each starts
    when first needed."""

    foreteller: ForetellerProcess
    planner: PlannerProcess
    reader: ReaderProcess

    async def close(self) -> None:
        """End the processes, and wait until they have ended."""
        await self.foreteller.close()
        await self.planner.close()
        await self.reader.close()


def beside_of(clock: Clock, settings: ClusterSettings) -> Beside:
    """Return the head's helper processes for these settings."""
    planner = PlannerProcess(
        clock=clock.monotonic, hourly_seconds=settings.plan_seconds
    )
    return Beside(ForetellerProcess(), planner, ReaderProcess())
