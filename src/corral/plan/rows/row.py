"""Rows of measured tables, to be predicted one by one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from corral.domain.errors import Refusal

Row = Mapping[str, str]  # an empty cell is ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Prediction of a row by column. `remarks` lists the assumptions for empty
    cells."""

    values: Mapping[str, float]
    remarks: tuple[str, ...] = ()


Predict = Callable[[Row], Predicted]  # raises RowRefused


class RowRefused(Refusal):
    """A row says too little, or something that the model does not know."""

    code = "row_refused"
