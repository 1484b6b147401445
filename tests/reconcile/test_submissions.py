"""What one submission brings: its jobs' ids, and arrays that are each their own."""

from dataclasses import replace

from corral.domain.ids import Sequence
from corral.domain.job import JobSpec
from corral.domain.job_states import JobState
from corral.domain.requests import Resume, StoredRequest, Submit
from corral.reconcile.apply_requests import arrays_of, ids_of
from tests.worlds import ALICE, Cluster, gang, node


def array(
    name: str, *indices: int, limit: int | None = None, place: int = 0
) -> tuple[JobSpec, ...]:
    own = replace(gang(name, gpus=0), array_limit=limit, array_place=place)
    return tuple(
        replace(own, name=f"{name}_{index}", array_index=index) for index in indices
    )


def submitted(*specs: JobSpec) -> StoredRequest:
    return StoredRequest(
        sequence=Sequence(7), by=ALICE, at=0.0, asked=Submit(specs=specs, key="")
    )


def test_ids_follow_from_the_places_of_specs_and_from_indices() -> None:
    alone = submitted(gang())
    assert ids_of(alone) == ("j7",)
    one_array = submitted(*array("a", 3, 4))
    assert ids_of(one_array) == ("j7_3", "j7_4")
    assert set(arrays_of(one_array)) == {"j7"}
    mixed = submitted(gang("first"), *array("a", 0, 1, place=1), gang("last"))
    assert ids_of(mixed) == ("j7_0", "j7_1_0", "j7_1_1", "j7_2")


def test_arrays_next_to_each_other_stay_two() -> None:
    for second in (
        array("a", 2, 3, place=1),
        array("b", 0, 1),
        array("b", 0, 1, place=1),
    ):
        ids = ids_of(submitted(*array("a", 0, 1), *second))
        assert [id.rpartition("_")[0] for id in ids] == ["j7_0", "j7_0", "j7_1", "j7_1"]


def test_each_array_of_a_submission_has_a_limit_of_its_own() -> None:
    cluster = Cluster(node("n1"))
    cluster.submit(
        *array("a", 0, 1, 2, limit=1), *array("b", 0, 1, 2, limit=2, place=1)
    )
    jobs = cluster.world.jobs.values()
    assert sorted(job.array or "" for job in jobs if job.state == JobState.STARTING) == [
        "j1_0", "j1_1", "j1_1",
    ]  # fmt: skip


def test_jobs_that_are_held_from_the_start_begin_only_when_they_are_resumed() -> None:
    cluster = Cluster(node("n1"))
    cluster.request(Submit(specs=array("a", 0, 1), key="k", held=True))
    cluster.tick()
    first, second = cluster.world.jobs.values()
    assert (first.state, first.reason_code) == (JobState.SUSPENDED, "Suspend")
    cluster.request(Resume(job=first.id))
    cluster.tick()
    states = [cluster.world.jobs[job.id].state for job in (first, second)]
    assert states == [JobState.STARTING, JobState.SUSPENDED]
