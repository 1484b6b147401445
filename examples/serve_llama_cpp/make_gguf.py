"""Makes a GGUF file of a small Llama with random weights and a tokenizer of bytes, for
llama.cpp. It needs the package gguf: pip install gguf"""

import argparse
from pathlib import Path

import gguf
import numpy as np

WIDTH = 128
LAYERS = 4
HEADS = 4
HIDDEN = 256
CONTEXT = 2048
SPECIALS = ["<unk>", "<s>", "</s>"]
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def add_tokenizer(writer: gguf.GGUFWriter) -> int:
    """Add one token for each byte; return the number of tokens."""
    tokens = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [
        gguf.TokenType.UNKNOWN,
        gguf.TokenType.CONTROL,
        gguf.TokenType.CONTROL,
        *[gguf.TokenType.BYTE] * 256,
    ]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


def weights(tokens: int, seed: int) -> dict[str, np.ndarray]:
    """Random weights by name. Rows for bytes that are no printable ASCII are so low in
    the last layer that they are never chosen."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return random.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)

    ones = np.ones(WIDTH, dtype=np.float32)
    made = {"token_embd.weight": matrix(tokens, WIDTH), "output_norm.weight": ones}
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            made[f"{name}.{part}.weight"] = matrix(WIDTH, WIDTH)
        for part in ("attn_norm", "ffn_norm"):
            made[f"{name}.{part}.weight"] = ones
        made[f"{name}.ffn_gate.weight"] = matrix(HIDDEN, WIDTH)
        made[f"{name}.ffn_up.weight"] = matrix(HIDDEN, WIDTH)
        made[f"{name}.ffn_down.weight"] = matrix(WIDTH, HIDDEN)
    output = 8 * matrix(tokens, WIDTH)
    printable = [len(SPECIALS) + byte for byte in range(32, 127)]
    output[[row for row in range(tokens) if row not in printable]] = 0
    made["output.weight"] = output
    return made


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=Path("llama.gguf"))
    arguments.add_argument("--seed", type=int, default=1)
    asked = arguments.parse_args()
    writer = gguf.GGUFWriter(str(asked.out), "llama")
    writer.add_name("random-llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    tokens = add_tokenizer(writer)
    writer.add_vocab_size(tokens)
    for name, value in weights(tokens, asked.seed).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"written to {asked.out}")


if __name__ == "__main__":
    main()
