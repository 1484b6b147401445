"""Where the plan of a submission is told."""

import pytest

from corral.cli.arrays import when_text
from corral.cli.head_options import Change
from corral.cli.submission_plan import show_plan
from corral.cli.submit import tell_when
from corral.client.spec_input import WireSpecs
from corral.domain.ids import JobId
from corral.domain.run_history import (
    ChangeSuggestion,
    StartForecast,
    StartForecastTold,
    TimeSpan,
)
from corral.wire import api, job_parts

PLANNED = api.PlannedJob(
    name="train",
    starts_now=False,
    shape=api.ShapeView(
        nodes=1,
        gpus_per_node=1,
        gpu_type=None,
        cpus_per_node=0,
        memory_bytes_per_node=0,
    ),
    seats=[],
    ranks=1,
    environment={"RANK": "0"},
    reason="it waits for other jobs first",
    code="Dependency",
    suggestions=[],
)
NOTHING = WireSpecs(values=(), paths=())


def test_the_plan_of_a_job_that_is_followed_leaves_stdout_to_its_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan([PLANNED, PLANNED], NOTHING, whole=False)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("train") == 2


def test_a_dry_run_answers_on_stdout_with_the_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan([PLANNED], NOTHING, whole=True)
    told = capsys.readouterr()
    assert "RANK=0" in told.out
    assert "starts from" not in told.out
    assert told.err == ""


def test_the_plan_names_the_save_that_a_job_starts_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan([PLANNED.model_copy(update={"origin": "j2@165"})], NOTHING, whole=True)
    assert "starts from  the save j2@165" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("nodes", "least", "starts_now", "where"),
    [
        (2, 2, True, "its 2 nodes"),
        (1, 1, False, "its node"),
        (4, 2, False, "its nodes"),
        (4, 2, True, "its 4 nodes"),
    ],
)
def test_a_program_of_ray_is_one_on_all_its_nodes(
    nodes: int,
    least: int,
    starts_now: bool,
    where: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forms = [form(nodes, least, 1)]
    shape = PLANNED.shape.model_copy(update={"nodes": nodes})
    known = {"kind": "ray", "ranks": nodes, "shape": shape, "starts_now": starts_now}
    show_plan(
        [PLANNED.model_copy(update={**known, "forms": forms})], NOTHING, whole=True
    )
    told = capsys.readouterr().out
    assert f"one program, on a Ray cluster of {where}\n" in told
    assert "ranks" not in told


def form(nodes: int, least: int, gpus: int) -> api.Form:
    return api.Form(
        nodes=nodes, least_nodes=least, gpus_per_node=gpus, gpu_type=None, cpus_per_node=0,
        memory_bytes_per_node=0,
    )  # fmt: skip


@pytest.mark.parametrize("starts_now", [True, False])
def test_all_forms_are_shown_and_the_one_that_it_would_get(
    starts_now: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    forms = [form(9, 2, 8), form(1, 1, 2)]
    planned = PLANNED.model_copy(
        update={
            "starts_now": starts_now,
            "forms": forms,
            "shape": form(3, 3, 8),
            "ranks": 3,
        }
    )
    show_plan([planned], NOTHING, whole=True)
    told = capsys.readouterr().out
    assert "asks for  2 to 9 nodes, each with 8 GPUs; else 1 node with 2 GPUs\n" in told
    assert ("gets      3 nodes, each with 8 GPUs\nranks     3\n" in told) == starts_now
    assert "ranks" in told or not starts_now, "how many it has is known when it starts"


def forecast() -> api.StartForecastView:
    starts = TimeSpan(low_seconds=725.0, high_seconds=2395.0)
    row = StartForecastTold(
        job=JobId("j1"),
        at=0.0,
        drawn_low_seconds=725.0,
        drawn_high_seconds=2395.0,
        low_seconds=725.0,
        high_seconds=2395.0,
    )
    found = StartForecast(
        starts=starts,
        ends=TimeSpan(low_seconds=7200.0, high_seconds=None),
        runs=40,
        known=1.0,
        limited=1.0,
        told=200,
        held=83.0,
        row=row,
        instead=(ChangeSuggestion(change="with 1 node instead of 2", starts=starts),),
    )
    return api.StartForecastView.of(found)


def test_who_would_wait_is_told_when_it_starts_and_what_would_be_sooner(
    capsys: pytest.CaptureFixture[str],
) -> None:
    planned = PLANNED.model_copy(update={"forecast": forecast()})
    show_plan([planned], NOTHING, whole=True)
    told = capsys.readouterr().out
    assert (
        "starts    in 12 to 40 min (80 % likely; 83 % of the last 200 forecasts" in told
    )
    assert "ends      in more than 2 h" in told
    assert "sooner    with 1 node instead of 2 it starts in 12 to 40 min" in told


def test_who_is_likely_to_be_given_up_is_told_that_instead_of_an_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    early = forecast().model_copy(update={"gives_up_at": 60.0, "is_too_late": True})
    show_plan([PLANNED.model_copy(update={"forecast": early})], NOTHING, whole=True)
    told = capsys.readouterr().out
    assert "but       fails at 1970-01-" in told
    assert "ends " not in told
    assert when_text(early).endswith("before it is likely to start: " + early.text)
    late = early.model_copy(update={"is_too_late": False})
    assert "; fails at 1970-01-" in when_text(late)
    assert when_text(late).startswith("starts in 12 to 40 min")


class Waiting:
    """A client that knows when a job starts."""

    def why(self, job: str) -> api.Why:
        return api.Why(
            id=job, name="train", state="QUEUED", reason="", code="", suggestions=[], receipts=[],
            forecast=forecast(),
        )  # fmt: skip


class Refused(Waiting):
    """A client of a user whom all nodes refuse."""

    def why(self, job: str) -> api.Why:
        never = job_parts.TimeSpanView(
            low_seconds=864_000.0, high_seconds=None, text="in more than 10 d"
        )
        late = forecast().model_copy(update={"starts": never})
        update = {
            "reason": "no node has an account",
            "suggestions": ["run: useradd ann"],
        }
        return super().why(job).model_copy(update={**update, "forecast": late})


def test_who_does_not_stay_is_told_why_where_no_start_is_foreseen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = api.JobView.model_construct(id="j3", state="QUEUED")
    tell_when(Refused(), [job], Change())  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert told == "train waits: no node has an account\n  run: useradd ann\n"


@pytest.mark.parametrize(
    ("state", "as_json"), [("QUEUED", False), ("QUEUED", True), ("DONE", False)]
)
def test_who_does_not_stay_is_told_when_the_job_starts_too(
    state: str, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    job = api.JobView.model_construct(id="j3", state=state)
    tell_when(Waiting(), [job], Change(json=as_json))  # type: ignore[arg-type]
    told = capsys.readouterr()
    assert told.out == ""
    assert ("train starts in 12 to 40 min (80 % likely; " in told.err) == (
        state == "QUEUED" and not as_json
    )
