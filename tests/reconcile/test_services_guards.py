"""What a bug in Corral may never do to a service, and passes without news."""

from dataclasses import replace

import pytest

from corral.domain.errors import InvariantBroken
from corral.domain.ids import JobId
from corral.domain.job_states import JobState
from corral.domain.observed_state import Facts
from corral.domain.requests import (
    Cancel,
    ScaleService,
)
from corral.domain.service import Service
from corral.reconcile import Now
from corral.reconcile.changeset import Draft
from corral.reconcile.invariants import check
from corral.reconcile.services import service_pass
from tests.reconcile.serving import CHAT, Serving, service_spec, several

# -- bugs ------------------------------------------------------------------------------


def test_a_bug_in_one_service_leaves_it_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serving = several(2, 2)
    before = serving.service
    monkeypatch.setattr(service_pass, "end_drained", lambda *_: 1 / 0)
    serving.measure(wanted=1)
    serving.cluster.request(Cancel(job=JobId("j1_1")))
    outcome = serving.cluster.outcome
    assert outcome is not None
    assert [id for id, _ in outcome.bugs] == ["j1"]
    assert not outcome.changes.services
    assert serving.service == before
    assert set(serving.cluster.world.jobs) == {"j1_1", "j1_2"}
    monkeypatch.undo()
    serving.tick()
    assert serving.numbers == [2, 3]


def test_a_bug_undoes_what_was_decided_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serving = Serving(service_spec(min_replicas=2, max_replicas=2), nodes=0)
    monkeypatch.setattr(service_pass, "check_replicas", lambda *_: 1 / 0)
    serving.cluster.request(ScaleService(service=CHAT, min_replicas=1, max_replicas=1))
    outcome = serving.cluster.outcome
    assert outcome is not None
    assert [id for id, _ in outcome.bugs] == ["j1"]
    assert [event.kind for event in outcome.changes.events] == ["service_applied"]
    assert not outcome.changes.jobs
    assert serving.service.spec.replicas_text == "1", "the request itself is granted"
    monkeypatch.undo()
    serving.tick()
    assert serving.job(2).state == JobState.CANCELLED


def test_rows_that_break_an_invariant_leave_the_service_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serving = several(2, 2)
    before = serving.service

    def twice(draft: Draft, service: Service) -> Service:
        return replace(service, replicas=service.replicas[:1] * 2)

    monkeypatch.setattr(service_pass, "end_drained", twice)
    serving.measure(wanted=1)
    outcome = serving.cluster.tick()
    assert [id for id, _ in outcome.bugs] == ["j1"]
    assert serving.service == before


def draft_of(serving: Serving, service: Service) -> Draft:
    now = Now(wall=serving.cluster.wall, serving=serving.cluster.serving)
    draft = Draft(serving.cluster.world, Facts(), now)
    draft.services[CHAT] = service
    return draft


@pytest.mark.parametrize("field", ["number", "job"])
def test_two_replicas_with_the_same_number_or_job_are_never_committed(
    field: str,
) -> None:
    serving = several(2, 2)
    first, second = serving.rows
    other = replace(second, **{field: getattr(first, field)})
    service = replace(serving.service, replicas=(first, other))
    with pytest.raises(InvariantBroken, match="the same number or job"):
        check(draft_of(serving, service))


def test_a_row_without_a_job_is_never_committed() -> None:
    serving = several(1, 1)
    lone = replace(serving.rows[0], number=9, job=JobId("j1_9"))
    service = serving.service.with_row(lone)
    with pytest.raises(InvariantBroken, match="have no job"):
        check(draft_of(serving, service))


def test_the_row_of_an_unfinished_replica_is_never_lost() -> None:
    serving = several(2, 2)
    with pytest.raises(InvariantBroken, match="lose sight"):
        check(draft_of(serving, serving.service.without_row(1)))


def test_a_replica_without_a_row_is_never_committed() -> None:
    serving = several(1, 1)
    draft = draft_of(serving, serving.service)
    draft.put(replace(serving.job(1), id=JobId("j1_9")))
    with pytest.raises(InvariantBroken, match="belong to no service"):
        check(draft)


def test_a_pass_without_news_writes_no_row_of_a_service() -> None:
    serving = several(2, 4)
    serving.tick()
    outcome = serving.cluster.outcome
    assert outcome is not None
    assert not outcome.changes.services
    assert not outcome.changes.events
