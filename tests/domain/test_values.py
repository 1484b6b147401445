"""Values are checked when they are made: what cannot be is never there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.attempt import Exit
from corral.domain.elastic import Elastic
from corral.domain.errors import NotFound
from corral.domain.ids import NAME, NodeId, is_name, job_id
from corral.domain.job import (
    CheckpointRule,
    Disconnect,
    JobSpec,
    Retry,
)
from corral.domain.node import Liveness, Node
from corral.domain.resources import Gpu, Inventory, Resources, Shape


@pytest.mark.parametrize("name", ["a", "tiny-gpt", "n1", "A.b_c-9", "x" * 63])
def test_a_plain_word_is_a_name(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        "a-",
        ".a",
        "a b",
        "a/b",
        "a\n",
        "a;b",
        "$(id)",
        "x" * 64,
        "é",
        "٣",
        "a\x00",
        "_a",
    ],
)
def test_what_a_shell_or_a_path_could_misread_is_no_name(name: str) -> None:
    assert not is_name(name)


@given(st.from_regex(NAME, fullmatch=True))
def test_a_name_means_nothing_to_a_shell_or_a_path(name: str) -> None:
    assert is_name(name)
    assert name.isascii()
    assert not set(name) & set(" /\\$;&|<>`'\"\n\t*?[]{}()!#~=%")
    assert name not in (".", "..")


def test_job_ids_follow_the_order_of_acknowledgement() -> None:
    assert [job_id(number) for number in (1, 2, 10)] == ["j1", "j2", "j10"]
    assert is_name(job_id(7))


@pytest.mark.parametrize("field", ["gpu_millis", "cpu_millis", "memory_bytes"])
def test_no_resource_is_less_than_nothing(field: str) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Resources(**{field: -1})  # type: ignore[arg-type]


@given(st.integers(0, 64_000))
def test_a_share_takes_part_of_one_gpu_and_more_than_one_is_whole(millis: int) -> None:
    if millis > 1000 and millis % 1000:
        with pytest.raises(ValueError, match="must be whole"):
            Resources(gpu_millis=millis)
        return
    asked = Resources(gpu_millis=millis)
    assert (
        1000 * (asked.gpus - 1) < millis <= 1000 * asked.gpus
        or millis == asked.gpus == 0
    )
    assert asked.is_share == (0 < millis < 1000)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Resources(), "no GPU"),
        (Resources(gpu_millis=500), "0.5 GPU"),
        (Resources(gpu_millis=8000, gpu_type="h100"), "8 h100 GPUs"),
        (Resources(gpu_millis=1000, cpu_millis=1500), "1 GPU, 1.5 CPUs"),
        (Resources(memory_bytes=10**9), "1 GB memory"),
    ],
)
def test_resources_read_as_a_person_would_say_them(asked: Resources, text: str) -> None:
    assert str(asked) == text


def test_a_gang_has_a_node_and_its_gpus_add_up() -> None:
    assert Shape(nodes=3, resources=Resources(gpu_millis=2000)).gpu_millis == 6000
    assert str(Shape(nodes=1, resources=Resources())) == "1 node with no GPU"
    with pytest.raises(ValueError, match="nodes must be at least 1"):
        Shape(nodes=0, resources=Resources())


def test_gpu_indices_count_from_0_without_a_gap() -> None:
    def gpu(index: int) -> Gpu:
        return Gpu(index=index, uuid=f"u{index}", type="h100", memory_bytes=1)

    assert Inventory(gpus=(gpu(0), gpu(1))).gpu_types == {"h100"}
    with pytest.raises(ValueError, match="without a gap"):
        Inventory(gpus=(gpu(0), gpu(2)))


@pytest.mark.parametrize(("code", "signal"), [(None, None), (0, 9)])
def test_an_exit_is_a_code_or_a_signal(code: int | None, signal: int | None) -> None:
    with pytest.raises(ValueError, match="exactly one of code and signal"):
        Exit(code=code, signal=signal)


@pytest.mark.parametrize(
    ("end", "clean", "shown"),
    [(Exit(code=0), True, 0), (Exit(code=3), False, 3), (Exit(signal=9), False, 137)],
)
def test_an_exit_is_shown_as_a_shell_would(end: Exit, clean: bool, shown: int) -> None:
    assert (end.clean, end.shell_code) == (clean, shown)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a b"},
        {"run": "  "},
        {"nodes": 0},
        {"retry": Retry(infra=-1)},
        {"retry": Retry(user=-1)},
    ],
)
def test_a_spec_that_cannot_be_is_never_made(wrong: dict[str, object]) -> None:
    fields: dict[str, object] = {"name": "a", "run": "true"} | wrong
    with pytest.raises(ValueError, match="a job needs a valid name|nodes must be at"):
        JobSpec(**fields)  # type: ignore[arg-type]


def test_shapes_are_the_largest_size_first_then_the_alternatives() -> None:
    other = Shape(nodes=9, resources=Resources(gpu_millis=1000))
    spec = JobSpec(
        name="a", run="true", elastic=Elastic(min_nodes=2, max_nodes=4), any_of=(other,)
    )
    assert [shape.nodes for shape in spec.shapes] == [4, 3, 2, 9]
    assert [shape.nodes for shape in JobSpec(name="a", run="true", nodes=5).shapes] == [
        5
    ]


def test_silence_means_replace_with_a_checkpoint_rule_and_wait_without() -> None:
    plain = JobSpec(name="a", run="true")
    saving = JobSpec(name="a", run="true", checkpoint=CheckpointRule(path="ckpt"))
    asked = JobSpec(
        name="a",
        run="true",
        checkpoint=CheckpointRule(path="c"),
        disconnect=Disconnect.WAIT,
    )
    assert plain.when_silent == Disconnect.WAIT
    assert saving.when_silent == Disconnect.REPLACE
    assert asked.when_silent == Disconnect.WAIT


@given(
    st.sampled_from(Liveness),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "drained"]),
)
def test_only_an_alive_node_that_nobody_keeps_back_takes_work(
    liveness: Liveness, cordoned: bool, draining: bool, closed: str
) -> None:
    node = Node(
        id=NodeId("n1"),
        liveness=liveness,
        cordoned=cordoned,
        draining=draining,
        inventory=Inventory(closed=closed),
    )
    kept_back = cordoned or draining or bool(closed)
    assert node.takes_work == (liveness == Liveness.ALIVE and not kept_back)


def test_a_name_that_nothing_has_comes_with_the_nearest_and_the_next_command() -> None:
    refusal = NotFound("job", "trian", ["train", "eval"], see="corral ps")
    assert refusal.message == "there is no job 'trian'"
    assert refusal.hint == "did you mean train? run: corral ps"
    assert NotFound("job", "zzz", ["train"]).hint == ""
