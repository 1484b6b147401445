"""What a refusal tells to do."""

from dataclasses import replace

import pytest

from corral.control.job_reasons import reason_held
from corral.control.request_checks import check_asked, check_specs
from corral.domain.errors import CannotFit, Conflict
from corral.domain.job_states import JobState
from corral.domain.placement_constraints import Constraint, PlaceRule
from corral.domain.reason_code import ReasonCode
from corral.domain.requests import Cancel, Suspend
from corral.domain.resources import Resources, Shape
from corral.reconcile import Now
from tests.worlds import Cluster, gang, node


def test_a_part_of_a_gpu_is_refused_with_how_to_offer_parts() -> None:
    half = replace(gang(), resources=Resources(gpu_millis=500))
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1")).world, [half], {})
    assert "corral up --gpu-shares" in refused.value.hint


def test_too_many_whole_gpus_are_refused_with_what_there_is() -> None:
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1")).world, [gang(gpus=99)], {})
    assert "--gpu-shares" not in refused.value.hint
    assert "corral node ls" in refused.value.hint


@pytest.mark.parametrize(
    ("gpus", "said", "there"),
    [
        ((0,), "no node of this cluster is large", "there is 1 node without GPUs; "),
        (
            (0, 0),
            "no node of this cluster is large",
            "there are 2 nodes without GPUs; ",
        ),
        (
            (1,),
            "no node of this cluster is large",
            "there is 1 node with 1 GPU (h100); ",
        ),
        ((8,), "this cluster has only 1 node", "there is 1 node with 8 GPUs (h100); "),
        (
            (2, 8),
            "only 1 of the 2 nodes of this cluster is large enough",
            "with up to 8 GPUs (h100); ",
        ),
    ],
)
def test_what_is_there_is_told_in_plain_words(
    gpus: tuple[int, ...], said: str, there: str
) -> None:
    nodes = (node(f"n{number}", gpus=count) for number, count in enumerate(gpus))
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(*nodes).world, [gang(nodes=2, gpus=8)], {})
    assert said in refused.value.message
    assert there in refused.value.hint


def test_where_no_node_has_gpus_it_is_told_how_to_pretend_some() -> None:
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1", gpus=0)).world, [gang(gpus=2)], {})
    assert refused.value.hint.endswith("run: corral down; corral up --gpus 2")


def test_where_no_node_has_gpus_parts_of_them_are_pretended_too() -> None:
    half = replace(gang(), resources=Resources(gpu_millis=500))
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1", gpus=0)).world, [half], {})
    assert refused.value.hint.endswith(
        "run: corral down; corral up --gpus 1 --gpu-shares"
    )


@pytest.mark.parametrize(
    "asked", [Resources(gpu_millis=2000), Resources(gpu_millis=500)]
)
def test_where_nodes_are_lent_it_is_told_where_to_look_and_not_how_to_make_some(
    asked: Resources,
) -> None:
    world = Cluster(node("n1", gpus=0)).world
    with pytest.raises(CannotFit) as refused:
        check_specs(world, [replace(gang(), resources=asked)], {}, shown_by="sinfo -N")
    assert refused.value.hint.startswith("there is 1 node without GPUs; ")
    assert refused.value.hint.endswith(
        "run: corral node ls; or, for the engine's own list: sinfo -N"
    )
    assert "corral up" not in refused.value.hint


def test_where_lent_nodes_have_gpus_but_give_no_parts_a_whole_one_is_told() -> None:
    half = replace(gang(), resources=Resources(gpu_millis=500))
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1")).world, [half], {}, shown_by="sinfo -N")
    assert refused.value.hint.startswith(
        "no node allows shares of a GPU; ask for a whole GPU; "
    )


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (Shape(nodes=3, resources=Resources(gpu_millis=2000)), "2 nodes with 2 GPUs"),
        (Shape(nodes=2, resources=Resources(gpu_millis=8000)), "1 node with 8 GPUs"),
        (Shape(nodes=1, resources=Resources(gpu_millis=16_000)), "1 node with 8 GPUs"),
        (
            Shape(
                nodes=1,
                resources=Resources(gpu_millis=1000, gpu_type="b200", cpu_millis=10**6),
            ),
            "1 node with 1 h100 GPU, 8 CPUs",
        ),
    ],
)
def test_what_would_fit_is_named_and_is_taken(asked: Shape, fits: str) -> None:
    world = Cluster(node("n1", gpus=2), node("n2", gpus=8)).world
    spec = replace(gang(), nodes=asked.nodes, resources=asked.resources)
    with pytest.raises(CannotFit) as refused:
        check_specs(world, [spec], {})
    assert f"; this would fit: {fits}; " in refused.value.hint


def test_of_several_forms_the_largest_that_would_fit_is_named() -> None:
    forms = (Shape(nodes=1, resources=Resources(gpu_millis=99_000)),)
    spec = replace(gang(nodes=3, gpus=1), any_of=forms)
    nodes = [node("n1", gpus=4), node("n2", gpus=1)]
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(*nodes).world, [spec], {})
    assert (
        "; this would fit: 1 node with 4 GPUs; run: corral node ls"
        in refused.value.hint
    )


def test_nothing_is_named_that_a_rule_of_place_keeps_from_fitting() -> None:
    rule = PlaceRule(constraints=(Constraint(label="zone", values=("b",)),))
    spec = replace(gang(nodes=3, gpus=1), place=rule)
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1"), node("n2")).world, [spec], {})
    assert "would fit" not in refused.value.hint


def test_where_all_gpus_are_cut_a_part_is_named() -> None:
    whole = node("n1")
    cut = [replace(gpu, slices=("a", "b", "c", "d")) for gpu in whole.inventory.gpus]
    sliced = replace(whole, inventory=replace(whole.inventory, gpus=tuple(cut)))
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(sliced).world, [gang(gpus=1)], {})
    assert (
        refused.value.hint
        == "all GPUs here are partitioned (MIG) into 4 slices; ask for slices: gpu: 0.25"
    )


def test_a_form_that_labels_rule_out_is_refused_for_them_beside_another_form() -> None:
    forms = (Shape(nodes=2, resources=Resources(gpu_millis=2_000, gpu_type="a100")),)
    place = PlaceRule(constraints=(Constraint(label="zone", values=("a",)),))
    spec = replace(gang(gpus=2), any_of=forms, place=place)
    world = Cluster(*(node(f"n{place}", gpus=2) for place in range(3))).world
    with pytest.raises(CannotFit) as refused:
        check_specs(world, [spec], {})
    assert "has only 3 nodes" not in refused.value.message
    assert (
        "with zone=a; 0 of the 3 nodes that are large enough match"
        in refused.value.message
    )
    assert "zone" in refused.value.hint


def test_each_of_several_forms_is_told_with_why_it_cannot_be() -> None:
    two = gang(nodes=3, gpus=1)
    forms = (Shape(nodes=1, resources=Resources(gpu_millis=99_000)),)
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1")).world, [replace(two, any_of=forms)], {})
    assert refused.value.message.endswith(
        " asks for 3 nodes with 1 GPU (this cluster has only 1 node), "
        "or 1 node with 99 GPUs (no node of this cluster is large enough)"
    )


def test_what_is_being_cancelled_cannot_be_kept_for_later() -> None:
    cluster = Cluster(node("n1"))
    id, now = cluster.submit(gang("train")), Now(wall=0.0, serving=0.0)
    cluster.up(id)
    check_asked(cluster.world, Suspend(job=id), now)
    cluster.request(Cancel(job=id))
    assert cluster.world.jobs[id].state == JobState.STOPPING
    with pytest.raises(
        Conflict, match="train cannot be suspended: it is being cancelled"
    ):
        check_asked(cluster.world, Suspend(job=id), now)
    check_asked(cluster.world, Cancel(job=id), now)


def test_every_job_has_a_reason_also_one_that_no_pass_has_seen() -> None:
    cluster, now = Cluster(node("n1")), Now(wall=0.0, serving=0.0)
    job = cluster.world.jobs[cluster.submit(gang("train"))]
    new = replace(
        job, state=JobState.QUEUED, reason=ReasonCode.NONE, reason_code=ReasonCode.NONE
    )
    assert "the next scheduling pass" in reason_held(cluster.world, new, now).sentence
    back = replace(new, reason="requested by ann")
    assert reason_held(cluster.world, back, now).sentence.startswith(
        "requested by ann: the next scheduling pass"
    )
    assert (
        reason_held(cluster.world, new, now, stopped="it is stopped").sentence
        == "it is stopped"
    )


def test_who_is_suspended_is_told_how_to_go_on() -> None:
    cluster, now = Cluster(node("n1", gpus=1)), Now(wall=0.0, serving=0.0)
    cluster.submit(gang("first"))
    id = cluster.submit(gang("second"))
    cluster.request(Suspend(job=id))
    found = reason_held(cluster.world, cluster.world.jobs[id], now)
    assert found.suggestions == (f"to resume it: corral resume {id}",)
