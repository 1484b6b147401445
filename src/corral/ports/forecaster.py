"""Interface of the forecaster, which works beside the head's event loop."""

from typing import Protocol

from corral.domain.run_history import Question, StartForecast


class Foreteller(Protocol):
    async def forecast(self, question: Question) -> StartForecast | None:
        """The answer; None for a job that does not wait.

        Raises: Trouble when there is none in time.
        """
        ...
