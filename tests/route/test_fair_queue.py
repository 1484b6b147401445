"""Rules of the fair queue."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from corral.route.fair_queue import QUANTUM_TOKENS, FairQueue, PriorityClass, QueuedItem

NORMAL = PriorityClass.NORMAL

operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("push"),
            st.sampled_from("abc"),
            st.sampled_from(PriorityClass),
            st.integers(0, 50_000),
            st.floats(0.1, 20),
        ),
        st.tuples(st.just("pop")),
        st.tuples(st.just("remove"), st.integers(0, 200)),
        st.tuples(st.just("expire")),
        st.tuples(st.just("wait"), st.floats(0, 10)),
    ),
    max_size=150,
)


@given(operations=operations)
def test_every_item_leaves_exactly_once_and_classes_are_strict(
    operations: list[tuple[object, ...]],
) -> None:
    queue: FairQueue[int] = FairQueue(most_items=20, most_bytes=20_000)
    places: dict[int, QueuedItem[int]] = {}
    inside: dict[int, QueuedItem[int]] = {}
    now = 0.0
    for number, operation in enumerate(operations):
        match operation:
            case (
                "push",
                str(owner),
                PriorityClass() as priority,
                int(tokens),
                float(s),
            ):
                waiting = len(queue)
                place = queue.push(owner, priority, tokens, number, now, now + s, 1500)
                assert (place is None) is (waiting >= 13)  # by bytes
                if place is not None:
                    places[number] = inside[number] = place
            case ("pop",):
                popped = queue.pop(now)
                able = [place for place in inside.values() if place.deadline > now]
                assert (popped is None) is (not able)
                if popped is not None:
                    place = inside.pop(popped)
                    assert place.deadline > now
                    assert place.priority == min(other.priority for other in able)
            case ("remove", int(index)) if places:
                item = list(places)[index % len(places)]
                assert queue.remove(places[item]) is (item in inside)
                inside.pop(item, None)
            case ("expire",):
                late = [name for name, place in inside.items() if place.deadline <= now]
                assert sorted(queue.expire(now)) == sorted(late)
                for name in late:
                    del inside[name]
            case ("wait", float(seconds)):
                now += seconds
        able_count = sum(place.deadline > now for place in inside.values())
        assert able_count <= len(queue) <= len(inside)
        assert queue.size_bytes == 1500 * len(queue)
    while queue.pop(now) is not None:
        pass
    queue.expire(now)
    assert len(queue) == 0
    assert queue.size_bytes == 0


@given(
    sizes=st.lists(st.integers(1, 20_000), min_size=2, max_size=5),
    served=st.integers(1, 300),
)
def test_owners_who_wait_get_equal_tokens(sizes: list[int], served: int) -> None:
    queue: FairQueue[int] = FairQueue(most_items=10_000)
    for owner, tokens in enumerate(sizes):
        for _ in range(served):
            queue.push(str(owner), NORMAL, tokens, owner, 0.0, 1.0)
    tokens_of = Counter({owner: 0 for owner in range(len(sizes))})
    for _ in range(served):
        winner = queue.pop(0.0)
        assert winner is not None
        tokens_of[winner] += sizes[winner]
    spread = max(tokens_of.values()) - min(tokens_of.values())
    assert spread <= 2 * max(sizes) + 2 * QUANTUM_TOKENS


def test_an_owner_with_many_requests_does_not_delay_another() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(500):
        queue.push("flood", NORMAL, 1000, "flood", 0.0, 1.0)
    queue.push("quiet", NORMAL, 1000, "quiet", 0.0, 1.0)
    order = [queue.pop(0.0) for _ in range(10)]
    assert "quiet" in order[:3]


def test_one_owner_is_served_in_the_order_of_arrival() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(100):
        queue.push("a", NORMAL, number * 37 % 5000, number, 0.0, 1.0)
    assert [queue.pop(0.0) for _ in range(100)] == list(range(100))


def test_a_full_queue_and_a_past_deadline_are_refused() -> None:
    queue: FairQueue[int] = FairQueue(most_items=2, most_bytes=100)
    assert queue.push("a", NORMAL, 1, 1, 5.0, 5.0) is None
    assert queue.push("a", NORMAL, 1, 1, 5.0, 6.0, 60)
    assert queue.push("a", NORMAL, 1, 2, 5.0, 6.0, 60) is None
    assert queue.push("a", NORMAL, 1, 3, 5.0, 6.0, 40)
    assert queue.push("a", NORMAL, 1, 4, 5.0, 6.0, 0) is None


def test_a_removed_item_that_had_expired_is_not_returned() -> None:
    queue: FairQueue[int] = FairQueue()
    place = queue.push("a", NORMAL, 1, 1, 0.0, 1.0)
    assert place is not None
    assert queue.pop(2.0) is None
    assert queue.remove(place)
    assert not queue.remove(place)
    assert queue.expire(2.0) == []


def test_a_request_of_any_size_is_served_after_few_steps() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("a", NORMAL, 2**62, "a", 0.0, 1.0)
    queue.push("b", NORMAL, 2**61, "b", 0.0, 1.0)
    assert [queue.pop(0.0), queue.pop(0.0), queue.pop(0.0)] == ["b", "a", None]


def test_items_that_left_take_no_memory() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.push("a", NORMAL, 1, 0, 0.0, 1e9)
    for number in range(20_000):
        place = queue.push("a", NORMAL, 1, number, 0.0, 1e9)
        assert place is not None
        queue.remove(place)
    owner = queue._classes[NORMAL].owners["a"]
    assert len(owner.items) < 3000
    assert len(queue._deadlines) < 3000


def test_in_a_full_queue_places_go_by_owners_and_not_by_how_often_each_asks() -> None:
    queue: FairQueue[str] = FairQueue(most_items=6)
    for number in range(6):
        assert queue.push("loud", NORMAL, 10, f"loud {number}", 0.0, 9.0) is not None
    assert queue.push("quiet", NORMAL, 10, "quiet 0", 0.0, 9.0) is None
    for number in range(3):
        displaced = queue.displace("quiet", NORMAL)
        assert displaced == f"loud {5 - number}"
        assert queue.push("quiet", NORMAL, 10, f"quiet {number}", 0.0, 9.0) is not None
    assert queue.displace("quiet", NORMAL) is None
    assert queue.displace("loud", NORMAL) is None
    assert len(queue) == 6


def test_a_lower_class_gives_way_and_a_higher_one_never() -> None:
    queue: FairQueue[str] = FairQueue(most_items=2)
    queue.push("a", PriorityClass.BATCH, 10, "batch", 0.0, 9.0)
    queue.push("a", PriorityClass.HIGH, 10, "high", 0.0, 9.0)
    assert queue.displace("a", PriorityClass.NORMAL) == "batch"
    assert queue.displace("b", PriorityClass.NORMAL) is None
    assert queue.pop(1.0) == "high"
