"""Errors for data that cannot be read as what it should be."""

from corral.domain.errors import Refusal


class BadData(Refusal):
    """The error for a shard or record that is damaged, and was so again when it was read
    a second time. Corral ends the job with the class `bad-data`."""

    code = "bad_data"


class Damaged(Exception):
    """The error of one attempt to read a shard. `offset`: the byte where the damage
    shows; None if it concerns the whole file."""

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


def bad_data(name: str, damage: Damaged, *, fetched: bool) -> BadData:
    """Return the error for a shard that was damaged twice."""
    place = name if damage.offset is None else f"{name}, byte {damage.offset}"
    again = "fetched" if fetched else "read"
    return BadData(
        f"bad data in {place}: {damage} (the same after it was {again} again); write this "
        "file again, or remove it and its entry in the index"
    )
