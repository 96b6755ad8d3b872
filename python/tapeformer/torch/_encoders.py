"""Encoders and builders with the names, arguments and parameters of fast-transformers."""

from typing import Any, Dict, Optional

import torch
from torch import nn
from torch.nn import functional as F

from . import _modules as modules

_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class TransformerEncoderLayer(nn.Module):
    """Attention and a feedforward network, each with a residual branch and then a layer norm."""

    def __init__(
        self, attention: nn.Module, d_model: int, d_ff: Optional[int] = None, dropout: float = 0.1,
        activation: Any = "relu", event_dispatcher="",
    ):  # fmt: skip
        super().__init__()
        d_ff = d_ff or 4 * d_model
        self.attention = attention
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.activation = activation if callable(activation) else _find("activation", activation, _ACTIVATIONS)

    def _feed_forward(self, x):
        x = self.norm1(x)
        y = self.dropout(self.activation(self.linear1(x)))
        return self.norm2(x + self.dropout(self.linear2(y)))

    def forward(self, x, attn_mask=None, length_mask=None):
        y = self.attention(x, x, x, attn_mask, query_lengths=length_mask, key_lengths=length_mask)
        return self._feed_forward(x + self.dropout(y))


class TransformerEncoder(nn.Module):
    """Layers (batch, length, d_model), and a norm after the last."""

    def __init__(self, layers, norm_layer: Optional[nn.Module] = None, event_dispatcher=""):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm_layer

    def forward(self, x, attn_mask=None, length_mask=None):
        for layer in self.layers:
            x = layer(x, attn_mask=attn_mask, length_mask=length_mask)
        return x if self.norm is None else self.norm(x)


class RecurrentTransformerEncoderLayer(TransformerEncoderLayer):
    """One token (batch, d_model) of a TransformerEncoderLayer. Returns the result and the state of the attention."""

    def forward(self, x, state=None, memory=None):
        with torch.no_grad():
            y, state = self.attention(x, x, x, state, memory)
            return self._feed_forward(x + self.dropout(y)), state


class RecurrentTransformerEncoder(TransformerEncoder):
    """One token (batch, d_model) of a causal TransformerEncoder. Returns the result and the list of states."""

    def forward(self, x, state=None, memory=None):
        states = list(state if state is not None else memory if memory is not None else [None] * len(self.layers))
        with torch.no_grad():
            for i, layer in enumerate(self.layers):
                x, states[i] = layer(x, states[i])
            return (x if self.norm is None else self.norm(x)), states


class _Builder:
    """Options as attributes, from which get() makes a model."""

    _options: Dict[str, Any] = {
        "n_layers": 4, "n_heads": 4, "query_dimensions": 64, "value_dimensions": 64, "feed_forward_dimensions": 1024,
        "dropout": 0.1, "activation": "relu", "final_normalization": True, "attention_type": "full",
        "feature_map": None, "softmax_temp": None, "attention_dropout": 0.1, "eps": 1e-6,
    }  # fmt: skip
    _more_options: Dict[str, Any] = {}

    def __init__(self):
        for name, value in {**self._options, **self._more_options}.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        known = sorted({**self._options, **self._more_options})
        if name not in known:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}; it has {', '.join(known)}")
        object.__setattr__(self, name, value)

    @classmethod
    def from_kwargs(cls, **options):
        """Returns a builder with the options. Raises AttributeError for an unknown option."""
        return cls.from_dictionary(options)

    @classmethod
    def from_dictionary(cls, options: Dict[str, Any], strict: bool = True):
        """Returns a builder with the options. Without `strict`, unknown options are ignored."""
        builder = cls()
        for name, value in options.items():
            if strict or name in {**cls._options, **cls._more_options}:
                setattr(builder, name, value)
        return builder

    @classmethod
    def from_namespace(cls, options, strict: bool = False):
        return cls.from_dictionary(vars(options), strict)

    def _build(self, encoder, encoder_layer, attention_layer, attentions):
        d_model = self.value_dimensions * self.n_heads
        make = _find("attention_type", self.attention_type, attentions)
        layers = [
            encoder_layer(
                attention_layer(make(self), d_model, self.n_heads, self.query_dimensions, self.value_dimensions),
                d_model, self.feed_forward_dimensions, self.dropout, self.activation,
            )
            for _ in range(self.n_layers)
        ]  # fmt: skip
        return encoder(layers, nn.LayerNorm(d_model) if self.final_normalization else None)


class TransformerEncoderBuilder(_Builder):
    """Makes a TransformerEncoder: TransformerEncoderBuilder.from_kwargs(attention_type="linear", n_layers=6).get().

    The attention types are "full", "linear", "causal-linear", "local" and "reformer".
    """

    _more_options = {"local_context": 128, "chunk_size": 32, "bits": 8, "rounds": 4, "masked": False}
    _attentions = {
        "full": lambda b: modules.FullAttention(b.softmax_temp, b.attention_dropout),
        "linear": lambda b: modules.LinearAttention(b.query_dimensions, b.feature_map, b.eps),
        "causal-linear": lambda b: modules.CausalLinearAttention(b.query_dimensions, b.feature_map, b.eps),
        "local": lambda b: modules.LocalAttention(b.local_context, b.softmax_temp, b.attention_dropout),
        "reformer": lambda b: modules.ReformerAttention(
            b.chunk_size, b.bits, b.rounds, b.masked, b.softmax_temp, b.attention_dropout
        ),
    }

    def get(self) -> TransformerEncoder:
        return self._build(TransformerEncoder, TransformerEncoderLayer, modules.AttentionLayer, self._attentions)


class RecurrentEncoderBuilder(_Builder):
    """Makes a RecurrentTransformerEncoder, with the attention types "full", "linear" and "causal-linear"."""

    _attentions = {
        "full": lambda b: modules.RecurrentFullAttention(b.softmax_temp, b.attention_dropout),
        **dict.fromkeys(
            ("linear", "causal-linear"),
            lambda b: modules.RecurrentLinearAttention(b.query_dimensions, b.feature_map, b.eps),
        ),
    }

    def get(self) -> RecurrentTransformerEncoder:
        return self._build(
            RecurrentTransformerEncoder, RecurrentTransformerEncoderLayer, modules.RecurrentAttentionLayer,
            self._attentions,
        )  # fmt: skip


def make_mirror(src_module: nn.Module, dst_module: nn.Module) -> None:
    """Lets the parameters of a module, such as a recurrent encoder, be those of another, such as the trained encoder.

    Both modules must have parameters of the same names and shapes. Raises ValueError otherwise.
    """
    source, target = dict(src_module.named_parameters()), dict(dst_module.named_parameters())
    different = sorted(set(source) ^ set(target)) or [n for n in source if source[n].shape != target[n].shape]
    if different:
        raise ValueError(f"make_mirror: the modules have different parameters, such as {different[0]}")
    for name, parameter in source.items():
        path, _, attribute = name.rpartition(".")
        setattr(dst_module.get_submodule(path), attribute, parameter)


def _find(option: str, name, choices: Dict[str, Any]):
    if name not in choices:
        raise ValueError(f"{option} must be {' or '.join(map(repr, choices))}, not {name!r}")
    return choices[name]
