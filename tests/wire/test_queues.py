"""Files of `kind: queues`: what they mean, what is wrong with them and where, what they
change."""

from dataclasses import replace

import pytest
from hypothesis import given

from corral.domain.errors import SpecInvalid
from corral.domain.ids import QueueName
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.relocation import RelocationRule
from corral.wire.queue_file import is_queue_file, queue_file_of, read_queue, read_queues
from corral.wire.queue_forms import changes_of, form_of
from corral.wire.yaml_document import Document, documents_of
from tests.schedule.test_queues import trees

FILE = """kind: queues
half_life: 3d
min_runtime: 30s
relocation: {gpu_hours: 10, pause: 1h}
locality_delay: {rack: 2m}
queues:
  - name: research
    gpus: {h100: 8, any: 4}
    weight: 2
    borrow: 0
    lend: 4
    priorities: [low, normal]
    max_duration: 24h
    allow: [bob, alice, "@operator"]
    budget: {money: 900, rates: {h100: 2.5, any: 1}, period: 30d, then: low}
    queues:
      - {name: vision, gpus: 2, max_per_user: 1.5, policy: fifo}
  - name: infra
    budget: {gpu_hours: 10, until: 2026-12-31}
"""


def read(text: str) -> Document:
    return documents_of(text, source="q.yaml")[0]


def test_the_earlier_name_of_a_policy_is_still_read() -> None:
    text = "kind: queues\nqueues: [{name: team, policy: service}]\n"
    (team,) = read_queues(read(text)).queues
    assert team.policy == Policy.ATTAINED
    assert team.policy.value == "attained"


def test_every_field_of_a_file_is_read() -> None:
    document = read(FILE)
    assert is_queue_file(document)
    asked = read_queues(document)
    research, vision, infra = asked.queues
    assert (asked.whole, asked.half_life_seconds, asked.min_runtime_seconds) == (
        True,
        259200.0,
        30.0,
    )
    assert asked.relocation == RelocationRule(gpu_hours=10.0, pause_seconds=3600.0)
    assert (asked.rack_locality_delay_seconds, asked.pod_locality_delay_seconds) == (
        120.0,
        0.0,
    )
    assert research.nominal == (("any", 4000), ("h100", 8000))
    assert (research.borrow_limit_millis, research.lend_limit_millis) == (0, 4000)
    assert (research.lowest_priority, research.highest_priority) == (-100, 0)
    assert (research.weight, research.longest_seconds) == (2.0, 86400.0)
    assert research.allow == ("@operator", "alice", "bob")
    assert research.budget is not None
    assert (research.budget.money, research.budget.demote_to) == (900.0, -100)
    assert research.budget.rate("h100") == 2.5
    assert research.budget.rate("a100") == 1.0
    assert (vision.parent, vision.most_per_user_millis) == ("research", 1500)
    assert vision.policy == Policy.FIFO
    assert infra.budget is not None
    assert (infra.budget.until, infra.budget.demote_to) == (1798675200.0, None)


@pytest.mark.parametrize(
    ("line", "text", "hint"),
    [
        ("gpus: -1", "q.yaml:3: queues[0].gpus", "write: gpus: 8"),
        ("borrow: many", "is not a valid number of GPUs", "write: borrow: 8"),
        ("gpu: 8", "there is no such field", "use one of: name, parent, gpus"),
        (
            "policy: lifo",
            '"lifo" is not a valid policy',
            "one of: default, fifo, fifo-skip, sjf",
        ),
        ("priorities: low", "the lowest and the highest", "[low, normal]"),
        (
            "priorities: [low, top]",
            '"top" is not a valid priority',
            "write: priorities: [low, normal]",
        ),
        (
            "gpus: many GPUs",
            '"many GPUs" is text',
            "write: gpus: 8 or {h100: 8, any: 4}",
        ),
        ('gpus: {"": 8}', '"" is not a valid GPU type', "write: h100, or any"),
        (
            "budget: {money: 1, rates: {h100:8: 2}}",
            '"h100:8" is not a valid GPU type',
            "write: h100",
        ),
        (
            "budget: {money: 1, rates: x}",
            '"x" is not a number',
            "write: rates: {h100: 2.5, any: 1}",
        ),
        (
            "budget: {gpu_hours: 1, then: later}",
            "is not a valid priority",
            "write: then: borrow-only",
        ),
        ("max_duration: 24", "24 has no unit", "write: max_duration: 24m, 24h or 24s"),
        ("parent: nobody", "there is no queue nobody", "set parent to one of: a"),
        (
            "budget: {gpu_hours: 1, until: soon}",
            "is not a valid date",
            "write: until: 2030-12-31",
        ),
        ("budget: {money: 1}", "must be set with money", "rates"),
        ("budget: {hours: 1}", "there is no such field", "gpu_hours"),
        ("queues: [{name: b, gpus: 4}]", "own 4 more", "write: gpus: 4"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(line: str, text: str, hint: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_queues(read(f"kind: queues\nqueues: [\n  {{name: a, {line}}}]\n"))
    assert text in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("line", "text", "hint"),
    [
        (
            "relocation: {pause: 1h}",
            "q.yaml:2: relocation.gpu_hours",
            "add: gpu_hours: 10",
        ),
        (
            "relocation: {gpu_hours: 1, hours: 1}",
            "there is no such field",
            "use one of: gpu_hours, pause",
        ),
        (
            "relocation: {gpu_hours: 1, pause: 2d}",
            "the pause is longer than one day",
            "pause: 6h",
        ),
        ("locality_delay: {rack: 5}", "5 has no unit", "write: rack: 5m, 5h or 5s"),
    ],
)
def test_what_is_wrong_for_all_queues_is_said_with_its_line(
    line: str, text: str, hint: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_queues(read(f"kind: queues\n{line}\nqueues: []\n"))
    assert text in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    "value", [".nan", ".inf", "-.inf", "1e308", "-1", "true", "words", "[1]"]
)
@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("half_life", "half_life: {0}"),
        ("min_runtime", "min_runtime: {0}"),
        ("relocation.gpu_hours", "relocation: {{gpu_hours: {0}}}"),
        ("relocation.pause", "relocation: {{gpu_hours: 1, pause: {0}}}"),
        ("locality_delay.rack", "locality_delay: {{rack: {0}}}"),
        ("queues[0].weight", "queues: [{{name: a, weight: {0}}}]"),
        ("queues[0].gpus", "queues: [{{name: a, gpus: {{any: {0}}}}}]"),
        ("queues[0].borrow", "queues: [{{name: a, borrow: {0}}}]"),
        (
            "queues[0].budget.gpu_hours",
            "queues: [{{name: a, budget: {{gpu_hours: {0}}}}}]",
        ),
        (
            "queues[0].budget.money",
            "queues: [{{name: a, budget: {{money: {0}, rates: 1}}}}]",
        ),
        (
            "queues[0].budget.rates",
            "queues: [{{name: a, budget: {{money: 1, rates: {0}}}}}]",
        ),
    ],
)
def test_every_number_is_within_bounds_or_refused_by_the_name_of_its_field(
    field: str, line: str, value: str
) -> None:
    queues = "" if "queues" in line else "queues: []"
    with pytest.raises(SpecInvalid) as refused:
        read_queues(read(f"kind: queues\n{line.format(value)}\n{queues}\n"))
    assert f": {field}: " in refused.value.message
    assert refused.value.hint.startswith("write")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("relocation: 10", "write: relocation: {gpu_hours: 10, pause: 6h}"),
        ("locality_delay: 5m", "write: locality_delay: {rack: 5m, pod: 10m}"),
        ("queues: 5", "write: queues: [{name: research, gpus: 8}]"),
        ("queues: [a]", "write: queues: [{name: research, gpus: 8}]"),
        ("queues: [{name: a, parent: 5}]", "write: parent: research"),
        (
            "queues: [{name: a, budget: 5}]",
            "write: budget: {gpu_hours: 1000, period: 30d}",
        ),
    ],
)
def test_what_has_parts_is_refused_with_its_right_form(line: str, hint: str) -> None:
    queues = "" if line.startswith("queues") else "queues: []"
    with pytest.raises(SpecInvalid) as refused:
        read_queues(read(f"kind: queues\n{line}\n{queues}\n"))
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (
            "kind: queues\nqueues: []\n---\nname: a\nrun: x\n",
            "q.yaml:1: kind: ",
            "another file",
        ),
        (
            "name: a\nrun: x\n---\nkind: queues\nqueues: []\n",
            "q.yaml:4: kind: ",
            "another file",
        ),
        (
            "kind: Queues\nqueues: []\n",
            "q.yaml:2: queues: ",
            "begin the file with: kind: queues",
        ),
    ],
)
def test_a_file_of_queues_holds_nothing_else_and_is_of_no_other_kind(
    text: str, said: str, hint: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        queue_file_of(documents_of(text, source="q.yaml"))
    assert said in refused.value.message
    assert hint in refused.value.hint
    assert queue_file_of(documents_of("name: a\nrun: x\n", source="q.yaml")) is None


def test_what_is_wrong_with_one_queue_is_said_by_its_name_and_field() -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_queue("lab", {"weight": float("nan")})
    assert refused.value.message.startswith(
        "queue lab: weight: nan is out of bounds: a weight is"
    )


@given(trees())
def test_a_queue_that_is_written_down_reads_back_the_same(tree: QueueTree) -> None:
    document = Document(
        value={"queues": [form_of(queue) for queue in tree.queues]}, source="q"
    )
    assert read_queues(document).queues == tree.queues
    assert changes_of(tree, whole_tree(read_queues(document).queues)) == []


def test_a_change_is_told_line_by_line() -> None:
    before = whole_tree([Queue(name=QueueName("a"), nominal=(("h100", 8000),))])
    after = whole_tree(
        [
            Queue(name=QueueName("b"), weight=2.0),
            Queue(name=QueueName("default"), weight=0.5),
        ],
        min_runtime_seconds=60.0,
    )
    after = replace(
        after,
        relocation=RelocationRule(gpu_hours=10.0),
        rack_locality_delay_seconds=60.0,
    )
    assert changes_of(before, after) == [
        "~ min_runtime: 2m -> 1m",
        "~ relocation: none -> {gpu_hours: 10, pause: 6h}",
        "~ locality_delay: none -> {rack: 1m}",
        "- a",
        "+ b: weight: 2",
        "~ default: weight: none -> 0.5",
    ]


def test_a_file_with_queues_that_says_no_kind_is_one_of_queues() -> None:
    assert is_queue_file(read("queues: [{name: a}]"))
    assert is_queue_file(read(FILE))
    assert not is_queue_file(read("kind: job\nqueues: [{name: a}]"))
    assert not is_queue_file(read("name: a\nrun: date"))
    assert read_queues(read("queues: [{name: a}]")).queues == (
        Queue(name=QueueName("a")),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{warn: 15m, reclaim: 1h}", {"warn": "15m", "reclaim": "1h"}),
        ("{reclaim: 2h}", {"reclaim": "2h"}),
    ],
)
def test_a_rule_for_idle_jobs_reads_back_as_written(
    text: str, told: dict[str, str]
) -> None:
    request = read_queues(read(f"kind: queues\nqueues: [{{name: a, idle: {text}}}]"))
    assert form_of(request.queues[0])["idle"] == told


@pytest.mark.parametrize(
    "text",
    ["1h", "{}", "{warn: 15m, stop: 1h}", "{warn: 2h, reclaim: 1h}", "{warn: 5s}"],
)
def test_a_rule_for_idle_jobs_that_is_none_is_refused_with_an_example(
    text: str,
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_queues(read(f"kind: queues\nqueues: [{{name: a, idle: {text}}}]"))
    assert "idle" in refused.value.message
