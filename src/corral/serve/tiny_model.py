"""The GPT of examples/tiny_gpt: bytes in, the next byte out.

It answers in ASCII, so that each byte is a character, and the text alone decides each
next byte: another replica that gets the text so far continues it exactly.
"""

import hashlib
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional

CONTEXT: Final = 128
WIDTH: Final = 128
HEADS: Final = 4
LAYERS: Final = 4
# tab, newline and printable ASCII
ANSWERED_BYTES: Final[tuple[int, ...]] = (9, 10, *range(32, 127))


class GptBlock(nn.Module):
    """Attention and a small network, each added to its input."""

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
        """Shape: (batch, length, WIDTH), in and out."""
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        added: torch.Tensor = self.mlp(self.norm_2(x))
        return x + added


class TinyGpt(nn.Module):
    """Model of the next byte. Its parameters have the names of examples/tiny_gpt."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(GptBlock() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of each next byte. Shape: (batch, length) in, (batch,
        length, 256) out; length is at most CONTEXT."""
        places = torch.arange(x.shape[1], device=x.device)
        hidden = self.blocks(self.bytes(x) + self.places(places))
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits


class BytePredictor:
    """Prediction of the next byte. The same text has the same next byte, whatever else
    is computed at the same time."""

    def __init__(self, model: TinyGpt) -> None:
        self._model = model.eval()
        self._device = next(model.parameters()).device
        self._answered = torch.tensor(ANSWERED_BYTES, device=self._device)

    @torch.inference_mode()
    def next_byte(self, text: bytes, temperature: float) -> int:
        """Return the next byte of a text, of which the last CONTEXT bytes count: the
        likeliest one, or with a temperature above 0 one that is sampled with a hash of
        these bytes."""
        window = text[-CONTEXT:] or b"\n"
        ids = torch.tensor([list(window)], device=self._device)
        logits = self._model(ids)[0, -1, self._answered].double().cpu()
        if temperature == 0:
            return ANSWERED_BYTES[int(logits.argmax())]
        sums = torch.softmax(logits / temperature, dim=0).cumsum(dim=0)
        drawn = int.from_bytes(hashlib.sha256(window).digest()[:6]) / 2**48
        index = int(torch.searchsorted(sums, drawn * float(sums[-1]), right=True))
        return ANSWERED_BYTES[min(index, len(ANSWERED_BYTES) - 1)]


def load_predictor(path: Path) -> BytePredictor:
    """Return the predictor for a file of weights, on the first GPU if there is one.

    Raises: OSError; ValueError if the file holds no weights of this model.
    """
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = TinyGpt()
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(weights)
    except OSError:
        raise
    except Exception as error:  # a damaged file raises errors of many kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} holds no weights of this model: {reason}") from error
    return BytePredictor(model.to(device))
