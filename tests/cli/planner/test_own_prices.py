"""plan train and plan serve by a list of one's own prices."""

import json
from pathlib import Path

import pytest

from corral.cli.main import run

TRAIN = ["train", "llama-3.1-8b", "--gpus", "8", "--tokens", "1e9"]
SERVE = [
    "serve",
    "llama-3.1-8b",
    "--qps",
    "1",
    "--input",
    "200",
    "--output",
    "50",
    "--gpu",
    "l40s",
]


@pytest.mark.parametrize(("words", "answer"), [(TRAIN, "cost"), (SERVE, "cost")])
def test_money_is_by_the_list_that_is_given(
    words: list[str], answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def usd(*more: str) -> float:
        assert run(["plan", *words, "--json", *more]) == 0
        told = json.loads(capsys.readouterr().out)
        return float(
            next(one["value"] for one in told["answers"] if one["name"] == answer)
        )

    def listed(price: float) -> str:
        file = tmp_path / f"{price}.csv"
        known = [
            f"{cloud}:{gpu},on_demand,{price},USD a GPU-hour,ours,2026-05-01"
            for gpu in ("h100-sxm", "l40s")
            for cloud in ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
        ]
        file.write_text(
            "\n".join(["subject,quantity,value,unit,source,date", *known]) + "\n"
        )
        return str(file)

    assert usd("--prices", listed(2.0)) == pytest.approx(
        2 * usd("--prices", listed(1.0))
    )
