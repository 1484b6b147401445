"""Plans over the API: the same answers as on the command line, and requests that are
none."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from corral.cli.main import run
from corral.plan.kinds import ASKS
from corral.wire.plans import form_of
from tests.api.heads import Head

SMALLEST: dict[str, dict[str, Any]] = {
    "cluster": {"gpus": 256, "gpu": "h100"},
    "cost": {"gpus": 16, "utilisation": 0.6},
    "model": {"model": "llama-3.1-8b", "gpu": "h100"},
    "reliability": {"gpus": 1024, "days": 30},
    "serve": {
        "model": "llama-3.1-8b",
        "qps": 2,
        "input": 500,
        "output": 100,
        "gpu": "l40s",
    },
    "train": {"model": "llama-3.1-8b", "gpus": 16, "tokens": 1e11},
}


def test_every_kind_of_plan_has_an_example_here() -> None:
    assert SMALLEST.keys() == ASKS.keys()


@pytest.mark.parametrize("kind", ASKS)
def test_a_plan_says_the_same_as_the_command(
    kind: str, head: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = SMALLEST[kind]
    with head.http() as http:
        told = http.post(f"/v1/plan/{kind}", json=asked)
    assert told.status_code == 200, told.text
    options = [word for name, value in asked.items() for word in _option(name, value)]
    capsys.readouterr()
    assert run(["plan", kind, *options, "--json"]) == 0
    typed = json.loads(capsys.readouterr().out)
    for part in ("title", "verdict", "answers", "tables", "data"):
        assert told.json()[part] == typed[part]


def _option(name: str, value: Any) -> list[str]:
    return [f"--{name.replace('_', '-')}", str(value)]


@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.parametrize(
    "body", [{"nonsense": 1}, [], {"gpus": "many", "nodes": "many"}]
)
def test_what_is_no_request_is_refused(kind: str, body: Any, head: Head) -> None:
    with head.http() as http:
        told = http.post(f"/v1/plan/{kind}", json=body)
    assert told.status_code == 422
    assert told.json()["error"]["code"] == "request_invalid"


def test_what_cannot_be_is_refused_with_a_hint(head: Head) -> None:
    with head.http() as http:
        told = http.post(
            "/v1/plan/reliability", json=SMALLEST["reliability"] | {"days": 0}
        )
    assert told.status_code == 400
    error = told.json()["error"]
    assert error["message"] == "days cannot be 0"
    assert error["hint"] == "give a number from 0.001 to 100,000"


@pytest.mark.parametrize(
    ("kind", "asked", "said"),
    [
        ("serve", {"ttft_p90": 0}, "ttft_p90 cannot be 0"),
        ("serve", {"usd_per_gpu_hour": 2, "gpu": ""}, "set the type with gpu"),
        ("serve", {"shared": 500}, "shared cannot be 500: a prompt has 500 tokens"),
        ("model", {"context": 10**23}, "context cannot be 1e+23"),
        ("cluster", {"gpus": 10**400}, "gpus cannot be larger than 1e300"),
        ("cost", {"demand": [[64, 9000]]}, "demand contains 9000 hours"),
        ("train", {"tokens": 1e300}, "give a number from 1 to 1e+16"),
    ],
)
def test_a_refusal_names_the_field_of_the_request(
    kind: str, asked: dict[str, Any], said: str, head: Head
) -> None:
    with head.http() as http:
        told = http.post(f"/v1/plan/{kind}", json=SMALLEST[kind] | asked)
    assert told.status_code == 400, told.text
    error = told.json()["error"]
    words = error["message"] + " " + error["hint"]
    assert said in words
    assert "--" not in words


def test_what_was_assumed_is_told_by_the_fields_of_the_request(head: Head) -> None:
    with head.http() as http:
        told = http.post("/v1/plan/serve", json=SMALLEST["serve"]).json()
    assert (
        "the time to the first token has no target; set one with ttft_p90"
        in told["assumed"]
    )


def test_a_plan_needs_a_token(head: Head) -> None:
    with head.http(None) as http:
        assert (
            http.post("/v1/plan/reliability", json=SMALLEST["reliability"]).status_code
            == 401
        )


@pytest.mark.parametrize("kind", sorted(ASKS))
def test_each_field_of_a_form_is_described(kind: str) -> None:
    for name, field in form_of(ASKS[kind].request).model_fields.items():
        assert field.description, f"{kind} {name}"


@pytest.mark.parametrize("entry", [[], "x"], ids=["empty", "text"])
def test_a_list_of_a_plan_is_refused_at_its_first_wrong_entry(entry: object) -> None:
    """Each wrong entry would make an error: a million of them took a minute and 4
    GB."""
    form = form_of(ASKS["cost"].request)
    with pytest.raises(ValidationError) as refused:
        form.model_validate({"gpus": 8, "gpu": "h100", "demand": [entry] * 1_000})
    assert refused.value.error_count() <= 2
