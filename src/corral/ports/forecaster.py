"""Interface of the forecaster, which runs outside the head's event loop."""

from typing import Protocol

from corral.domain.run_history import Question, StartForecast


class Foreteller(Protocol):
    async def forecast(self, question: Question) -> StartForecast | None:
        """Return the forecast of a waiting job's start; None if the job does not wait.

        Raises: Trouble if the forecast is not ready in time.
        """
        ...
