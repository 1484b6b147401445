"""A spec that is written out asks for the same job when it is read again."""

from dataclasses import replace
from typing import Any

import pytest

from corral.domain.ids import NodeId
from corral.domain.job import JobSpec
from corral.domain.placement_constraints import off_refusing_nodes
from corral.wire.spec_reader import parse_values
from corral.wire.submission import to_domain
from corral.wire.written_spec import size_written, written_spec

LEAST = {"name": "plain", "run": "true"}
PARTS: list[dict[str, Any]] = [
    {},
    {"nodes": 2, "resources": {"gpu": "h100:8", "cpu": 32, "memory": "256GB"}},
    {"resources": {"gpu": 0.5, "cpu": 0.25, "memory": "1536MiB"}, "per": "gpu"},
    {
        "any_of": [
            {"nodes": 4, "resources": {"gpu": "a100:4"}},
            {"resources": {"gpu": 2}},
        ]
    },
    {"elastic": {"min_nodes": 1, "max_nodes": 4}, "nodes": 4, "checkpoint": "/ckpt"},
    {"queue": "research", "priority": "high", "preemptible": True},
    {"max_duration": "90m", "warn": {"signal": "USR1", "before": "2m"}, "grace": "45s"},
    {"constraints": {"zone": ["a", "b"], "node": {"not": ["n3"]}}, "exclusive": True},
    {"topology": {"mode": "require", "within": "rack"}, "apart_from": ["other"]},
    {"topology": "spread"},
    {"env": {"A": "1", "B": "two words: yes"}, "secrets": ["wandb"], "token": "submit"},
    {"token": "own"},
    {"kind": "ray"},
    {
        "setup": "pip install x",
        "image": "ubuntu:24.04",
        "model": "hf://org/name@v1",
        "disconnect": "wait",
        "self_stop": "1h",
    },
    {
        "checkpoint": {"path": "./ckpt", "interval": "12.5s", "keep": 7},
        "retry": {"user": 3},
    },
    {"checkpoint": {"from": "j35@400"}, "retry": {"infra": 0}},
    {"watch": False},
    {"watch": {"hang": "off"}},
    {"watch": {"hang": "90s", "act": "alert"}},
    {"watch": {"act": "alert"}},
    {"after": ["j1", {"job": "j2", "on": "failed"}]},
    {"run": "set -e\npython train.py --lr 1e-3\n"},
]


def read(document: dict[str, Any]) -> JobSpec:
    (spec,) = to_domain(parse_values([document]))
    return spec


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_spec_that_is_written_out_is_the_same_when_it_is_read(
    part: dict[str, Any],
) -> None:
    spec = read({**LEAST, **part})
    assert read(written_spec(spec)) == spec


def test_a_job_of_an_array_is_written_as_its_one_index() -> None:
    jobs = to_domain(parse_values([{**LEAST, "array": "2-4%2"}]))
    again = read(written_spec(jobs[1]))
    assert (
        (again.name, again.array_index)
        == (jobs[1].name, jobs[1].array_index)
        == ("plain_3", 3)
    )


def test_what_has_its_default_is_left_out() -> None:
    assert written_spec(read(LEAST)) == LEAST


def test_what_the_head_has_added_and_a_workdir_are_left_out() -> None:
    spec = read(LEAST)
    account = off_refusing_nodes([NodeId("n1")], "ann", "no account")
    added = replace(
        spec, workdir="ab" * 32, place=replace(spec.place, constraints=(account,))
    )
    assert written_spec(added) == LEAST


@pytest.mark.parametrize("size", [1, 1000, 2**30, 256 * 10**9, 1536 * 2**20, 12345])
def test_a_size_is_written_exactly(size: int) -> None:
    spec = read({**LEAST, "resources": {"memory": size_written(size)}})
    assert spec.resources.memory_bytes == size
