"""Interface for notifications, which reach users outside the cluster."""

from typing import Protocol

from corral.insight.notifications import Notification, Taste


class Receiver(Protocol):
    """A service that sends users notifications."""

    @property
    def name(self) -> str: ...

    @property
    def taste(self) -> Taste: ...

    def day_seconds(self, wall: float) -> float:
        """Return the receiver's local time of day at `wall`, in seconds."""
        ...

    async def send(self, notice: Notification, cluster: str) -> None:
        """Send the notification. Raises: Trouble when it could not be delivered; the
        caller tries again later."""
        ...
