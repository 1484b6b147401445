"""Correction of a field: valid values that can be written in place of an invalid one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# plain value, as a file or a request holds it; None removes the field
FieldValue = (
    None | int | float | str | Sequence["FieldValue"] | Mapping[str, "FieldValue"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCorrection:
    """Possible values of a field; each of them is valid."""

    field: str
    values: Sequence[FieldValue]


def corrected(field: str, *values: FieldValue) -> FieldCorrection:
    """Return the correction of a field by any of these values."""
    return FieldCorrection(field=field, values=values)
