"""The memory of Megatron-LM's own tests, as its allocator counted it, and how long they
take."""

import csv
import gzip
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.plan.rows.memory import predict
from corral.plan.rows.row import RowRefused

TABLE = Path(__file__).parents[2] / "validation" / "data" / "memory_ci.csv.gz"


def rows() -> list[Mapping[str, str]]:
    with gzip.open(TABLE, "rt") as lines:
        return [
            row for row in csv.DictReader(lines) if "SAME VALUES" not in row["notes"]
        ]


ROWS = rows()[::20]


def test_peak_and_steady_memory_are_near_what_was_measured() -> None:
    peak, steady = [], []
    for row in rows():
        try:
            values = predict(row).values
        except RowRefused:
            continue
        measured = float(row["mem_max_allocated_gb"]), float(row["mem_allocated_gb"])
        peak.append(abs(values["pred_memory_gb_per_gpu"] / measured[0] - 1))
        steady.append(abs(values["pred_memory_steady_gb_per_gpu"] / measured[1] - 1))
    assert len(peak) >= 280
    assert sum(peak) / len(peak) < 0.045
    assert sum(steady) / len(steady) < 0.045


def step_errors(some: Iterable[Mapping[str, str]]) -> list[float]:
    found = []
    for row in some:
        with suppress(RowRefused):
            predicted = predict(row).values["pred_step_time_s"]
            found.append(predicted / float(row["iter_time_s_median"]) - 1)
    return found


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def test_a_step_takes_about_as_long_as_was_measured() -> None:
    errors = step_errors(rows())
    assert len(errors) >= 280
    assert mean([abs(error) for error in errors]) < 0.18
    assert abs(mean(errors)) < 0.06


@pytest.mark.parametrize(
    ("told", "most"),
    [("gpt3_7b", 0.1), ("_1node", 0.16), ("t5", 0.2), ("gpt3_15b_8t_release", 0.25)],
)
def test_no_kind_of_test_is_far_off(told: str, most: float) -> None:
    errors = step_errors(row for row in rows() if told in row["test"])
    assert mean([abs(error) for error in errors]) < most


def test_the_rate_of_tokens_goes_with_the_step() -> None:
    row = next(
        row
        for row in rows()
        if row["test"] == "gpt3_mcore_tp1_pp4" and "A100" in row["gpu"]
    )
    values = predict(row).values
    tokens = 32 * 1024  # its batch, and its sequence
    assert values["pred_tokens_per_s_per_gpu"] == pytest.approx(
        tokens / values["pred_step_time_s"] / 8
    )


def test_a_gpu_that_nobody_knows_has_memory_and_no_step_time() -> None:
    found = predict({**ROWS[0], "gpu": "Z9000"})
    assert "pred_memory_gb_per_gpu" in found.values
    assert "pred_step_time_s" not in found.values
    assert any("no step time" in told for told in found.remarks)


def test_what_was_measured_is_not_looked_at() -> None:
    row = ROWS[0]
    assert predict(
        {**row, "iter_time_s_median": "1", "mem_max_allocated_gb": "1"}
    ) == predict(row)


@pytest.mark.parametrize("family", ["gpt", "moe", "mixtral", "bert", "t5"])
def test_no_family_of_models_is_far_off(family: str) -> None:
    errors = [
        abs(
            predict(row).values["pred_memory_gb_per_gpu"]
            / float(row["mem_max_allocated_gb"])
            - 1
        )
        for row in rows()
        if row["family"] == family
    ]
    assert sum(errors) / len(errors) < 0.08


def test_an_output_matrix_that_stands_for_a_layer_leaves_more_passes_in_flight() -> (
    None
):
    # Six layers as 4 stages of 2 pieces, embedding and loss one each: the last rank has
    # a layer in its first piece, of which 4 passes are in flight, and the loss in its
    # second.
    named = [row for row in rows() if "account_for_embedding" in row["test"]]
    assert named
    for row in named:
        found = predict(row).values["pred_memory_gb_per_gpu"]
        assert found == pytest.approx(float(row["mem_max_allocated_gb"]), rel=0.01)


def test_a_row_without_its_dimensions_is_refused_with_the_cell() -> None:
    row = {**rows()[0], "hidden": ""}
    with pytest.raises(RowRefused, match="hidden"):
        predict(row)


def test_what_was_assumed_is_told() -> None:
    row = next(row for row in rows() if row["family"] == "gpt" and not row["dp"])
    assert "data-parallel" in " ".join(predict(row).remarks)


def test_a_model_with_parts_that_the_row_does_not_describe_is_refused() -> None:
    row = next(row for row in rows() if row["family"] == "multimodal-llava")
    with pytest.raises(RowRefused, match="does not describe"):
        predict(row)


def test_a_t5_without_its_halves_is_refused() -> None:
    row = next(row for row in rows() if row["family"] == "t5")
    with pytest.raises(RowRefused, match="encoder and decoder"):
        predict({**row, "args": ""})
    with pytest.raises(RowRefused, match="pipeline stages"):
        predict({**row, "pp": "2"})


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_whatever_a_cell_says_a_row_is_predicted_or_refused(
    data: st.DataObject,
) -> None:
    row = data.draw(st.sampled_from(ROWS))
    column = data.draw(st.sampled_from(sorted(row)))
    cell = data.draw(
        st.sampled_from(
            ["", "0", "-1", "7", "many", "1e9", "1e999", "nan", "--mtp-num-layers"]
        )
    )
    with suppress(RowRefused):  # and nothing else is raised
        assert min(predict({**row, column: cell}).values.values()) > 0


def test_no_speed_is_predicted_for_a_sequence_of_no_tokens() -> None:
    for row in ROWS:
        with suppress(RowRefused):  # some rows bring a length of their own
            assert min(predict({**row, "seq_len": "0"}).values.values()) > 0


def test_a_row_of_nothing_is_refused() -> None:
    with pytest.raises(RowRefused):
        predict({})
