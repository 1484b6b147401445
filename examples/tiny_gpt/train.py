"""A small GPT learns to write Python, byte by byte, from the standard library on this machine.

Plain PyTorch with DDP; three lines are Corral's: `train.start`, `run.resume` and `run.steps`.
Killed at any moment and started again, it ends with exactly the parameters of an undisturbed run.
"""

import argparse
import hashlib
import json
import os
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - everybody's name for it
from torch.nn.parallel import DistributedDataParallel

import corral.train as train

CONTEXT = 128
WIDTH = 128
HEADS = 4
LAYERS = 4
TEXT_BYTES = 4_000_000


class Block(nn.Module):
    """Attention to what came before, then a small network, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH),
            nn.Dropout(0.05),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm_2(x))


class TinyGPT(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.bytes(x) + self.places(places))))


class PythonSources(torch.utils.data.Dataset[torch.Tensor]):
    """Windows of CONTEXT + 1 bytes over the standard library's source files, in order of name."""

    def __init__(self) -> None:
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = b"".join(file.read_bytes() for file in files)[:TEXT_BYTES]
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def __len__(self) -> int:
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.text[index * CONTEXT : (index + 1) * CONTEXT + 1].long()


def parameters_digest(model: nn.Module) -> str:
    """SHA-256 over all parameters, bit for bit."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(
            value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()


def write_result(path: Path, *, step: int, loss: float, model: nn.Module) -> None:
    result = {"step": step, "loss": loss, "parameters_sha256": parameters_digest(model)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result) + "\n")
    partial.rename(path)
    print(f"done: step {step}, loss {loss:.4f}, written to {path}", flush=True)


def result_path() -> Path:
    saves = Path(os.environ.get("CORRAL_CHECKPOINT_PATH", "ckpt"))
    return (
        saves.absolute().parent
        / f"result-{os.environ.get('CORRAL_JOB_ID', 'alone')}.json"
    )


def make_repeatable() -> None:
    """The same operations in the same order, whoever else uses this machine."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=100)
    arguments.add_argument("--batch-size", type=int, default=8, help="of one rank")
    arguments.add_argument("--result", type=Path, default=None)
    asked = arguments.parse_args()
    make_repeatable()

    run = train.start()

    model = TinyGPT().to(run.device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 20)
    )
    sources = PythonSources()
    sampler = train.Sampler(len(sources), asked.batch_size, seed=1)
    batches = run.data(torch.utils.data.DataLoader(sources, batch_sampler=sampler))

    settle(ddp, sources, run.device)
    run.resume(model=ddp, optimizer=optimizer, scheduler=scheduler, data=sampler)

    loss = torch.tensor(float("nan"))
    for step in run.steps(until=asked.steps):
        batch = next(batches).to(run.device)
        logits = ddp(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.log(loss=loss, samples=len(batch))
        if run.rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)

    if run.rank == 0:
        path = asked.result or result_path()
        write_result(
            path,
            step=asked.steps,
            loss=evaluate(model, sources, run.device),
            model=model,
        )


def settle(
    ddp: DistributedDataParallel, sources: PythonSources, device: torch.device
) -> None:
    """Let DDP choose its buckets now. It does so after the first backward pass of a process, and
    then sums gradients in another order: a restart in the middle must not bring the first back."""
    ddp(sources[0][None, :-1].to(device)).sum().backward()
    ddp.zero_grad()


@torch.no_grad()
def evaluate(model: nn.Module, sources: PythonSources, device: torch.device) -> float:
    """Mean loss over the first 32 windows; the same after a restart that had nothing left to do."""
    model.eval()
    batch = torch.stack([sources[index] for index in range(32)]).to(device)
    logits = model(batch[:, :-1])
    return float(F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()))


if __name__ == "__main__":
    main()
