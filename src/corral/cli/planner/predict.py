"""The commands plan predict and plan validate, which work on whole tables of rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from corral.cli.files import check_apart, check_writable
from corral.cli.option_types import Kind
from corral.cli.planner.output import Out
from corral.cli.planner.tables import read_rows, write_rows
from corral.cli.printing import note, print_json, say
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.plan.rows.row import Predict, Row

_JSON = Parameter(
    name="--json", negative="", show_default=False, help="Answer in JSON."
)


def predict(
    table: Path,
    /,
    *,
    kind: Kind,
    out: Path,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Predict each row of a table.

    The result has all columns of the table, the predicted columns (pred_...), `refused`
    with the reason if a row cannot be predicted, and `assumed` with the assumptions for
    empty cells.

    Args:
        table: CSV file with a header, plain or gzipped.
        kind: Kind of prediction: training, memory_ci, inference or collectives.
        out: CSV file for the result.
    """
    from corral.plan.predictors import PREDICTED, predictor
    from corral.plan.rows.columns import check_columns

    predict_row = predictor(kind)
    check_writable(out)
    check_apart(out, [table])
    csv_rows = read_rows(table)
    check_columns(kind, csv_rows.columns)
    answers = [_predict_row_values(row, predict_row) for row in csv_rows.rows]
    added_columns = [*PREDICTED[kind], "refused", "assumed"]
    write_rows(
        out,
        [
            *(name for name in csv_rows.columns if name not in added_columns),
            *added_columns,
        ],
        answers,
    )
    refused = [row["refused"] for row in answers if row["refused"]]
    if json:
        print_json(
            {"rows": len(csv_rows.rows), "refused": len(refused), "out": str(out)}
        )
        return
    say(
        f"{len(csv_rows.rows) - len(refused)} of {counted(len(csv_rows.rows), 'row')} "
        f"predicted: {out}"
    )
    for reason in sorted(set(refused)):
        note(f"{refused.count(reason)} not predicted: {reason}")


def validate(kind: str, table: Path, /, *, out: Out | None = None) -> None:
    """Compare the predictions for a table with its measurements.

    The report shows the number of rows used, the mean, median and 90th percentile of
    the absolute percentage error, the bias, and the rank correlation within sweeps:
    rows of one source, model and GPU.

    Args:
        kind: Kind of prediction: training, memory_ci, inference or collectives.
        table: CSV file with a header, plain or gzipped.
    """
    from corral.plan.predictors import predictor
    from corral.plan.rows.columns import check_columns
    from corral.plan.validation.table_errors import judged

    predictor(kind)  # an unknown kind is refused before a file is read
    report_output = (out or Out()).apart_from(table)
    csv_rows = read_rows(table)
    check_columns(kind, csv_rows.columns, measured=True)
    report_output.show(judged(kind, csv_rows.rows, title=f"{kind}: {table}"))


def _predict_row_values(row: "Row", predict: "Predict") -> dict[str, Any]:
    from corral.domain.errors import CorralError

    try:
        predicted = predict(row)
    except CorralError as error:
        reason = "; ".join(filter(None, (error.message, error.hint)))
        return {**row, "refused": reason, "assumed": ""}
    values = {name: f"{value:.6g}" for name, value in predicted.values.items()}
    return {**row, **values, "refused": "", "assumed": "; ".join(predicted.remarks)}
