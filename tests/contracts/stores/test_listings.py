"""What people read: jobs, events, tokens and secrets."""

import pytest

from corral.domain.ids import JobId, QueueName, UserName, job_id
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.job_summary import listed
from corral.domain.world import Changes
from corral.ports.store import Store, Which
from tests.contracts.stores.conftest import Place
from tests.store.rows import ANN, event, job, spec

J1 = job_id(1)


def test_jobs_are_listed_newest_first_and_the_ended_ones_on_request(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        states = [JobState.QUEUED, JobState.DONE, JobState.RUNNING, JobState.FAILED]
        rows = tuple(job(i + 8, state) for i, state in enumerate(states))
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        assert [one.submitted for one in await store.jobs(final=True, limit=9)] == [
            11,
            10,
            9,
            8,
        ]
        assert [one.submitted for one in await store.jobs(final=True, limit=2)] == [
            11,
            10,
        ]
        assert [one.submitted for one in await store.jobs(final=False, limit=9)] == [
            10,
            8,
        ]
        assert await store.jobs(final=True, limit=9) == [
            listed(one) for one in reversed(rows)
        ]
        assert await store.jobs(final=True, limit=0) == []
        assert await store.jobs(final=True, limit=-1) == []

    place.run(scenario)


def test_jobs_are_listed_in_pages_that_hold_each_once(place: Place) -> None:
    async def scenario(store: Store) -> None:
        parts = [
            job(3, id=JobId(f"j3_{index}"), spec=spec("sweep", array_index=index))
            for index in (9, 10, 2)
        ]
        rows = (job(1), job(2, JobState.DONE), *parts, job(12))
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        found: list[JobId] = []
        while page := await store.jobs(
            final=True, limit=2, before=found[-1] if found else None
        ):
            found += [one.id for one in page]
        assert found == ["j12", "j3_10", "j3_9", "j3_2", "j2", "j1"]
        unfinished = await store.jobs(final=False, limit=9, before=JobId("j3_2"))
        assert [one.id for one in unfinished] == ["j1"]
        forgotten = await store.jobs(final=True, limit=9, before=JobId("j3_77"))
        assert [one.id for one in forgotten] == ["j2", "j1"]
        assert await store.jobs(final=True, limit=9, before=JobId("what?")) == []

    place.run(scenario)


def test_a_listing_has_the_jobs_that_were_asked_for_and_no_other(place: Place) -> None:
    async def scenario(store: Store) -> None:
        rows = (
            job(
                1,
                JobState.DONE,
                spec=spec("Train-7b", queue=QueueName("research")),
                ended_at=100.25,
            ),
            job(2, JobState.RUNNING, spec=spec("train-70b")),
            job(3, JobState.QUEUED, owner=UserName("bob"), spec=spec("eval_1x")),
            job(
                4,
                id=JobId("j4_0"),
                array=job_id(4),
                spec=spec("sweep_0", array_index=0),
            ),
        )
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        asked = [
            Which(states=frozenset({JobState.DONE, JobState.RUNNING})),
            Which(owner=UserName("bob")),
            Which(queue=QueueName("research")),
            Which(text="TRAIN-7"),
            Which(text="l_1"),
            Which(text="l%1"),
            Which(text="j4"),
            Which(text="j2"),
            Which(text="_0", states=frozenset({JobState.DONE})),
            Which(since=100.0),
            Which(since=100.5),
            Which(since=100.5, states=frozenset({JobState.DONE})),
        ]
        found = []
        for which in asked:
            listed = await store.jobs(final=True, limit=9, which=which)
            assert [one.id for one in listed] == [
                one.id for one in reversed(rows) if which.takes(one)
            ]
            found.append(" ".join(one.id for one in listed))
        since = ["j4_0 j3 j2 j1", "j4_0 j3 j2", ""]
        assert found == [
            "j2 j1",
            "j3",
            "j1",
            "j2 j1",
            "j3",
            "",
            "j4_0",
            "j2",
            "",
            *since,
        ]

    place.run(scenario)


def test_the_jobs_of_an_array_are_in_order_of_their_index(place: Place) -> None:
    async def scenario(store: Store) -> None:
        rows = tuple(
            job(1, id=JobId(f"j1.{index}"), spec=spec("sweep", array_index=index))
            for index in (9, 10, 2)
        )
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        listed = await store.jobs(final=True, limit=9)
        assert [one.spec.array_index for one in listed] == [10, 9, 2]
        assert list((await store.lead()).jobs) == ["j1.2", "j1.9", "j1.10"]

    place.run(scenario)


def test_an_array_is_found_by_its_id_and_the_newest_one_by_its_name(
    place: Place,
) -> None:
    def part(
        sequence: int, name: str, index: int, state: JobState = JobState.QUEUED
    ) -> Job:
        id = JobId(f"j{sequence}_{index}")
        own = spec(f"{name}_{index}", array_index=index)
        return job(sequence, state, id=id, spec=own, array=job_id(sequence))

    async def scenario(store: Store) -> None:
        old = [part(1, "sweep", index) for index in (10, 2)]
        new = [part(5, "sweep", index, JobState.DONE) for index in (1, 0)]
        other = [part(7, "sweep_er", 3), part(8, "x_y", 0), part(8, "x", 4)]
        alone = [job(9, spec=spec("sweep_4")), job(10, spec=spec("j1"))]
        rows = (*old, *new, *other, *alone)
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        found = {
            of: [one.id for one in await store.array(of)]
            for of in (
                "j1",
                "j5",
                "sweep",
                "sweep_er",
                "x",
                "x_y",
                "j9",
                "swee",
                "sweep_1",
                "",
            )
        }
        assert found.pop("j1") == ["j1_2", "j1_10"]
        assert found.pop("j5") == found.pop("sweep") == ["j5_0", "j5_1"]
        assert found.pop("sweep_er") == ["j7_3"]
        assert (found.pop("x"), found.pop("x_y")) == (["j8_4"], ["j8_0"])
        assert set(map(tuple, found.values())) == {()}

    place.run(scenario)


def test_arrays_that_were_submitted_together_are_found_each_for_itself(
    place: Place,
) -> None:
    def part(array: int, name: str, index: int) -> Job:
        own = spec(f"{name}_{index}", array_index=index)
        return job(
            3, id=JobId(f"j3_{array}_{index}"), spec=own, array=JobId(f"j3_{array}")
        )

    async def scenario(store: Store) -> None:
        rows = (part(0, "a", 1), part(0, "a", 0), part(1, "b", 0), part(2, "a", 5))
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        found = {
            of: [one.id for one in await store.array(of)]
            for of in ("j3_0", "j3_1", "j3", "a", "b")
        }
        assert found["j3_0"] == ["j3_0_0", "j3_0_1"]
        assert found["j3_1"] == found["b"] == ["j3_1_0"]
        assert found["a"] == ["j3_2_5"]
        assert found["j3"] == []

    place.run(scenario)


def test_a_name_may_be_asked_for_among_the_jobs_of_one_user(place: Place) -> None:
    bob = UserName("bob")

    def part(sequence: int, owner: UserName) -> Job:
        own = spec("sweep_0", array_index=0)
        id = JobId(f"j{sequence}_0")
        return job(sequence, id=id, spec=own, array=job_id(sequence), owner=owner)

    async def scenario(store: Store) -> None:
        rows = (
            job(1, spec=spec("train"), owner=bob),
            job(2, spec=spec("train")),
            part(3, bob),
            part(4, ANN),
        )
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        for by, single, parts in ((None, "j2", ["j4_0"]), (bob, "j1", ["j3_0"])):
            found = await store.named("train", by=by)
            assert found is not None
            assert found.id == single
            assert [one.id for one in await store.array("sweep", by=by)] == parts
        assert [one.id for one in await store.array("j4", by=bob)] == ["j4_0"]
        assert await store.named("train", by=UserName("vera")) is None
        assert await store.array("sweep", by=UserName("vera")) == []

    place.run(scenario)


def test_a_name_means_its_newest_job(place: Place) -> None:
    async def scenario(store: Store) -> None:
        names = ["a", "b", "a", "a"]
        rows = tuple(
            job(i + 1, JobState.DONE if i == 3 else JobState.QUEUED, spec=spec(name))
            for i, name in enumerate(names)
        )
        await store.commit((await store.lead()).term, Changes(jobs=rows))
        newest = await store.named("a")
        assert newest is not None
        assert newest.id == "j4"
        assert await store.named("c") is None
        assert await store.job(JobId("a")) is None
        assert await store.names() == ["a", "b"]

    place.run(scenario)


def test_events_are_numbered_without_a_gap_and_read_from_any_number_on(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        first = await store.commit(term, Changes(events=(event("a", J1), event("b"))))
        second = await store.commit(term, Changes(events=(event("c", J1),)))
        assert [one.number for one in (*first, *second)] == [1, 2, 3]
        assert await store.events(after=0, job=None, limit=9) == [*first, *second]
        assert await store.events(after=1, job=None, limit=1) == [first[1]]
        assert await store.events(after=0, job=J1, limit=9) == [first[0], second[0]]
        assert await store.events(after=1, job=J1, limit=9) == [second[0]]
        assert await store.events(after=3, job=None, limit=9) == []
        assert await store.events(after=0, job=job_id(7), limit=9) == []

    place.run(scenario)


def test_only_the_newest_events_are_kept_and_no_number_comes_twice(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        for number in range(30):
            made = await store.commit(term, Changes(events=(event(str(number)),)))
            assert made[0].number == number + 1
        kept = await store.events(after=0, job=None, limit=99)
        assert [one.number for one in kept] == list(range(21, 31))
        assert [one.text for one in kept][:2] == ["20", "21"]

    place.run(scenario, keep_events=10)


def test_a_nul_is_kept_in_a_record_and_is_part_of_no_name(place: Place) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        row = job(1, reason="a\0b")
        await store.commit(term, Changes(jobs=(row,), events=(event("a\0b"),)))
        assert await store.job(J1) == row
        assert (await store.events(after=0, job=None, limit=1))[0].text == "a\0b"
        assert await store.named("a\0") is None
        assert await store.array("a\0") == []
        assert await store.secret("\0") is None

    place.run(scenario)


def test_secrets_are_replaced_listed_without_their_values_and_dropped(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        await store.put_secret("B", b"\x00sealed", by=ANN, at=1.5)
        await store.put_secret("A", b"one", by=ANN, at=2.5)
        await store.put_secret("A", b"two", by=UserName("bob"), at=3.5)
        assert await store.secret("A") == b"two"
        assert await store.secret("B") == b"\x00sealed"
        assert await store.secret("C") is None
        assert await store.secrets() == [("A", "bob", 3.5), ("B", ANN, 1.5)]
        assert await store.secrets_for_everybody() == set()
        await store.put_secret("B", b"shared", by=ANN, at=4.5, for_everybody=True)
        # it stays so until that is said
        await store.put_secret("B", b"again", by=ANN, at=4.5)
        assert await store.secrets_for_everybody() == {"B"}
        await store.put_secret("B", b"mine", by=ANN, at=4.5, for_everybody=False)
        assert await store.secrets_for_everybody() == set()
        assert await store.drop_secret("A") is True
        assert await store.drop_secret("A") is False
        assert await store.secret("A") is None

    place.run(scenario)


@pytest.mark.parametrize(
    "text", ["'; DROP TABLE jobs; --", "né ☃ \u202e", "a\nb\x1b[31m"]
)
def test_text_of_any_kind_comes_back_as_it_was(place: Place, text: str) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        row = job(1, reason=text)
        await store.commit(term, Changes(jobs=(row,), events=(event(text),)))
        assert await store.job(J1) == row
        assert (await store.events(after=0, job=None, limit=1))[0].text == text
        await store.put_secret(text, b"x", by=UserName(text), at=0.0)
        assert await store.secret(text) == b"x"
        assert await store.named(text) is None

    place.run(scenario)
