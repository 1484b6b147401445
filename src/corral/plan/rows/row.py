"""Rows of measured tables, to be predicted one by one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from corral.domain.errors import Refusal

Row = Mapping[str, str]  # an empty cell is ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Predicted values of a row, by column. `remarks` lists the assumptions for empty
    cells."""

    values: Mapping[str, float]
    remarks: tuple[str, ...] = ()


Predict = Callable[[Row], Predicted]  # raises RowRefused


class RowRefused(Refusal):
    """Error: the row gives too little, or uses something that the planner's model does
    not cover."""

    code = "row_refused"
