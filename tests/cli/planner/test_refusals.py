"""Refusals of plans: each says what stands in the way, and what to type instead."""

import re
import shlex

import pytest

from corral.cli.main import run

SERVE = "serve llama-3.1-8b --qps 1 --input 100 --output 10"
REFUSED = (
    ("model llama-3.1-9b", "there is no model", "did you mean"),
    ("model mamba-2.8b", "is not supported", "layers=32,hidden=4096"),
    (
        "model layers=32,hidden=4096,heads=30,vocab=100",
        "hidden=4096 is not a multiple of heads=30",
        "heads=16",
    ),
    (
        "model layers=32,hidden=64,heads=8,kv_heads=3,vocab=9",
        "heads=8 is not a multiple of kv_heads=3",
        "kv_heads=2",
    ),
    (
        "model layers=20000,hidden=64,heads=8,vocab=9",
        "20000 layers",
        "from 1 to 10,000",
    ),
    ("model layers=4,banana=4", "'banana' is not a dimension", "layers=32,hidden=4096"),
    ("model llama-3.1-8b --gpu h1000", "there is no GPU", "corral plan catalog gpus"),
    (
        "model llama-3.1-8b --context 1e23",
        "--context cannot be 1e+23",
        "from 1 to 100,000,000",
    ),
    (
        "model llama-3.1-8b --gpu a100 --precision fp8",
        "does not support fp8",
        "--precision int8",
    ),
    (
        "train llama-3.1-8b --gpus 64 --pipeline 64",
        "64 pipeline stages",
        "--pipeline 32",
    ),
    (
        "train llama-3.1-8b --gpus 64 --tensor 6",
        "not a multiple of 6",
        "--tensor 1, 2, 4 or 8",
    ),
    (
        "train llama-3.1-8b --gpus 64 --context-parallel 3",
        "3 equal pieces",
        "--context-parallel 1, 2",
    ),
    (
        "train llama-3.1-8b --gpus 8 --precision int4",
        "does not support training in int4",
        "--lora",
    ),
    (
        "train llama-3.1-8b --gpus 8 --library torchtitn",
        "training library",
        "did you mean",
    ),
    ("train llama-3.1-8b --gpus 16 --fabric nvlink", "inside of nodes", "ib-ndr"),
    (f"{SERVE} --price weekly", "--price cannot be 'weekly'", "on_demand"),
    (
        f"{SERVE} --usd-per-gpu-hour 2",
        "--usd-per-gpu-hour requires a type of GPU",
        "--gpu",
    ),
    (f"{SERVE} --ttft-p90 0", "--ttft-p90 cannot be 0", "from 0.001"),
    (f"{SERVE} --shared 100", "--shared cannot be 100", "from 0 to 99"),
    (f"{SERVE} --engine vlm", "inference engine 'vlm'", "did you mean vllm?"),
    (
        f"{SERVE} --engine tensorrt-llm --gpu mi300x",
        "does not run tensorrt-llm",
        "--engine vllm",
    ),
    (
        "serve gpt2 --qps 1e12 --input 9 --output 9",
        "--qps cannot be 1e+12",
        "10,000,000",
    ),
    (
        "serve grok-1 --qps 1 --input 100 --output 10 --gpu t4",
        "serves grok-1",
        "--gpu b200",
    ),
    (
        "cluster --gpus 1e30 --gpu h100",
        "--gpus cannot be 1e+30",
        "from 1 to 10,000,000",
    ),
    (
        "cluster --gpus 64 --gpu tpu-v5p",
        "can only be rented",
        "corral plan prices tpu-v5p",
    ),
    (
        "cluster --gpus 64 --gpu h100 --fabric nvlink-4",
        "inside of nodes",
        "corral plan catalog",
    ),
    (
        "cluster --gpus 64 --gpu h100 --fabric efa-p5",
        "network of a cloud",
        "--fabric to one of",
    ),
    (
        "cluster --gpus 64 --gpu h100 --switch q",
        "there is no switch",
        "catalog equipment",
    ),
    (
        "cluster --gpus 64 --gpu h100 --region atlantis",
        "no region",
        "corral plan catalog carbon",
    ),
    (
        "cluster --gpus 70000 --gpu h100 --rail-only",
        "do not fit",
        "leave out --rail-only",
    ),
    ("cluster --gpus 8 --gpu h100 --pue 0.5", "--pue cannot be 0.5", "from 1"),
    (
        "cost --assume banana=4",
        "no assumption 'banana'",
        "corral plan catalog economics",
    ),
    ("cost --assume pue=0.5", "pue cannot be 0.5", "at least 1"),
    ("cost --cloud nobody", "at the cloud 'nobody'", "corral plan prices"),
    ("cost --demand 64:9000", "--demand contains 9000 hours", "at most 8,784"),
    ("reliability --gpus 8 --days 0", "--days cannot be 0", "from 0.001 to 100,000"),
    (
        "reliability --gpus 8 --days 9 --availability 1",
        "--availability cannot be 1",
        "for example 0.99",
    ),
    (
        "capacity --run-hours 2 --runs 3 --run-gpus nan",
        "--run-gpus cannot be NaN",
        "from 0.001",
    ),
    ("prices h1000", "there is no GPU", "corral plan catalog gpus"),
    ("catalog banana", "kind of catalog entry", "corral plan catalog"),
    ("catalog models nothing", "there is no model", "corral plan catalog models"),
)


@pytest.mark.parametrize(("words", "said", "hint"), REFUSED)
def test_a_refusal_says_what_stands_in_the_way_and_what_to_type(
    words: str, said: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *shlex.split(words)]) == 3
    what, how = capsys.readouterr().err.split("\n  ", 1)
    assert said in what
    assert hint in how
    assert not re.search(r"[a-z]_[a-z]+ is", what), (
        "options are named as they are typed"
    )
    for command in re.findall(r"run: corral ([^;\n]+)", how):
        assert run(shlex.split(command)) == 0
