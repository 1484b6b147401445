"""Makes the weights that the service serves: a small GPT learns to write Python, byte by
byte, from the standard library on this machine."""

import argparse
import sysconfig
from pathlib import Path

import torch
from torch.nn import functional as F  # noqa: N812 - everybody's name for it

from corral.serve.tiny_model import CONTEXT, TinyGpt

TEXT_BYTES = 4_000_000
BATCH = 16


def python_sources() -> torch.Tensor:
    """Bytes of the standard library's source files, in order of name."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = b"".join(file.read_bytes() for file in files)[:TEXT_BYTES]
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--out", type=Path, default=Path("tiny.pt"))
    asked = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = TinyGpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    text = python_sources()
    for step in range(asked.steps):
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,)).tolist()
        batch = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        logits = model(batch[:, :-1].long())
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].long().flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    torch.save(model.state_dict(), asked.out)
    print(f"written to {asked.out}")


if __name__ == "__main__":
    main()
