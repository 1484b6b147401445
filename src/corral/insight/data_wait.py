"""Parts of the time that a training loop waits for its data."""

from dataclasses import dataclass
from typing import Final

from corral.domain.units import share_text

LEAST_SHARE: Final = 0.01  # of the wait; a smaller part is not named
_NAMES: Final = ("reading", "decoding", "copying to the device")
ADVICE_BY_PART: Final = (
    "data on a local disk or in larger files, and more workers of the data loader",
    "more workers of the data loader, or data that is decoded in advance",
    "smaller batches of a smaller type, or a loader that pins its memory",
)
DATA_ADVICE: Final = (
    "more workers of the data loader, prefetching, or data on a local disk"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWaitParts:
    """Seconds of reading, decoding and copying within waits for data, summed over
    nodes. `seconds`: the waits as a whole."""

    seconds: float = 0.0
    read_seconds: float = 0.0
    decode_seconds: float = 0.0
    copy_seconds: float = 0.0

    def since(self, earlier: "DataWaitParts") -> "DataWaitParts":
        """Return the difference to an earlier measurement."""
        return DataWaitParts(
            seconds=self.seconds - earlier.seconds,
            read_seconds=self.read_seconds - earlier.read_seconds,
            decode_seconds=self.decode_seconds - earlier.decode_seconds,
            copy_seconds=self.copy_seconds - earlier.copy_seconds,
        )

    @property
    def shares(self) -> tuple[float, float, float]:
        """Return the shares of reading, decoding and copying in the waits; all 0 if they
        are not measured."""
        if self.seconds <= 0:
            return (0.0, 0.0, 0.0)
        return (
            self.read_seconds / self.seconds,
            self.decode_seconds / self.seconds,
            self.copy_seconds / self.seconds,
        )

    @property
    def text(self) -> str:
        """Return the parts with their shares, the largest first; "" without any."""
        named = sorted(zip(self.shares, _NAMES, strict=True), key=lambda part: -part[0])
        return ", ".join(
            f"{name} {share_text(share)}"
            for share, name in named
            if share >= LEAST_SHARE
        )

    @property
    def advice(self) -> str:
        """Return what helps against the largest part."""
        largest_share = max(self.shares)
        if largest_share < LEAST_SHARE:
            return DATA_ADVICE
        return ADVICE_BY_PART[self.shares.index(largest_share)]
