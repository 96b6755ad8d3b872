"""The image model of "Transformers are RNNs" (arXiv 2006.16236) in PyTorch, for benchmarks and evaluation of checkpoints.

The model is an encoder of causal self-attention layers over byte values, whose predictor returns the parameters of a
discretised mixture of logistics. Its parameters have the names of Tapeformer checkpoints. It supports float32 and float64.

Sizes in comments: B batch, L length, H heads, D head_dim, C length of a chunk, N number of chunks, K mixtures.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORMALIZER_EPS = 1e-6
LAYER_NORM_EPS = 1e-5
MIN_LOG_SCALE = -7.0
TINY_CDF = 1e-5


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and options of the model. The defaults are the MNIST model of the paper."""

    layers: int = 8
    heads: int = 8
    head_dim: int = 32
    feedforward: int = 1024
    mixtures: int = 10
    value_dim: int = 0  # 0 means half of d_model
    attention: str = "linear"  # linear | softmax | local | gated-delta | lsh
    form: str = "chunked"  # form of linear attention: chunked | quadratic; rotation = "features" is always quadratic
    chunk: int = 64
    window: int = 256  # keys that a token of local attention sees, with itself
    rounds: int = 4  # of LSH attention
    dropout: float = 0.0
    norm: str = "post"  # post | pre
    activation: str = "relu"  # relu | gelu (the erf form)
    positions: str = "sinusoidal"  # sinusoidal | grid | rotary | none
    rotation: str = "inputs"  # tensors that rotary positions rotate in linear attention: inputs | features
    conv: int = 0  # taps of the convolution of queries, keys and values; 0: no convolution
    conv_activation: str = "none"  # none | silu
    max_length: int = 783
    grid: tuple[int, int, int] = (28, 28, 1)  # height, width, channels of the image, for grid positions

    @classmethod
    def of_options(cls, options, **fields) -> "ModelConfig":
        """Returns a config with the sizes of measure.add_model_options(), options.length positions, and `fields`."""
        sizes = ("layers", "heads", "head_dim", "feedforward")
        return cls(**{name: getattr(options, name) for name in sizes}, max_length=options.length, **fields)

    @property
    def d_model(self) -> int:
        return self.heads * self.head_dim

    @property
    def value_width(self) -> int:
        """The width of the value embedding. Sinusoidal and grid positions use the rest of d_model."""
        return self.d_model if self.positions in ("rotary", "none") else self.value_dim or self.d_model // 2

    def __post_init__(self):
        allowed = {
            "attention": ("linear", "softmax", "local", "gated-delta", "lsh"),
            "form": ("chunked", "quadratic"),
            "norm": ("post", "pre"),
            "activation": ("relu", "gelu"),
            "positions": ("sinusoidal", "grid", "rotary", "none"),
            "rotation": ("inputs", "features"),
            "conv_activation": ("none", "silu"),
        }
        for name, values in allowed.items():
            value = getattr(self, name)
            if value not in values:
                raise ValueError(f"{name} = {value!r} is not supported, expected one of: {', '.join(values)}")
        if self.rotation == "features" and self.positions != "rotary":
            raise ValueError('rotation = "features" needs positions = "rotary"')


class FeatureMap(torch.autograd.Function):
    """The feature map phi(x) = elu(x) + 1 (eq. 7): x + 1 above zero and exp(x) below, without the rounding of e^x - 1 + 1.

    Its derivative is min(phi(x), 1), so forward() saves only the result.
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = torch.exp(x.clamp(max=0)) + x.clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * y.clamp(max=1)


class Relu(torch.autograd.Function):
    """A relu whose gradient uses its result.

    With torch.relu, torch.compile saves a mask of bytes. With AVX2, writing this mask takes longer than all other operations
    except matrix products.
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = x.clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * y.sign()


feature_map = FeatureMap.apply
relu = Relu.apply


def linear_attention_quadratic(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Computes causal linear attention by its definition (eq. 8) with an L x L matrix. q, k, v and result: (B, H, L, D)."""
    scores = torch.tril(feature_map(q) @ feature_map(k).transpose(-1, -2))
    return (scores @ v) / (scores.sum(-1, keepdim=True) + NORMALIZER_EPS)


def linear_attention_chunked(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    """Computes causal linear attention in chunks (eq. 9 to 12). q, k, v and result: (B, H, L, D) with any L.

    A chunk adds phi(k)^T v to the state. The state before a chunk is the sum over all earlier chunks.
    """
    batch, heads, length, dim = q.shape
    pad = -length % chunk
    if pad:  # padding after the end does not affect earlier positions
        q, k, v = (F.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
    q, k, v = (x.reshape(batch, heads, -1, chunk, dim) for x in (q, k, v))  # (B, H, N, C, D)
    q, k = feature_map(q), feature_map(k)

    added = k.transpose(-1, -2) @ v  # (B, H, N, D, D)
    state = added.cumsum(2) - added
    added = k.sum(3)  # (B, H, N, D)
    normalizer = (added.cumsum(2) - added).unsqueeze(-1)

    scores = torch.tril(q @ k.transpose(-1, -2))  # (B, H, N, C, C)
    numerator = scores @ v + q @ state
    denominator = scores.sum(-1, keepdim=True) + q @ normalizer + NORMALIZER_EPS
    return (numerator / denominator).reshape(batch, heads, length + pad, dim)[:, :, :length]


def local_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Computes causal attention to the last `window` keys in blocks of `window` queries. q, k, v and result: (B, H, L, D)."""
    length = q.shape[2]
    q, k, v = (F.pad(x, (0, 0, 0, -length % window)).unflatten(2, (-1, window)).transpose(1, 2) for x in (q, k, v))
    k, v = (torch.cat((F.pad(x, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1], x), 3) for x in (k, v))  # (B, N, H, 2 W, D)
    distance = torch.arange(window)[:, None] + window - torch.arange(2 * window)
    mask = ((distance >= 0) & (distance < window)).expand(q.shape[1], 1, -1, -1).clone()
    mask[0, :, :, :window] = False
    mixed = F.scaled_dot_product_attention(*(x.flatten(0, 1) for x in (q, k, v)), mask.repeat(len(q), 1, 1, 1))
    return mixed.unflatten(0, q.shape[:2]).transpose(1, 2).flatten(2, 3)[:, :, :length]


def gated_delta_chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, chunk: int) -> Tensor:
    """Computes the gated delta rule in chunks (Yang et al. 2024, "Gated Delta Networks", section 3.3), with any length L.

    S_t = (I - beta_t k_t k_t^T) exp(g_t) S_{t-1} + beta_t k_t v_t^T and o_t = S_t^T q_t. q, k, v and result: (B, H, L, D).
    g and beta: (B, H, L). The values u that the tokens of a chunk write solve (I + A) u = beta v - (beta e^G k) S, where G are
    the sums of g from the start of the chunk, and A_ij = beta_i (k_i . k_j) e^(G_i - G_j) for i > j.
    """
    length = q.shape[2]
    pad = -length % chunk
    if pad:  # padding after the end does not affect earlier positions
        q, k, v = (F.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
        g, beta = (F.pad(x, (0, pad)) for x in (g, beta))
    q, k, v, g, beta = (x.unflatten(2, (-1, chunk)).float() for x in (q, k, v, g, beta))  # (B, H, N, C, ...)
    total = g.cumsum(-1)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).tril().exp().tril()  # e^(G_i - G_j) for i >= j
    erase = beta.unsqueeze(-1) * k
    unit = torch.eye(chunk) + (erase @ k.transpose(-1, -2) * decay).tril(-1)
    right = torch.cat((beta.unsqueeze(-1) * v, erase * total.exp().unsqueeze(-1)), -1)
    written, erased = torch.linalg.solve_triangular(unit, right, upper=False, unitriangular=True).split(v.shape[-1], -1)
    scores = q @ k.transpose(-1, -2) * decay
    read = q * total.exp().unsqueeze(-1)
    kept = k * (total[..., -1:] - total).exp().unsqueeze(-1)
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    results = []
    for n in range(q.shape[2]):
        u = written[:, :, n] - erased[:, :, n] @ state
        results.append(read[:, :, n] @ state + scores[:, :, n] @ u)
        state = state * total[:, :, n, -1, None, None].exp() + kept[:, :, n].transpose(-1, -2) @ u
    return torch.stack(results, 2).flatten(2, 3)[:, :, :length]


class GatedDelta(nn.Module):
    """What the attention kind "gated-delta" computes from projected queries, keys and values and the input of the layer."""

    def __init__(self, heads: int, dim: int, chunk: int):
        super().__init__()
        width = heads * dim
        self.heads, self.dim, self.chunk = heads, dim, chunk
        self.decay, self.beta = nn.Linear(width, heads, bias=False), nn.Linear(width, heads, bias=False)
        self.log_rate, self.time_step = nn.Parameter(torch.zeros(heads)), nn.Parameter(torch.full((heads,), -4.0))
        self.gate = nn.Linear(width, width, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(dim))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, state: Tensor | None = None) -> Tensor:
        """q, k, v and result: (B, H, L, D). x: (B, L, H D). With a state (B, H, D, D), L is 1, and the state is advanced."""
        q, k = (y * torch.rsqrt(y.float().square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
        g = (-self.log_rate.exp() * F.softplus(self.decay(x).float() + self.time_step)).transpose(1, 2)
        beta = self.beta(x).float().sigmoid().transpose(1, 2)
        if state is None:
            out = gated_delta_chunked(q * self.dim**-0.5, k, v, g, beta, self.chunk)
        else:
            state *= g.exp().unsqueeze(-1)
            state += k.transpose(-1, -2) @ (beta.unsqueeze(-1) * (v - k @ state))
            out = q * self.dim**-0.5 @ state
        gate = self.gate(x).unflatten(-1, (self.heads, self.dim)).transpose(1, 2)
        norm = torch.rsqrt(out.square().mean(-1, keepdim=True) + 1e-5)
        return (out * norm * self.norm_weight * F.silu(gate.float())).to(v.dtype)


def rotary(x: Tensor) -> Tensor:
    """Rotates features i and i + D / 2 of position p by the angle p / 10000^(2 i / D). x: (B, H, L, D)."""
    length, dim = x.shape[-2:]
    even = torch.arange(0, dim, 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10000 ** (even / dim)
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def linear_attention_rotary(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Computes causal linear attention with rotated features (RoFormer, eq. 19). q, k, v and result: (B, H, L, D)."""
    q, k = feature_map(q), feature_map(k)
    numerator = torch.tril(rotary(q) @ rotary(k).transpose(-1, -2)) @ v
    return numerator / (torch.tril(q @ k.transpose(-1, -2)).sum(-1, keepdim=True) + NORMALIZER_EPS)


class ShortConv(nn.Module):
    """A causal depthwise convolution over time. Tap j of `taps` reads the token taps - 1 - j before the current token."""

    def __init__(self, channels: int, taps: int, activation: str):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, taps))
        self.activation = F.silu if activation == "silu" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """x and result: (B, L, channels)."""
        padded = F.pad(x.transpose(1, 2), (self.weight.shape[1] - 1, 0))
        return self.activation(F.conv1d(padded, self.weight.unsqueeze(1), groups=x.shape[-1])).transpose(1, 2)


class AttentionLayer(nn.Module):
    """Causal self-attention with several heads. Its four projections map d_model features to d_model features."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width = config.d_model
        self.query_projection = nn.Linear(width, width)
        self.key_projection = nn.Linear(width, width)
        self.value_projection = nn.Linear(width, width)
        self.out_projection = nn.Linear(width, width)
        if config.attention == "gated-delta":
            self.gated = GatedDelta(config.heads, config.head_dim, config.chunk)
        if config.attention == "lsh":
            from reformer_pytorch import LSHAttention

            self.lsh = LSHAttention(bucket_size=config.chunk, n_hashes=config.rounds, causal=True, attend_across_buckets=True)
        if config.conv:
            self.conv = ShortConv(3 * width, config.conv, config.conv_activation)

    def heads(self, x: Tensor) -> Tensor:
        """Divides features (B, L, H * D) into heads (B, H, L, D)."""
        return x.unflatten(-1, (self.config.heads, self.config.head_dim)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        projected = (self.query_projection(x), self.key_projection(x), self.value_projection(x))
        if self.config.conv:
            projected = self.conv(torch.cat(projected, -1)).chunk(3, -1)
        q, k, v = (self.heads(part) for part in projected)
        rotates_features = self.config.attention == "linear" and self.config.rotation == "features"
        if self.config.positions == "rotary" and not rotates_features:
            q, k = rotary(q), rotary(k)
        if self.config.attention == "softmax":
            dropout = self.config.dropout if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        elif self.config.attention == "local":
            mixed = local_attention(q, k, v, self.config.window)
        elif self.config.attention == "gated-delta":
            mixed = self.gated(q, k, v, x)
        elif self.config.attention == "lsh":
            mixed = self.lsh(q.flatten(0, 1), v.flatten(0, 1))[0].unflatten(0, q.shape[:2])
        elif rotates_features:
            mixed = linear_attention_rotary(q, k, v)
        elif self.config.form == "quadratic":
            mixed = linear_attention_quadratic(q, k, v)
        else:
            mixed = linear_attention_chunked(q, k, v, self.config.chunk)
        return self.out_projection(mixed.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Attention and a feed-forward layer, each with a residual and a LayerNorm after the residual (post) or before it (pre)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention = AttentionLayer(config)
        self.linear1 = nn.Linear(config.d_model, config.feedforward)
        self.linear2 = nn.Linear(config.feedforward, config.d_model)
        self.norm1 = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.norm2 = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.dropout = nn.Dropout(config.dropout)
        self.activation = relu if config.activation == "relu" else F.gelu
        self.pre_norm = config.norm == "pre"

    def feedforward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.linear1(x)))
        return self.dropout(self.linear2(hidden))

    def forward(self, x: Tensor, attend: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Computes the layer. `attend` replaces its attention, for example by a step of a recurrent form."""
        attend = attend or self.attention
        if self.pre_norm:
            x = x + self.dropout(attend(self.norm1(x)))
            return x + self.feedforward(self.norm2(x))
        x = self.norm1(x + self.dropout(attend(x)))
        return self.norm2(x + self.feedforward(x))


def sinusoidal_positions(length: int, width: int) -> Tensor:
    """Returns pe (length, width) float64: pe[p, 2i] = sin(p / 10000^(2i / width)), pe[p, 2i + 1] = cos of the same angle."""
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10000 ** (even / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)[:, :width]


def grid_positions(grid: tuple[int, int, int], length: int, width: int) -> Tensor:
    """Returns sines and cosines (length, width) float64 of the row, the column and the channel of the next byte.

    The frequencies have the base 100. Each coordinate has an equal share of the features. Grey images have no channel.
    """
    height, columns, channels = grid
    following = torch.arange(1, length + 1)
    pixel = following // channels
    axes = [pixel // columns, pixel % columns] + ([following % channels] if channels > 1 else [])
    parts = []
    for i, coordinate in enumerate(axes):
        share = width * (i + 1) // len(axes) - width * i // len(axes)
        even = torch.arange(0, share, 2, dtype=torch.float64)
        angle = coordinate.double()[:, None] / 100 ** (even / share)
        parts.append(torch.stack((angle.sin(), angle.cos()), -1).flatten(1)[:, :share])
    return torch.cat(parts, -1)


class ImageModel(nn.Module):
    """Maps bytes (B, L) to mixture parameters (B, L, 3 K). Position i has the distribution of byte i + 1."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        value_dim = config.value_width
        self.value_embedding = nn.Embedding(256, value_dim)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.predictor = nn.Linear(config.d_model, 3 * config.mixtures)
        width = config.d_model - value_dim
        if config.positions == "grid":
            positions = grid_positions(config.grid, config.max_length, width)
        else:
            positions = sinusoidal_positions(config.max_length, width)
        self.register_buffer("positions", positions.to(torch.get_default_dtype()), persistent=False)
        self.positions_exact = positions

    def _apply(self, fn, recurse=True):
        """Converts the parameters as torch.nn.Module does, and rounds the positions from float64."""
        super()._apply(fn, recurse)
        self.positions = self.positions_exact.to(self.predictor.weight)
        return self

    def embed(self, values: Tensor) -> Tensor:
        """Returns the embeddings of the bytes joined with the features of their positions."""
        values = self.value_embedding(values)
        if self.positions.shape[-1] == 0:
            return values
        positions = self.positions[: values.shape[1]].expand(values.shape[0], -1, -1)
        return torch.cat((values, positions), -1)

    def forward(self, values: Tensor) -> Tensor:
        x = self.embed(values)
        for layer in self.layers:
            x = layer(x)
        return self.predictor(self.norm(x))

    def loss(self, images: Tensor) -> Tensor:
        """Returns the nats per modelled byte of images (B, L + 1). The first byte is given and not modelled."""
        images = images.long()
        target = images[:, 1:].to(self.predictor.weight.dtype) / 255 * 2 - 1
        return mixture_of_logistics_loss(self(images[:, :-1]), target)


def mixture_of_logistics_nll(parameters: Tensor, y: Tensor) -> Tensor:
    """Returns the negative log-likelihood of y (...) in [-1, 1] for (..., 3 K) = K logits, K means, K log-scales.

    It is -log sum_k pi_k [sigmoid((y + 1/255 - mu_k) / s_k) - sigmoid((y - 1/255 - mu_k) / s_k)]. At the edges of the range,
    the probability of the outer tail is added. A tiny difference is replaced by the density times the width 1/127.5.
    """
    logits, means, log_scales = parameters.chunk(3, -1)
    log_scales = log_scales.clamp(min=MIN_LOG_SCALE)
    y = y.unsqueeze(-1)
    centered = y - means
    inverse_scale = torch.exp(-log_scales)
    upper = inverse_scale * (centered + 1 / 255)
    lower = inverse_scale * (centered - 1 / 255)
    middle = inverse_scale * centered
    delta = torch.sigmoid(upper) - torch.sigmoid(lower)

    tiny = middle - log_scales - 2 * F.softplus(middle) - math.log(127.5)
    # The clamp keeps the logarithm finite in the branch that torch.where does not select.
    inside = torch.where(delta > TINY_CDF, torch.log(delta.clamp(min=1e-12)), tiny)
    log_probability = torch.where(y < -0.999, F.logsigmoid(upper), torch.where(y > 0.999, F.logsigmoid(-lower), inside))
    return -torch.logsumexp(log_probability + F.log_softmax(logits, -1), -1)


def mixture_of_logistics_loss(parameters: Tensor, y: Tensor) -> Tensor:
    """Returns the mean negative log-likelihood in nats per modelled byte. Divided by ln 2, it is bits/dim."""
    return mixture_of_logistics_nll(parameters, y).mean()


def sample_mixture_of_logistics(parameters: Tensor) -> Tensor:
    """Returns bytes (...) drawn from mixtures (..., 3 K): k ~ softmax(logits), v = mu_k + s_k (log u - log(1 - u)).

    The scale is s = elu(log_scale) + 1.0001, as in the code that the authors released.
    """
    logits, means, log_scales = parameters.chunk(3, -1)
    # Gumbel-max: the argmax of logits + Gumbel noise is a sample of softmax(logits).
    noise = -torch.log(torch.empty_like(logits).exponential_().clamp_(min=1e-30))
    chosen = (logits + noise).argmax(-1, keepdim=True)
    mean = means.gather(-1, chosen).squeeze(-1)
    scale = F.elu(log_scales.gather(-1, chosen).squeeze(-1)) + 1.0001
    u = torch.rand_like(mean).clamp(1e-5, 1 - 1e-5)
    value = mean + scale * (torch.log(u) - torch.log1p(-u))
    return ((value + 1) / 2 * 255).round().clamp(0, 255).long()
