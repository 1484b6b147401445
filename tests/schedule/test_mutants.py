"""Rules of the pass taken out, one at a time: a property misses each."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from corral.domain.queue_policy import Policy
from tests.schedule import test_brute as brute
from tests.schedule import test_days as days
from tests.schedule import test_later_comers as later
from tests.schedule import test_promises as promises
from tests.schedule import test_victims as victims
from tests.simulate.mutant import Mutant
from tests.simulate.mutants import breed

MOST_WORLDS = 3000  # so many are looked at before a rule is called unguarded
Property = tuple[Any, *tuple[SearchStrategy[Any], ...]]

PLACE = (
    brute.test_a_gang_has_a_place_just_where_some_choice_of_nodes_is_one,
    brute.steads(),
    brute.asks(),
)
WAY = (
    brute.test_somebody_gives_way_just_where_some_choice_of_victims_lets_the_gang_in,
    brute.full_houses(),
)
LEAST = (brute.test_of_the_victims_none_could_be_left_alone, brute.full_houses())
LIMITED = (LEAST[0], st.just(brute.OVER_ITS_LIMIT))
OWN = (
    victims.test_what_is_a_queues_own_is_its_within_one_minimum_run_time_whoever_has_borrowed_it,
    st.data(),
)
PROMISED = (promises.test_no_promise_is_ever_broken, promises.trees(), promises.comes())
SLIPS = (
    promises.test_an_end_that_each_look_finds_a_moment_later_moves_a_promise_by_no_more_than_that,
    promises.trees(),
    promises.comes(),
)
OUTLASTED = (
    promises.test_when_one_outlasts_its_limit_who_was_told_first_still_starts_first,
    promises.DELAYS,
)
LATER = (
    later.test_what_was_promised_before_is_not_later_for_those_who_come_later,
    st.sampled_from([Policy.CONSERVATIVE, Policy.BACKFILL]),
    promises.comes(),
    promises.comes(),
)
BOUND = (
    days.test_every_gang_begins_within_its_bound_though_small_ones_never_stop_coming,
    st.data(),
)
REST = (
    victims.test_without_new_gangs_it_comes_to_rest_and_the_work_lost_is_bounded,
    victims.houses(),
)

MUTANTS: list[tuple[Mutant, Property]] = [
    (
        Mutant(
            "what is promised later is free all the time",
            "schedule.placement.availability:Availability.least",
            "start < promise_start < stop",
            "False",
            "",
        ),
        PROMISED,
    ),
    (
        Mutant(
            "what is promised is free when it begins",
            "schedule.placement.availability:Availability._at",
            "stay.holds_at(at)",
            "False",
            "",
        ),
        PROMISED,
    ),
    (
        Mutant(
            "a job without a limit has gone by then",
            "schedule.backfill.promises:Promising._stop",
            "inf if",
            "self._now if",
            "",
        ),
        PROMISED,
    ),
    (
        Mutant(
            "what is promised of a quota is free",
            "schedule.backfill.promises:Promising.lets",
            "ahead is None or",
            "True or",
            "",
        ),
        PROMISED,
    ),
    (
        Mutant(
            "the next pass knows of no promise",
            "schedule.backfill.promises:Promising.load",
            "gang is not None",
            "False",
            "",
        ),
        PROMISED,
    ),
    (
        Mutant(
            "a limit is thought to be shorter",
            "schedule.backfill.promises:Promising.begin",
            "self._now + gang.holds_seconds",
            "self._now + gang.holds_seconds / 2",
            "",
        ),
        PROMISED,
    ),
    (
        Mutant(
            "who was told later keeps who was told before it waiting",
            "schedule.backfill.promises:Promising._put_off",
            "_told(pair) > own_turn",
            "False",
            "",
        ),
        OUTLASTED,
    ),
    (
        Mutant(
            "an end that is found a moment later is another",
            "schedule.backfill.promises:Promising._as_known",
            "is_same = ",
            "is_same = False and ",
            "",
        ),
        SLIPS,
    ),
    (
        Mutant(
            "who comes later uses what is promised",
            "schedule.backfill.promises:Promising.turn_to",
            "self._opened.see(self._stop(gang))",
            "self._opened.see(self._now)",
            "",
        ),
        LATER,
    ),
    (
        Mutant(
            "who comes later goes first",
            "schedule.order.queue_order:_Run.key",
            "first_gang.order,",
            "(-first_gang.order[0], 0),",
            "",
        ),
        LATER,
    ),
    (
        Mutant(
            "nothing is kept for one that has waited",
            "schedule.decide:_explain",
            "state.now - gang.since >= RESERVE_AFTER_SECONDS",
            "False",
            "",
        ),
        BOUND,
    ),
    (
        Mutant(
            "a node's name counts for nothing",
            "schedule.placement.gang_placement:may_use",
            "gang.pinned_to in (None, room.id)",
            "True",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "labels count for nothing",
            "schedule.placement.gang_placement:may_use",
            "not rule.constraints or rule.admits(room.labels)",
            "True",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "who is on a node may not say who else is",
            "schedule.placement.gang_placement:is_apart",
            "room.shunned and room.shunned[gang.kin]",
            "False",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "who comes to a node may not say who else is",
            "schedule.placement.gang_placement:is_apart",
            "any(room.guests[name] for name in gang.place.apart_from)",
            "False",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "a path is seen alike everywhere",
            "schedule.placement.gang_placement:_of_one_mark",
            "path is None",
            "True",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "a gang begins without a port",
            "schedule.placement.gang_placement:_gather_seats",
            "not room.free_ports",
            "False",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "a domain that is required is only preferred",
            "schedule.placement.topology:_candidate_domains",
            "if topology.mode == Mode.REQUIRE else _ANYWHERE",
            "if False else _ANYWHERE",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "cores are without end",
            "schedule.capacity.node_room:NodeRoom.seat",
            "asked.cpu_millis > self.free_cpu_millis",
            "False",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "an exclusive job has company",
            "schedule.capacity.node_room:NodeRoom.seat",
            "self.alone or (exclusive and self.seats)",
            "False",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "any type will do",
            "schedule.capacity.node_room:NodeRoom._pick_whole_gpus",
            "asked.gpu_type is not None and",
            "False and",
            "",
        ),
        PLACE,
    ),
    (
        Mutant(
            "nobody is spared",
            "schedule.preemption.victim_search:Search._in",
            "if other_seats:",
            "if False:",
            "",
        ),
        LEAST,
    ),
    (
        Mutant(
            "what those leave who are over a limit is not looked at",
            "schedule.preemption.victim_search:Search._with_freed",
            "if freed else nodes",
            "if False else nodes",
            "",
        ),
        LIMITED,
    ),
    (
        Mutant(
            "limits stop nobody",
            "schedule.preemption.victim_search:Search._in",
            "not self._within_limits()",
            "False",
            "",
        ),
        WAY,
    ),
    (
        Mutant(
            "one node is enough",
            "schedule.preemption.victim_search:Search._nodes",
            "while heap and len(nodes) < self.shape.nodes",
            "while heap and not nodes",
            "",
        ),
        WAY,
    ),
    (
        Mutant(
            "no priority is too low",
            "schedule.preemption.rights:PreemptionRights.right",
            "victim.priority < gang.priority",
            "victim.priority <= gang.priority",
            "",
        ),
        REST,
    ),
    (
        Mutant(
            "what is borrowed stays borrowed",
            "schedule.preemption.rights:PreemptionRights._can_reclaim",
            "standing.gives_back(their_path[shared_depth])",
            "False",
            "",
        ),
        OWN,
    ),
]


# A thousand worlds and more are looked at before one tells these from the rule.
RARE = {"who comes later goes first", "what is promised of a quota is free"}


@pytest.mark.parametrize(
    ("mutant", "missed_by"),
    [
        pytest.param(
            *one, id=one[0].name, marks=pytest.mark.soak if one[0].name in RARE else ()
        )
        for one in MUTANTS
    ],
)
def test_a_rule_taken_out_is_missed(
    mutant: Mutant, missed_by: Property, monkeypatch: pytest.MonkeyPatch
) -> None:
    breed(mutant, monkeypatch)
    rule, *worlds = missed_by
    search = settings(
        max_examples=MOST_WORLDS, phases=[Phase.generate], report_multiple_bugs=False
    )
    with pytest.raises(AssertionError):
        search(given(*worlds)(rule.hypothesis.inner_test))()
