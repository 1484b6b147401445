"""Transformers by their dimensions, and how many parameters these come to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: keys and values are kept as one short vector a token.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """

    kv_rank: int
    query_rank: int  # 0: queries are not compressed
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts in the layers from `dense_layers` on.

    `ffn`: of one expert. `shared`: experts that each token passes, of the same size.
    """

    count: int
    per_token: int
    ffn: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder. `ffn`: of a dense layer. `is_gated`: its MLP has three matrices (SwiGLU), or two.

    `window`: tokens that attention looks back, 0 for all; `window_layers`: how many layers do so.
    `positions`: rows of a learned position embedding, 0 where there is none.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    is_gated: bool
    is_tied: bool = False
    has_bias: bool = False
    positions: int = 0
    context: int = 0  # tokens it was made for; 0: not said
    window: int = 0
    window_layers: int = 0
    latent: Latent | None = None
    experts: Experts | None = None

    def __post_init__(self) -> None:
        sizes = (self.layers, self.hidden, self.heads, self.kv_heads, self.head_dim, self.vocab)
        if min(sizes) < 1:
            raise ValueError(f"each dimension of a model is at least 1: {self}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads do not share {self.kv_heads} key-value heads")

    @property
    def moe_layers(self) -> int:
        return self.layers - self.experts.dense_layers if self.experts else 0

    @property
    def attention_parameters(self) -> int:
        """Of one layer, without biases."""
        if self.latent is None:
            query = self.hidden * self.heads * self.head_dim
            return 2 * query + 2 * self.hidden * self.kv_heads * self.head_dim
        latent = self.latent
        query_out = self.heads * (self.head_dim + latent.rope_dim)
        query = (
            latent.query_rank * (self.hidden + query_out)
            if latent.query_rank
            else self.hidden * query_out
        )
        down = self.hidden * (latent.kv_rank + latent.rope_dim)
        up = latent.kv_rank * self.heads * (self.head_dim + latent.value_dim)
        return query + down + up + self.heads * latent.value_dim * self.hidden

    @property
    def _matrices(self) -> int:
        return 3 if self.is_gated else 2

    @property
    def dense_ffn_parameters(self) -> int:
        """Of one dense layer's MLP, without biases."""
        return self._matrices * self.hidden * self.ffn

    @property
    def expert_parameters(self) -> int:
        """Of one expert. Raises: ValueError where there are none."""
        if self.experts is None:
            raise ValueError(f"{self.name} has no experts")
        return self._matrices * self.hidden * self.experts.ffn

    @property
    def embedding_parameters(self) -> int:
        """Of the input embedding, and of the learned positions."""
        return (self.vocab + self.positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """Of the output matrix, which a tied model shares with its embedding."""
        return 0 if self.is_tied else self.vocab * self.hidden

    @property
    def layer_extras(self) -> int:
        """Norms of one layer, and its biases: of attention 4 and of the MLP 2 vectors."""
        norms = 2 * self.hidden * (2 if self.has_bias else 1)
        if not self.has_bias:
            return norms
        attention = (self.heads + 2 * self.kv_heads) * self.head_dim + self.hidden
        return norms + attention + self.ffn + self.hidden

    @property
    def parameters(self) -> int:
        """All that are kept, experts that a token does not pass included."""
        return self._layers_with(per_token=False) + self._outside

    @property
    def active_parameters(self) -> int:
        """Those that one token passes."""
        return self._layers_with(per_token=True) + self._outside

    @property
    def _outside(self) -> int:
        final_norm = self.hidden * (2 if self.has_bias else 1)
        return self.embedding_parameters + self.head_parameters + final_norm

    def _layers_with(self, *, per_token: bool) -> int:
        each = self.attention_parameters + self.layer_extras
        dense = (self.layers - self.moe_layers) * self.dense_ffn_parameters
        total = self.layers * each + dense
        if self.experts is None:
            return total
        passed = self.experts.per_token if per_token else self.experts.count
        router = self.hidden * self.experts.count
        own = (passed + self.experts.shared) * self.expert_parameters + router
        return total + self.moe_layers * own
