"""What `corral down` says of services, their replicas and jobs."""

import pytest

from corral.cli.unfinished_work import UnfinishedWork, awaited_text
from corral.wire.api import JobView
from corral.wire.service_answers import ServiceRatesView, ServiceRow

SERVICE = ServiceRow.model_construct(
    id="j1", name="chat", ready=1, wanted=2, rates=ServiceRatesView(under_way=3)
)
REPLICA = JobView.model_construct(
    id="j1_1", name="chat_1", state="RUNNING", nodes=["n1"], array="j1"
)
JOB = JobView.model_construct(
    id="j2", name="train", state="RUNNING", nodes=["n2"], array=None
)
SERVICE_LINE = "1 service: chat (1 of 2 replicas ready, 3 requests under way)"
JOB_LINE = "1 unfinished job: train (RUNNING)"


@pytest.mark.parametrize(
    ("services", "jobs", "lines", "question", "counts"),
    [
        (
            [SERVICE],
            [REPLICA, JOB],
            [SERVICE_LINE, JOB_LINE],
            "stop these services and jobs, and the cluster?",
            "1 service and 1 unfinished job continue",
        ),
        (
            [SERVICE],
            [],  # it has no replica now, and would be lost without a question
            [SERVICE_LINE],
            "stop these services, and the cluster?",
            "1 service continues",
        ),
        (
            [],
            [JOB],
            [JOB_LINE],
            "stop these jobs, and the cluster?",
            "1 unfinished job continues",
        ),
    ],
)
def test_services_are_named_as_services_and_their_replicas_are_not_jobs(
    services: list[ServiceRow],
    jobs: list[JobView],
    lines: list[str],
    question: str,
    counts: str,
) -> None:
    work = UnfinishedWork(jobs=jobs, services=services)
    assert bool(work)
    assert (work.lines(), work.question) == (lines, question)
    assert work.continues_text == counts


def test_no_work_needs_no_question() -> None:
    assert not UnfinishedWork(jobs=[])


def test_the_wait_for_an_end_names_replicas_and_jobs() -> None:
    work = UnfinishedWork(jobs=[JOB, REPLICA], services=[SERVICE])
    assert awaited_text(work, [], 135.0) == (
        "waiting at most 135 s for 1 replica and 1 job to finish and end: chat_1 (j1_1) "
        "on n1, train (j2) on n2"
    )
