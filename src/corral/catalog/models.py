"""Transformers described by their dimensions, and their numbers of parameters."""

from dataclasses import dataclass
from typing import Final

from corral.domain.errors import Refusal

MOST: Final = 10**9  # of any size: no model is as wide
MOST_LAYERS: Final = 10_000
PLAIN: Final = (
    "give the dimensions of a similar plain decoder: "
    "layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256"
)


class ModelRefused(Refusal):
    """The model is not described in full, or is not a decoder with attention and MLPs."""

    code = "model_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: the cache keeps keys and values as one short vector
    for each token.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """

    kv_rank: int
    query_rank: int  # 0: queries are not compressed
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts. From the layer `dense_layers` on, every `every`th layer has
    experts; the others are dense.

    `ffn`: width of one expert. `shared`: number of experts of this width that every
    token passes through; `shared_ffn`: width of one additional shared expert that
    differs in size. `has_bias`: whether the matrix products of an expert have biases.
    `groups`: number of groups of experts; a token uses experts of at most
    `groups_per_token` groups (arXiv:2405.04434, section 2.2.2).
    """

    count: int
    per_token: int
    ffn: int
    shared: int = 0
    dense_layers: int = 0
    every: int = 1
    shared_ffn: int = 0
    has_bias: bool = False
    groups: int = 1
    groups_per_token: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.per_token <= self.count or self.every < 1:
            raise ValueError(f"experts per token must be 1 to {self.count}: {self}")
        if not 1 <= self.groups_per_token <= self.groups:
            raise ValueError(
                f"expert groups per token must be 1 to {self.groups}: {self}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder model. `ffn`: width of a dense layer's MLP. `is_gated`: its MLP has
    three matrices (SwiGLU) instead of two.

    `window`: number of earlier tokens that attention sees, 0 for all; `window_layers`:
    number of layers with this window. `positions`: rows of a learned position
    embedding, 0 without one. `layer_vectors`: parameters of a layer outside its
    matrices, such as norms and biases; None: two norms and, with `has_bias`, the
    biases. `outer_vectors`: such parameters outside the layers. `published`: precision
    of its published weights, if narrower than 16 bits. `left_out`: description of the
    parts of the whole model that are not included, such as encoders of images or sound.
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
    context: int = 0  # tokens it was made for; 0: not given
    window: int = 0
    window_layers: int = 0
    latent: Latent | None = None
    experts: Experts | None = None
    layer_vectors: int | None = None
    outer_vectors: int | None = None
    left_out: tuple[str, ...] = ()
    published: str = ""

    def __post_init__(self) -> None:
        sizes = (
            self.layers,
            self.hidden,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.vocab,
        )
        if min(sizes) < 1:
            raise ValueError(f"each dimension of a model must be at least 1: {self}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.heads} heads are not a multiple of {self.kv_heads} key-value heads"
            )

    @property
    def moe_layers(self) -> int:
        """Return the number of layers with experts."""
        if self.experts is None:
            return 0
        return (self.layers - self.experts.dense_layers) // self.experts.every

    @property
    def attention_parameters(self) -> int:
        """Return the attention parameters of one layer, without biases."""
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
    def _ffn_matrix_count(self) -> int:
        return 3 if self.is_gated else 2

    @property
    def dense_ffn_parameters(self) -> int:
        """Return the parameters of one dense layer's MLP, without biases."""
        return self._ffn_weight_count(self.ffn)

    @property
    def expert_parameters(self) -> int:
        """Return the parameters of one expert. Raises: ValueError if there are none."""
        if self.experts is None:
            raise ValueError(f"{self.name} has no experts")
        biases = (self._ffn_matrix_count - 1) * self.experts.ffn + self.hidden
        return self._ffn_weight_count(self.experts.ffn) + (
            biases if self.experts.has_bias else 0
        )

    def _ffn_weight_count(self, ffn: int) -> int:
        return self._ffn_matrix_count * self.hidden * ffn

    @property
    def embedding_parameters(self) -> int:
        """Return the parameters of the input embedding and of learned positions."""
        return (self.vocab + self.positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """Return the parameters of the output matrix; 0 for a tied model, which shares
        this matrix with its embedding."""
        return 0 if self.is_tied else self.vocab * self.hidden

    @property
    def layer_extras(self) -> int:
        """Return the parameters of one layer's norms and biases. By default, attention
        has 4 bias vectors and the MLP 2."""
        if self.layer_vectors is not None:
            return self.layer_vectors
        norms = 2 * self.hidden * (2 if self.has_bias else 1)
        if not self.has_bias:
            return norms
        attention = (self.heads + 2 * self.kv_heads) * self.head_dim + self.hidden
        return norms + attention + self.ffn + self.hidden

    @property
    def parameters(self) -> int:
        """Return the number of stored parameters, including experts that a token does
        not use."""
        return self._layers_with(per_token=False) + self._outside

    @property
    def active_parameters(self) -> int:
        """Return the parameters that one token uses."""
        return self._layers_with(per_token=True) + self._outside

    @property
    def _outside(self) -> int:
        vectors = self.outer_vectors
        if vectors is None:
            vectors = self.hidden * (2 if self.has_bias else 1)  # the last norm
        return self.embedding_parameters + self.head_parameters + vectors

    def _layers_with(self, *, per_token: bool) -> int:
        parameters_per_layer = self.attention_parameters + self.layer_extras
        dense = (self.layers - self.moe_layers) * self.dense_ffn_parameters
        total = self.layers * parameters_per_layer + dense
        if self.experts is None:
            return total
        passed = self.experts.per_token if per_token else self.experts.count
        router = self.hidden * self.experts.count
        shared_ffn_weights = self._ffn_weight_count(self.experts.shared_ffn)
        layer_parameters = (
            (passed + self.experts.shared) * self.expert_parameters
            + shared_ffn_weights
            + router
        )
        return total + self.moe_layers * layer_parameters


def model_of_dimensions(
    *,
    layers: int,
    hidden: int,
    heads: int,
    vocab: int,
    kv_heads: int = 0,
    head_dim: int = 0,
    ffn: int = 0,
    is_gated: bool | None = None,
    is_tied: bool | None = None,
    experts: Experts | None = None,
    positions: int = 0,
    parameters: float = 0,
    name: str = "",
) -> Model:
    """Return a model of these dimensions. A value of 0 or None takes the usual value:
    as many key-value heads as heads, heads that share the hidden size, an MLP of four
    times the hidden size.

    `parameters`: known number of parameters. It decides whether the MLP is gated and
    the embedding tied: the form with the nearest number is taken. Without it, the MLP
    is gated unless it is four times as wide as the hidden size. The embedding is then
    tied unless the MLP is gated, as in the GPT and Llama families. A model without gate
    has biases.

    Raises: ModelRefused, with the dimension that does not fit the others.
    """
    _refuse_what_does_not_fit(layers, hidden, heads, vocab, kv_heads, head_dim, ffn)
    width = ffn or 4 * hidden
    guess = width != 4 * hidden or experts is not None
    gates = (guess, not guess) if is_gated is None else (is_gated,)
    forms = [
        Model(
            name=name or f"{layers} layers of {hidden}",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads or heads,
            head_dim=head_dim or hidden // heads,
            ffn=width,
            vocab=vocab,
            is_gated=gate,
            is_tied=tied,
            has_bias=not gate,
            positions=positions,
            experts=experts,
        )
        for gate in gates
        for tied in ((not gate, gate) if is_tied is None else (is_tied,))
    ]
    if not parameters:
        return forms[0]
    return min(forms, key=lambda form: abs(form.parameters - parameters))


def _refuse_what_does_not_fit(
    layers: int,
    hidden: int,
    heads: int,
    vocab: int,
    kv_heads: int,
    head_dim: int,
    ffn: int,
) -> None:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocab": vocab}
    optional_sizes = {
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "ffn": ffn,
    }  # 0: not given
    for size_name, size in (sizes | optional_sizes).items():
        minimum, maximum = (
            int(size_name in sizes),
            MOST_LAYERS if size_name == "layers" else MOST,
        )
        if not minimum <= size <= maximum:
            hint = f"give {size_name} from {minimum} to {maximum:,}"
            raise ModelRefused(f"a model cannot have {size:.6g} {size_name}", hint=hint)
    if not head_dim and hidden % heads:
        raise ModelRefused(
            f"hidden={hidden} is not a multiple of heads={heads}",
            hint=(
                f"give heads={_largest_divisor(hidden, heads)}, or the size of a head: "
                "head_dim=128"
            ),
        )
    if heads % (kv_heads or heads):
        raise ModelRefused(
            f"heads={heads} is not a multiple of kv_heads={kv_heads}",
            hint=f"give kv_heads={_largest_divisor(heads, kv_heads)}",
        )


def _largest_divisor(whole: int, near: int) -> int:
    """Return the largest divisor of `whole` that is at most `near`."""
    return next(
        divisor for divisor in range(min(near, whole), 0, -1) if whole % divisor == 0
    )
