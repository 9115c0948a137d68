"""What a model's shape implies: parameters, bytes and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from rlsim.core.errors import ParameterError
from rlsim.costs.fields import count


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in every layer but ``dense_layers`` of them."""

    experts: int
    active: int
    """Experts a token is routed to."""
    ffn: int
    """Width of one expert."""
    shared_ffn: int = 0
    """Summed width of the experts that every token passes."""
    dense_layers: int = 0

    def __post_init__(self) -> None:
        _check(self, may_be_zero=("shared_ffn", "dense_layers"))
        if self.active > self.experts:
            raise ParameterError("experts.active", self.active, f"at most experts ({self.experts})")

    def touched(self, tokens: float) -> float:
        """Expected fraction of the experts that ``tokens`` tokens touch under even routing: 1-(1-k/E)^B."""
        return float(1.0 - (1.0 - self.active / self.experts) ** tokens)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the cache holds one latent a token."""

    kv_lora_rank: int
    rope_dim: int
    value_dim: int
    q_lora_rank: int = 0
    """0: queries are projected in one matrix."""

    def __post_init__(self) -> None:
        _check(self, may_be_zero=("q_lora_rank",))


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta-rule layers (arXiv 2412.06464): a constant state a sequence in place of a KV cache."""

    layers: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int = 4

    def __post_init__(self) -> None:
        _check(self)

    @property
    def keys(self) -> int:
        """Width of all keys of a token."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of all values of a token."""
        return self.value_heads * self.value_dim

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state of one sequence in one layer."""
        return self.value_heads * self.key_dim * self.value_dim


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Attention layers that see the last tokens alone: a cache of constant size a sequence."""

    layers: int
    tokens: int

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only transformer."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    """Of a query and a key; latent attention: with the rotary part."""
    ffn: int
    """Width of a dense feed-forward layer."""
    vocab: int
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_gate: bool = False
    """Attention output gated by a second query-sized projection (Qwen3-Next)."""
    experts: Experts | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None
    window: SlidingWindow | None = None
    """Of the attention layers that are not linear."""
    ffn_layers: int = 0
    """Feed-forward layers; 0: one in every layer. Hybrids (Nemotron-H) have fewer than mixing layers."""
    ffn_matrices: int = 3
    """Matrices of a feed-forward layer: 3 with a gate, 2 without."""
    assumed: tuple[str, ...] = ()
    """What was taken for granted of the shape, a sentence each."""

    def __post_init__(self) -> None:
        _check(self, may_be_zero=("ffn_layers",))
        special = (self.linear.layers if self.linear else 0) + (self.window.layers if self.window else 0)
        if special > self.layers:
            raise ParameterError("linear.layers + window.layers", special, f"at most layers ({self.layers})")
        if self.experts and self.experts.dense_layers > self.layers:
            raise ParameterError("experts.dense_layers", self.experts.dense_layers, f"at most {self.layers}")

    @classmethod
    def from_hf_config(cls, file: str | Path, path: str = "model") -> Architecture:
        """Read a Hugging Face ``config.json`` (or the folder that holds it).

        Raises ``ParameterError`` at ``path``, naming the key that is missing or out of range.
        """
        from rlsim.costs.hfconfig import read

        return read(Path(file), path)

    @property
    def attention_layers(self) -> int:
        """Layers that keep a KV cache of all tokens."""
        return self.layers - (self.linear.layers if self.linear else 0) - (self.window.layers if self.window else 0)

    @property
    def moe_layers(self) -> int:
        """Layers whose feed-forward part is a mixture of experts."""
        return (self.ffn_layers or self.layers) - self.experts.dense_layers if self.experts else 0

    def expert_parameters(self) -> int:
        """Parameters of all routed experts."""
        return self.moe_layers * self._expert() * self.experts.experts if self.experts else 0

    def active_expert_parameters(self) -> int:
        """Parameters of the routed experts one token passes."""
        return self.moe_layers * self._expert() * self.experts.active if self.experts else 0

    def _expert(self) -> int:
        """Parameters of one expert."""
        return self.ffn_matrices * self.hidden * self.experts.ffn if self.experts else 0

    def parameters(self) -> int:
        """All parameters."""
        return self.shared_parameters() + self.expert_parameters()

    def active_parameters(self) -> int:
        """Parameters used for one token, embeddings included, as model cards count them."""
        return self.shared_parameters() + self.active_expert_parameters()

    def matmul_parameters(self) -> int:
        """Active parameters that are multiplied: all but the input embedding, which is looked up."""
        return self.active_parameters() - (0 if self.tied_embeddings else self.vocab * self.hidden)

    def shared_parameters(self) -> int:
        """Everything but the routed experts."""
        embeddings = self.vocab * self.hidden * (1 if self.tied_embeddings else 2)
        norms = (2 * self.layers + 1) * self.hidden
        attention_layers = self.layers - (self.linear.layers if self.linear else 0)
        attention = attention_layers * self._attention_parameters() + self._linear_parameters()
        return embeddings + norms + attention + self._shared_ffn_parameters()

    def weight_bytes(self, bytes_per_parameter: float = 2.0) -> float:
        """Bytes of all weights."""
        return self.parameters() * bytes_per_parameter

    def kv_bytes_per_token(self, bytes_per_element: float = 2.0) -> float:
        """KV-cache bytes of one token over all layers, before any sharding."""
        return self.attention_layers * self._kv_elements(self.kv_heads) * bytes_per_element

    def kv_bytes_per_token_per_gpu(self, tensor_parallel: int = 1, bytes_per_element: float = 2.0) -> float:
        """The same on one tensor-parallel rank.

        KV heads are replicated once the ranks outnumber them, and a latent cache always is.
        """
        heads = -(-self.kv_heads // tensor_parallel)
        return self.attention_layers * self._kv_elements(heads) * bytes_per_element

    def state_bytes_per_sequence(self, bytes_per_state_element: float = 4.0, bytes_per_element: float = 2.0) -> float:
        """Constant state of one sequence: sliding windows, recurrent state (kept in fp32) and convolution window."""
        windows = self.window_bytes_per_sequence(bytes_per_element)
        if self.linear is None:
            return windows
        window = (2 * self.linear.keys + self.linear.values) * (self.linear.conv_kernel - 1)
        state = self.linear.state_elements * bytes_per_state_element
        return windows + self.linear.layers * (state + window * bytes_per_element)

    def window_bytes_per_sequence(self, bytes_per_element: float = 2.0) -> float:
        """Bytes of the full sliding windows of one sequence."""
        return self._window_tokens() * self._kv_elements(self.kv_heads) * bytes_per_element

    def _window_tokens(self) -> int:
        """Tokens that a sequence keeps in the layers with a window."""
        return self.window.layers * self.window.tokens if self.window else 0

    def pair_flops(self) -> float:
        """Forward FLOPs of one (query, key) pair over the layers that see all tokens: score and weighted value."""
        return self._layer_pair_flops() * self.attention_layers

    def _layer_pair_flops(self) -> float:
        value_dim = self.latent.value_dim if self.latent else self.head_dim
        return 2.0 * self.heads * (self.head_dim + value_dim)

    def token_flops(self) -> float:
        """Forward FLOPs of one token outside attention over all tokens.

        2 a multiplied parameter, the recurrence of linear layers (read-out, prediction and rank-one update: a
        multiply-add each), and the pairs with the tokens of a full sliding window.
        """
        recurrence = 6 * self.linear.layers * self.linear.state_elements if self.linear else 0
        return 2.0 * self.matmul_parameters() + recurrence + self._window_tokens() * self._layer_pair_flops()

    def forward_flops(self, tokens: int, attention_pairs: int) -> float:
        """FLOPs of a forward pass over ``tokens`` tokens that attend over ``attention_pairs`` pairs."""
        return self.token_flops() * tokens + self.pair_flops() * attention_pairs

    def _kv_elements(self, kv_heads: int) -> int:
        if self.latent:
            return self.latent.kv_lora_rank + self.latent.rope_dim
        return 2 * kv_heads * self.head_dim

    def _attention_parameters(self) -> int:
        if self.latent:
            return self._latent_parameters(self.latent)
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        bias = queries + 2 * keys if self.qkv_bias else 0
        return self.hidden * (queries * (3 if self.output_gate else 2) + 2 * keys) + bias

    def _latent_parameters(self, latent: LatentAttention) -> int:
        queries = self.heads * self.head_dim
        rank = latent.q_lora_rank
        query = rank * (self.hidden + queries) if rank else self.hidden * queries
        down = self.hidden * (latent.kv_lora_rank + latent.rope_dim)
        up = latent.kv_lora_rank * self.heads * (self.head_dim - latent.rope_dim + latent.value_dim)
        return query + down + up + self.heads * latent.value_dim * self.hidden

    def _linear_parameters(self) -> int:
        if self.linear is None:
            return 0
        mixed = 2 * self.linear.keys + self.linear.values
        projections = self.hidden * (mixed + 2 * self.linear.values + 2 * self.linear.value_heads)
        return self.linear.layers * (projections + mixed * self.linear.conv_kernel)

    def _shared_ffn_parameters(self) -> int:
        dense_layers = (self.ffn_layers or self.layers) - self.moe_layers
        dense = dense_layers * self.ffn_matrices * self.hidden * self.ffn
        if self.experts is None:
            return dense
        shared = self.ffn_matrices * self.experts.shared_ffn
        return dense + self.moe_layers * self.hidden * (shared + self.experts.experts)


def _check(shape: object, may_be_zero: tuple[str, ...] = ()) -> None:
    for field in fields(shape):  # type: ignore[arg-type]
        value = getattr(shape, field.name)
        if field.type == "int":
            count(field.name, value, least=0 if field.name in may_be_zero else 1)
