"""Makes a GGUF file of a LoRA adapter with random weights, for the model of
make_gguf.py. It needs the package gguf: pip install gguf"""

import argparse
from pathlib import Path

import gguf
import numpy as np
from make_gguf import LAYERS, WIDTH

RANK = 4
SCALE = 0.5


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=Path("adapter.gguf"))
    arguments.add_argument("--seed", type=int, default=1)
    parsed = arguments.parse_args()
    random = np.random.default_rng(parsed.seed)
    writer = gguf.GGUFWriter(str(parsed.out), "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(RANK))
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_output"):
            name = f"blk.{layer}.{part}.weight"
            down = random.normal(0, SCALE, (RANK, WIDTH)).astype(np.float32)
            up = random.normal(0, SCALE, (WIDTH, RANK)).astype(np.float32)
            writer.add_tensor(f"{name}.lora_a", down)
            writer.add_tensor(f"{name}.lora_b", up)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"written to {parsed.out}")


if __name__ == "__main__":
    main()
