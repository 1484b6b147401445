"""A service of vLLM with a model of random weights: its times beside the plan's, and its sleep."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

from serving_rows import (
    NO_VLLM,
    StreamTimes,
    arrivals,
    is_token,
    not_run,
    sleep_rows,
    time_rows,
)
from smi import MIB, Row
from stages import Bench, smi

NAME: Final = "gpu-serving"
RATE: Final = 2.0  # requests a second
COUNT: Final = 80
WARM: Final = 8  # requests before the measurement
INPUT_TOKENS: Final = 512
OUTPUT_TOKENS: Final = 64
START_SECONDS: Final = 240.0
SLEEP_SECONDS: Final = 90.0
MOST_WAKE_SECONDS: Final = 10.0
SERVICE: Final = """\
kind: service
name: {name}
engine: vllm
model: {model}
replicas: 0..1
sleeping: 1
resources: {{gpu: 1}}
scale: {{queue: 256, down_after: 10s}}
limits: {{deadline: 5m}}
env: {{PATH: "{path}", HF_HUB_OFFLINE: "1", VLLM_NO_USAGE_STATS: "1"}}
"""
# 1.0 billion parameters, and a token for each byte
MAKE_MODEL: Final = """
import sys
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
words = {letter: number for number, letter in enumerate(alphabet)}
words |= {"<s>": 256, "</s>": 257}
cutter = Tokenizer(models.BPE(vocab=words, merges=[]))
cutter.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
cutter.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(
    tokenizer_object=cutter, bos_token="<s>", eos_token="</s>"
).save_pretrained(sys.argv[1])
torch.manual_seed(7)
torch.set_default_dtype(torch.bfloat16)
config = LlamaConfig(
    vocab_size=320, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
    num_attention_heads=16, num_key_value_heads=8, max_position_embeddings=4096,
    bos_token_id=256, eos_token_id=257,
)
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
model.save_pretrained(sys.argv[1])
"""
# no proxy of the environment
OPENER: Final = build_opener(ProxyHandler({}))


def serving(bench: Bench) -> list[Row]:
    """TTFT and ITL beside `corral plan serve`, and the sleep of the engine."""
    bin_folder = Path(sys.executable).parent
    if shutil.which("vllm", path=str(bin_folder)) is None:
        return not_run(NO_VLLM)
    model = bench.root / "served-model"
    subprocess.run(
        [sys.executable, "-c", MAKE_MODEL, str(model)], check=True, timeout=120
    )
    file = bench.root / f"{NAME}.yaml"
    path = f"{bin_folder}:{os.environ['PATH']}"
    file.write_text(SERVICE.format(name=NAME, model=model, path=path))
    try:
        bench.corral("apply", "-f", str(file), "-y")
        return _measure(bench, model)
    finally:
        bench.corral("service", "stop", NAME, "--yes")


def _measure(bench: Bench, model: Path) -> list[Row]:
    _until(lambda: bench.read("status")["gateway"], "a gateway", START_SECONDS)
    gateway = bench.read("status")["gateway"]["url"]
    token = (bench.root / "token").read_text().strip()
    _until(lambda: _has_answer(gateway, token), "the first answer", START_SECONDS)
    for number in range(WARM):
        _stream(gateway, token, -1 - number)
    streams = _streams(gateway, token)
    kind = bench.read("node", "show", "n1")["devices"][0]["type"]
    words = ("plan", "serve", str(model / "config.json"), "--gpu", kind, "--qps", f"{RATE:g}",
             "--input", str(INPUT_TOKENS), "--output", str(OUTPUT_TOKENS))  # fmt: skip
    planned = {one["name"]: one for one in bench.read(*words)["answers"]}
    awake_bytes = _used_bytes()
    _until(lambda: _is_asleep(bench), "the replica sleeps", SLEEP_SECONDS)
    asleep_bytes = _used_bytes()
    began = time.monotonic()
    _stream(gateway, token, COUNT)
    wake_seconds = time.monotonic() - began
    return [
        *time_rows(planned, streams),
        *sleep_rows(awake_bytes, asleep_bytes, wake_seconds, MOST_WAKE_SECONDS),
    ]


def _streams(gateway: str, token: str) -> list[StreamTimes]:
    """Send the requests at their moments, and return the times of their answers."""
    began = time.monotonic()

    def one(number: int, moment: float) -> StreamTimes:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        return _stream(gateway, token, number)

    with ThreadPoolExecutor(COUNT) as pool:
        futures = [
            pool.submit(one, number, moment)
            for number, moment in enumerate(arrivals(RATE, COUNT))
        ]
        return [future.result() for future in futures]


def _stream(gateway: str, token: str, number: int) -> StreamTimes:
    """Send one request, whose prompt no other one has, and return the times of its
    answer. Raises: OSError, ValueError."""
    prompt = f"{number:x} ".ljust(INPUT_TOKENS - 1, "abcdefgh"[number % 8])
    body = {"model": NAME, "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "stream": True,
            "ignore_eos": True}  # fmt: skip
    sent = time.monotonic()
    with _opened(gateway, token, body) as answer:
        events = tuple(time.monotonic() for line in answer if is_token(line))
    if not events:
        raise ValueError("the answer has no token")
    return StreamTimes(sent=sent, events=events)


def _opened(gateway: str, token: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    url = f"{gateway}/v1/completions"
    request = Request(url, json.dumps(body).encode(), headers)
    return OPENER.open(request, timeout=START_SECONDS)


def _has_answer(gateway: str, token: str) -> bool:
    body = {"model": NAME, "prompt": "a", "max_tokens": 1}
    try:
        with _opened(gateway, token, body) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _is_asleep(bench: Bench) -> bool:
    rows = bench.read("service", "show", NAME)["replica_list"]
    return [row["sleep"] for row in rows] == ["asleep"]


def _used_bytes() -> float:
    """Return the memory in use on the fullest GPU."""
    text = smi("--query-gpu=memory.used", "--format=csv,noheader,nounits")
    return max(float(line) for line in text.split()) * MIB


def _until(done: Callable[[], object], what: str, seconds: float) -> None:
    given_up = time.monotonic() + seconds
    while not done():
        if time.monotonic() > given_up:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.5)
