"""What a spec means, in every spelling."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.elastic import Elastic
from corral.domain.errors import SpecInvalid
from corral.domain.job import (
    After,
    CheckpointRule,
    Disconnect,
    JobSpec,
    On,
    Per,
    Retry,
    TokenScope,
)
from corral.domain.resources import Resources, Shape
from corral.wire import schemas
from corral.wire.spec_fields import Spec
from corral.wire.spec_reader import parse_specs, parse_values, read_specs
from corral.wire.submission import to_domain

DESIGN = """\
name: tiny-gpt
nodes: 2                                  # [num_nodes]
resources: {gpu: "h100:8", cpu: 32, memory: 256GB}
any_of: []
queue: research
priority: normal
max_duration: 4h
env: {A: b}
secrets: [HF_TOKEN]
workdir: .
setup: pip install -r requirements.txt
run: python train.py
per: node
image: null
checkpoint: {path: ./ckpt, interval: auto, keep: 3}
retry: {infra: 20, user: 0}
disconnect: replace
elastic: {min_nodes: 1, max_nodes: 4}
after: [{job: prepare, on: done}]
array: 0-99%10
kind: job
"""


def jobs(text: str, *, toml: bool = False) -> tuple[JobSpec, ...]:
    return to_domain(parse_specs(text, source="job", toml=toml))


def job(**fields: Any) -> JobSpec:
    (one,) = to_domain(parse_values([{"name": "a", "run": "x", **fields}]))
    return one


def test_the_spec_of_the_design_means_what_it_says() -> None:
    all_jobs = jobs(DESIGN)
    assert [one.name for one in all_jobs] == [
        f"tiny-gpt_{index}" for index in range(100)
    ]
    assert all_jobs[7] == JobSpec(
        name="tiny-gpt_7",
        run="python train.py",
        nodes=2,
        resources=Resources(
            gpu_millis=8000,
            gpu_type="h100",
            cpu_millis=32_000,
            memory_bytes=256 * 10**9,
        ),
        queue="research",  # type: ignore[arg-type]
        max_duration_seconds=4 * 3600.0,
        env=(("A", "b"),),
        secrets=("HF_TOKEN",),
        workdir=".",
        setup="pip install -r requirements.txt",
        checkpoint=CheckpointRule(path="./ckpt"),
        retry=Retry(infra=20, user=0),
        disconnect=Disconnect.REPLACE,
        elastic=Elastic(min_nodes=1, max_nodes=4),
        after=(After(job="prepare", on=On.DONE),),  # type: ignore[arg-type]
        array_index=7,
        array_limit=10,
    )


@pytest.mark.parametrize(
    ("gpu", "kind", "millis"),
    [
        (8, None, 8000),
        (8.0, None, 8000),
        (0, None, 0),
        (0.5, None, 500),
        ("H100:8", "h100", 8000),
        ("h100", "h100", 1000),
        ("h100:0.5", "h100", 500),
        ("A100-80GB: 2", "a100-80gb", 2000),
        ({"H100": 8}, "h100", 8000),
        ({"name": "H100", "count": 2}, "h100", 2000),
        ({"name": "H100"}, "h100", 1000),
    ],
)
def test_gpus_in_every_form(gpu: Any, kind: str | None, millis: int) -> None:
    for field in ("gpu", "gpus", "accelerators"):
        resources = job(resources={field: gpu}).resources
        assert (resources.gpu_type, resources.gpu_millis) == (kind, millis)


@pytest.mark.parametrize(
    ("cpu", "millis"),
    [(32, 32_000), (0.5, 500), ("4+", 4000), ("4..8", 4000), ("4..", 4000)],
)
def test_cores_in_every_form(cpu: Any, millis: int) -> None:
    assert job(resources={"cpus": cpu}).resources.cpu_millis == millis


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        ("256GB", 256 * 10**9),
        ("64GiB", 64 * 2**30),
        ("32+", 32 * 10**9),
        ("32GB+", 32 * 10**9),
        ("16GB..64GB", 16 * 10**9),
        ("512MB..", 512 * 10**6),
    ],
)
def test_memory_in_every_form(memory: Any, size: int) -> None:
    assert job(resources={"memory": memory}).resources.memory_bytes == size


def test_the_spellings_of_other_tools_mean_the_same() -> None:
    ours = (
        "name: a\nnodes: 2\nresources: {gpu: 'h100:8', cpu: 4}\nrun: x\nenv: {A: b}\n"
    )
    theirs = "type: task\n" + ours
    for word, other in (
        ("nodes", "num_nodes"),
        ("gpu", "accelerators"),
        ("cpu", "cpus"),
        ("run: x", "commands: [x]"),
        ("env", "envs"),
    ):
        theirs = theirs.replace(word, other, 1)
    assert jobs(ours) == jobs(theirs)


def test_a_list_of_commands_stops_at_the_first_that_fails() -> None:
    assert job(run=["a", "b"]).run == "set -e\na\nb"
    assert job(run=["a"]).run == "a"


def test_words_stay_words_and_numbers_in_env_stay_as_written() -> None:
    one = jobs(
        "name: a\nrun: x\nenv: {V: 1.10, Z: 007, Y: yes, O: 'true', T: 2026-01-01, C: 12:30}"
    )
    assert dict(one[0].env) == {
        "V": "1.10", "Z": "007", "Y": "yes", "O": "true", "T": "2026-01-01", "C": "12:30",
    }  # fmt: skip
    done = jobs("name: a\nrun: x\nafter: [{job: b, on: done}]\nmax_duration: 12:00:00")
    assert done[0].after == (After(job="b"),)  # type: ignore[arg-type]
    assert done[0].max_duration_seconds == 12 * 3600


def test_other_shapes_take_the_jobs_nodes_unless_they_say() -> None:
    shapes = job(nodes=2, any_of=[{"resources": {"gpu": 8}}, {"nodes": 4}]).any_of
    assert shapes == (
        Shape(nodes=2, resources=Resources(gpu_millis=8000)),
        Shape(nodes=4, resources=Resources()),
    )


def test_a_ray_program_is_a_gang_with_a_token_of_its_own() -> None:
    one = job(kind="ray", nodes=2, secrets=["HF_TOKEN"])
    assert (one.ray, one.nodes, one.secrets) == (True, 2, ("HF_TOKEN", "CORRAL_TOKEN"))
    assert job(kind="ray", secrets=["CORRAL_TOKEN"]).secrets == ("CORRAL_TOKEN",)
    assert not job().ray


def test_a_token_is_asked_for_by_its_scope_and_is_narrow_without_one() -> None:
    for asked, scope, secrets in (
        ({}, TokenScope.OWN, ()),
        ({"secrets": ["CORRAL_TOKEN"]}, TokenScope.OWN, ("CORRAL_TOKEN",)),
        ({"token": "own"}, TokenScope.OWN, ("CORRAL_TOKEN",)),
        ({"token": "submit"}, TokenScope.SUBMIT, ("CORRAL_TOKEN",)),
        ({"kind": "ray", "token": "submit"}, TokenScope.SUBMIT, ("CORRAL_TOKEN",)),
    ):
        (job,) = to_domain(parse_values([{"name": "a", "run": "true", **asked}]))
        assert (job.token, job.secrets) == (scope, secrets)
    with pytest.raises(SpecInvalid, match="token"):
        parse_values([{"name": "a", "run": "true", "token": "admin"}])


def test_short_forms() -> None:
    one = job(
        checkpoint="./c", after="b", per="gpu", resources={"gpu": 2}, priority="high"
    )
    assert one.checkpoint == CheckpointRule(path="./c")
    assert one.after == (After(job="b"),)  # type: ignore[arg-type]
    assert (one.per, one.priority) == (Per.GPU, 100)
    assert [after.job for after in job(after=["b", "c"]).after] == ["b", "c"]
    assert job(after="b:failed").after == (After(job="b", on=On.FAILED),)  # type: ignore[arg-type]
    assert job(checkpoint={"path": "c", "interval": "5m"}).checkpoint == CheckpointRule(
        path="c", interval_seconds=300
    )


def test_several_jobs_in_one_toml_table_are_told_how_to_be_written() -> None:
    with pytest.raises(SpecInvalid, match="a line --- between"):
        parse_specs('[[jobs]]\nname = "a"\nrun = "x"\n', source="many.toml", toml=True)


def test_an_image_is_read() -> None:
    assert job(image="ubuntu:24.04").image == "ubuntu:24.04"


def test_anchors_and_merges_work_and_own_fields_win() -> None:
    text = (
        "name: a\nrun: x\nresources: &r {gpu: 1, cpu: 2}\nany_of: "
        "[{resources: {<<: *r, gpu: 4}}]"
    )
    assert jobs(text)[0].any_of[0].resources == Resources(
        gpu_millis=4000, cpu_millis=2000
    )


def test_toml_means_the_same(tmp_path: Path) -> None:
    text = 'name = "a"\nrun = "x"\nnodes = 2\n[resources]\ngpu = "h100:8"\n[env]\nA = "b"\n'
    path = tmp_path / "job.toml"
    path.write_text(text)
    assert to_domain(read_specs(path)) == jobs(
        "name: a\nrun: x\nnodes: 2\nresources: {gpu: 'h100:8'}\nenv: {A: b}"
    )


def test_jobs_of_one_file_refer_to_one_another_by_place_and_keep_their_order() -> None:
    text = """
name: eval
run: x
after: [{job: sweep, on: ended}, {job: sweep_1}, {job: outside}]
---
name: sweep
run: x
array: 0-2
after: prepare
---
name: prepare
run: x
"""
    all_jobs = jobs(text)
    assert [one.name for one in all_jobs] == [
        "eval",
        "sweep_0",
        "sweep_1",
        "sweep_2",
        "prepare",
    ]
    assert [(one.job, one.on) for one in all_jobs[0].after] == [
        ("@1", "ended"), ("@2", "ended"), ("@3", "ended"), ("@2", "done"), ("outside", "done"),
    ]  # fmt: skip
    assert {one.after for one in all_jobs[1:4]} == {(After(job="@4"),)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("array", "indices"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("1,3,5-6", [1, 3, 5, 6]),
        ("0-8:4", [0, 4, 8]),
        ("7", [7]),
    ],
)
def test_arrays_in_slurms_forms(array: str, indices: list[int]) -> None:
    found = to_domain(parse_values([{"name": "s", "run": "x", "array": array}]))
    assert [one.array_index for one in found] == indices
    assert [one.name for one in found] == [f"s_{index}" for index in indices]


def test_two_arrays_of_one_name_are_told_apart() -> None:
    specs = [{"name": "s", "run": "x", "array": array} for array in ("0-1", "2-3")]
    assert [one.array_place for one in to_domain(parse_values(specs))] == [0, 0, 1, 1]


def test_a_chain_of_thousands_is_no_cycle_and_a_ring_of_thousands_is_one() -> None:
    chain = [{"name": f"j{n}", "run": "x", "after": f"j{n + 1}"} for n in range(3000)]
    last = {"name": "j3000", "run": "x"}
    assert len(to_domain(parse_values([*chain, last]))) == 3001
    with pytest.raises(SpecInvalid, match=r"j0 -> j1 -> .* -> \.\.\. -> j3000 -> j0"):
        to_domain(parse_values([*chain, {**last, "after": "j0"}]))


def test_too_many_jobs_at_once_are_refused() -> None:
    sweep = {"run": "x", "array": "0-5999"}
    with pytest.raises(SpecInvalid, match="more than 10,000 jobs"):
        to_domain(parse_values([{"name": "a", **sweep}, {"name": "b", **sweep}]))
    many = {"run": "x", "array": "0-999"}
    with pytest.raises(SpecInvalid, match="dependencies"):
        to_domain(
            parse_values([{"name": "a", **many, "after": "b"}, {"name": "b", **many}])
        )


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = sorted(Spec.model_fields) + ["num_nodes", "commands", "accelerators", "x"]
INNER = [
    "gpu",
    "cpu",
    "memory",
    "path",
    "interval",
    "keep",
    "infra",
    "user",
    "min_nodes",
    "job",
    "on",
]


@settings(max_examples=400, deadline=None)
@given(
    field=st.sampled_from(FIELDS),
    value=json_values
    | st.dictionaries(st.sampled_from(INNER), json_values, max_size=3),
)
def test_any_value_in_any_field_is_read_or_refused_and_never_worse(
    field: str, value: Any
) -> None:
    refusal = refused(
        lambda: to_domain(parse_values([{"name": "a", "run": "x", field: value}]))
    )
    assert refusal is None or (refusal.message and refusal.hint)


def refused(read: Callable[[], object]) -> SpecInvalid | None:
    """The refusal, if it is one; anything else that is raised is a bug."""
    try:
        read()
    except SpecInvalid as error:
        return error
    return None


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=200) | st.text("abname:run-[]{}&*!#|>'\" \n\t\\%@`,?", max_size=60)
)
def test_any_text_is_read_or_refused_and_never_worse(text: str) -> None:
    for toml in (False, True):
        refusal = refused(lambda kind=toml: jobs(text, toml=kind))  # type: ignore[misc]
        assert refusal is None or refusal.hint


HUGE = [10**400, -(10**400), 10**5000, 1e308, float("-inf"), {"a": 10**400}]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", HUGE, ids=range(len(HUGE)))
def test_a_number_that_no_machine_word_holds_is_refused(field: str, value: Any) -> None:
    spec = {"name": "a", "run": "x", field: value}
    assert refused(lambda: to_domain(parse_values([spec]))) is not None
    inner = {
        "name": "a",
        "run": "x",
        "resources": dict.fromkeys(("gpu", "cpu", "memory"), value),
    }
    assert refused(lambda: to_domain(parse_values([inner]))) is not None


def test_the_schema_takes_the_designs_spec_and_refuses_unknown_fields() -> None:
    validator = jsonschema_rs.validator_for(schemas()["spec"])
    (parsed,) = parse_specs(DESIGN, source="job")
    assert validator.is_valid(parsed.document.value)
    brackets = {
        "name": "a",
        "commands": ["x"],
        "num_nodes": 2,
        "resources": {"accelerators": "H100:8"},
    }
    assert validator.is_valid(brackets)
    for wrong in (
        {"nam": 1},
        {"nodes": -1},
        {"per": "rank"},
        {"resources": {"gpu": -1}},
        {"env": 3},
    ):
        assert not validator.is_valid({"name": "a", "run": "x", **wrong}), wrong


@settings(max_examples=300, deadline=None)
@given(
    field=st.sampled_from(
        ["nodes", "priority", "per", "checkpoint", "retry", "secrets", "disconnect"]
    ),
    value=json_values,
)
def test_what_is_read_is_also_valid_by_the_schema(field: str, value: Any) -> None:
    spec = {"name": "a", "run": "x", field: value}
    try:
        parse_values([spec])
    except SpecInvalid:
        return
    assert jsonschema_rs.validator_for(schemas()["spec"]).is_valid(spec)


def test_schemas_are_published_by_name() -> None:
    found = schemas()
    assert {"spec", "status", "show", "error", "plan"} <= found.keys()
    assert {"head", "nodes", "gpus", "jobs", "warnings"} <= set(
        found["status"]["properties"]
    )
    asked = {
        "name",
        "state",
        "reason",
        "attempts",
        "nodes",
        "exit_code",
        "receipts",
        "checkpoints",
    }
    assert asked <= set(found["show"]["properties"])
