"""Gangs that are alike wait together, whatever came and went before."""

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId, UserName
from corral.domain.placement_constraints import PlaceRule
from corral.domain.resources import Resources, Shape
from corral.schedule.job_groups import Groups
from corral.schedule.waiting import Waiting

ONE = (Shape(nodes=1, resources=Resources(gpu_millis=1000)),)
TWO = (Shape(nodes=1, resources=Resources(gpu_millis=2000)),)


@st.composite
def gangs(draw: st.DrawFn) -> Waiting:
    number = draw(st.integers(0, 9))
    return Waiting(
        job=JobId(f"j{number}"),
        shapes=draw(st.sampled_from([ONE, TWO])),
        priority=draw(st.sampled_from([0, 100])),
        order=(draw(st.integers(0, 3)), number),
        user=UserName(draw(st.sampled_from(["ann", "bob"]))),
        kin=draw(st.sampled_from(["web", "db"])),
        place=PlaceRule(apart_from=draw(st.sampled_from([(), ("web",)]))),
    )


def parts(groups: Groups) -> set[tuple[Waiting, ...]]:
    return {tuple(gangs) for gangs in groups}


@given(steps=st.lists(gangs() | st.integers(0, 9), max_size=30), shunned=st.booleans())
def test_what_is_kept_is_as_if_made_anew(
    steps: list[Waiting | int], shunned: bool
) -> None:
    groups, there = Groups(), dict[JobId, Waiting]()
    for step in steps:
        if isinstance(step, int):
            groups.drop(JobId(f"j{step}"))
            there.pop(JobId(f"j{step}"), None)
        else:
            groups.put(step)
            there[step.job] = step
    names = {"web"} if shunned else set[str]()
    groups.tell_apart(names)
    anew = Groups(there.values())
    anew.tell_apart(names)
    assert parts(groups) == parts(anew)
    assert len(groups) == len(there)
    assert groups.apart_from() == {
        name for gang in there.values() for name in gang.place.apart_from
    }


def test_a_group_is_of_one_size_user_priority_and_goes_by_age() -> None:
    def gang(
        name: str, number: int, shapes: tuple[Shape, ...] = ONE, **more: object
    ) -> Waiting:
        return Waiting(
            job=JobId(name),
            shapes=shapes,
            order=(number, 0),
            **{"priority": 0, **more},  # type: ignore[arg-type]
        )

    groups = Groups(
        [gang("b", 2), gang("a", 1), gang("wide", 3, TWO), gang("first", 4, priority=9)]
    )
    assert {tuple(one.job for one in gangs) for gangs in groups} == {
        ("a", "b"), ("wide",), ("first",)
    }  # fmt: skip


def test_whoever_others_shun_is_a_group_of_its_own() -> None:
    groups = Groups(
        Waiting(job=JobId(name), shapes=ONE, priority=0, order=(0, 0), kin=name)
        for name in ("web", "db", "ci")
    )
    groups.tell_apart({"web"})
    assert {tuple(one.job for one in gangs) for gangs in groups} == {
        ("web",),
        ("db", "ci"),
    }
    groups.tell_apart(set())
    assert len(parts(groups)) == 1
