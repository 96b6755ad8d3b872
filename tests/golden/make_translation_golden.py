"""Writes translation.safetensors: small encoder-decoder models in PyTorch and float64, and their translations.

The forms post_norm and pre_norm are torch.nn.TransformerEncoder and torch.nn.TransformerDecoder. The reversible form and
linear attention are written here from the equations. The beam search computes each hypothesis again at each step.
README.md lists the keys. Run this script with the Python of tests/bench/peers/setup.sh.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

LAYERS, HEADS, DIM, FEEDFORWARD, VOCABULARY, MAX_LENGTH = 2, 2, 8, 32, 11, 16
WIDTH, END = HEADS * DIM, VOCABULARY - 1
SOURCE_LENGTHS = (5, 9, 1, 4, 7, 2)  # without the end tokens
SMOOTHING, ALPHA = 0.1, 0.6
# Cases: name, size of the beam, maximum number of tokens.
SEARCHES = (("greedy", 1, MAX_LENGTH), ("beam", 4, MAX_LENGTH), ("short_greedy", 1, 3), ("short_beam", 4, 3))
TRAINING_STEPS = 400
NORMALIZER_EPS = 1e-6
GRADIENTS = (
    "embedding.weight",
    "encoder.layers.0.attention.query_projection.weight",
    "decoder.layers.0.cross_attention.value_projection.weight",
    "decoder.layers.1.cross_norm.weight",
)
Decoder = Callable[[Tensor, Tensor, Tensor], Tensor]  # of inputs, encoded source and mask of its padding


def draw_weights() -> dict[str, Tensor]:
    """Returns weights with the names of a checkpoint."""
    shapes = {"embedding.weight": (VOCABULARY, WIDTH), "predictor.bias": (VOCABULARY,)}
    for stack, attentions, norms in (
        ("encoder", ("attention",), ("norm1", "norm2")),
        ("decoder", ("attention", "cross_attention"), ("norm1", "cross_norm", "norm2")),
    ):
        for name in (f"{stack}.layers.{i}" for i in range(LAYERS)):
            for part in (f"{name}.{a}.{p}_projection" for a in attentions for p in ("query", "key", "value", "out")):
                shapes |= {f"{part}.weight": (WIDTH, WIDTH), f"{part}.bias": (WIDTH,)}
            for norm in norms:
                shapes |= {f"{name}.{norm}.{p}": (WIDTH,) for p in ("weight", "bias")}
            shapes |= {f"{name}.linear1.weight": (FEEDFORWARD, WIDTH), f"{name}.linear1.bias": (FEEDFORWARD,)}
            shapes |= {f"{name}.linear2.weight": (WIDTH, FEEDFORWARD), f"{name}.linear2.bias": (WIDTH,)}
        shapes |= {f"{stack}.norm.{p}": (WIDTH,) for p in ("weight", "bias")}
    weights = {name: 0.25 * torch.randn(shape) for name, shape in sorted(shapes.items())}
    for name in weights:
        if "norm" in name and name.endswith("weight"):
            weights[name] += 1
    return {name: weight.requires_grad_() for name, weight in weights.items()}


def make_positions() -> Tensor:
    """Returns the sinusoids, (MAX_LENGTH, WIDTH). Tapeformer rounds them to float32."""
    angles = torch.arange(MAX_LENGTH)[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1).float().double()


def embed(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    return F.embedding(tokens, weights["embedding.weight"]) * math.sqrt(WIDTH) + make_positions()[: tokens.shape[1]]


class TorchForm:
    """The stacks of torch.nn with the weights of a checkpoint."""

    def __init__(self, weights: dict[str, Tensor], pre_norm: bool):
        options = {"dropout": 0.0, "batch_first": True, "norm_first": pre_norm}
        encoder_layer = nn.TransformerEncoderLayer(WIDTH, HEADS, FEEDFORWARD, **options)
        decoder_layer = nn.TransformerDecoderLayer(WIDTH, HEADS, FEEDFORWARD, **options)
        self.encoder = nn.TransformerEncoder(encoder_layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder_layer, LAYERS, nn.LayerNorm(WIDTH))
        self.weights = weights

    def parameters(self, stack: str) -> dict[str, Tensor]:
        """Returns the weights of a stack with the names of torch.nn."""
        renamed = {}
        names = ("self_attn", "norm1", "norm2") if stack == "encoder" else ("self_attn", "norm1", "norm3")
        for ours, theirs in (("attention", names[0]), ("norm1", names[1]), ("norm2", names[2]),
                             ("cross_attention", "multihead_attn"), ("cross_norm", "norm2"),
                             ("linear1", "linear1"), ("linear2", "linear2")):  # fmt: skip
            for i in range(LAYERS):
                prefix, to = f"{stack}.layers.{i}.{ours}.", f"layers.{i}.{theirs}."
                own = {name.removeprefix(prefix): w for name, w in self.weights.items() if name.startswith(prefix)}
                for kind in ("weight", "bias") if own else ():
                    if kind in own:
                        renamed[to + kind] = own[kind]
                        continue
                    joint = [own[f"{part}_projection.{kind}"] for part in ("query", "key", "value")]
                    renamed[f"{to}in_proj_{kind}"] = torch.cat(joint)
                    renamed[f"{to}out_proj.{kind}"] = own[f"out_projection.{kind}"]
        return renamed | {f"norm.{kind}": self.weights[f"{stack}.norm.{kind}"] for kind in ("weight", "bias")}

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        options = {"src_key_padding_mask": padding}
        return torch.func.functional_call(self.encoder, self.parameters("encoder"), (x,), options, strict=True)

    def decode(self, x: Tensor, source: Tensor, padding: Tensor) -> Tensor:
        options = {"tgt_mask": causal_mask(x.shape[1]), "memory_key_padding_mask": padding}
        return torch.func.functional_call(self.decoder, self.parameters("decoder"), (x, source), options, strict=True)


def causal_mask(length: int) -> Tensor:
    """Returns a mask that is true for the keys that a query must not read."""
    return torch.ones(length, length, dtype=torch.bool).triu(1)


@dataclass
class OwnForm:
    """Pre-norm and reversible stacks with softmax or linear attention."""

    weights: dict[str, Tensor]
    reversible: bool
    linear: bool

    def affine(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}.weight"].mT + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def attention(self, name: str, x: Tensor, keys: Tensor, hidden: Tensor) -> Tensor:
        """Attention of x to the rows of `keys`. `hidden`, (…, queries, keys), is true for keys that are not read."""
        q, k, v = (
            self.affine(f"{name}.{part}_projection", rows).unflatten(-1, (HEADS, DIM)).transpose(1, 2)
            for part, rows in (("query", x), ("key", keys), ("value", keys))
        )
        if self.linear:
            scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).masked_fill(hidden, 0)
            shares = scores / (scores.sum(-1, keepdim=True) + NORMALIZER_EPS)
        else:
            shares = (q @ k.mT / math.sqrt(DIM)).masked_fill(hidden, -math.inf).softmax(-1)
        return self.affine(f"{name}.out_projection", (shares @ v).transpose(1, 2).flatten(2))

    def run_stack(self, stack: str, x: Tensor, hidden: Tensor, source: Tensor | None, source_hidden: Tensor) -> Tensor:
        """Returns norm(mean of the halves) of a reversible stack, or norm(x)."""
        x1 = x2 = x
        for name in (f"{stack}.layers.{i}" for i in range(LAYERS)):
            branches = [("norm1", lambda y: self.attention(f"{name}.attention", y, y, hidden))]
            if source is not None:
                branches.append(
                    ("cross_norm", lambda y: self.attention(f"{name}.cross_attention", y, source, source_hidden))
                )
            branches.append(
                ("norm2", lambda y: self.affine(f"{name}.linear2", self.affine(f"{name}.linear1", y).relu()))
            )
            for norm, branch in branches:
                if self.reversible:
                    x1, x2 = x2, x1 + branch(self.norm(f"{name}.{norm}", x2))
                else:
                    x1 = x2 = x2 + branch(self.norm(f"{name}.{norm}", x2))
        return self.norm(f"{stack}.norm", (x1 + x2) / 2)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.run_stack("encoder", x, padding[:, None, None], None, padding)

    def decode(self, x: Tensor, source: Tensor, padding: Tensor) -> Tensor:
        return self.run_stack("decoder", x, causal_mask(x.shape[1]), source, padding[:, None, None])


@dataclass
class Model:
    weights: dict[str, Tensor]
    form: TorchForm | OwnForm

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the encoded sources and the mask of their padding."""
        padding = torch.arange(source.shape[1]) >= lengths[:, None]
        return self.form.encode(embed(self.weights, source), padding), padding

    def logits(self, inputs: Tensor, source: Tensor, padding: Tensor) -> Tensor:
        decoded = self.form.decode(embed(self.weights, inputs), source, padding)
        return decoded @ self.weights["embedding.weight"].mT + self.weights["predictor.bias"]


@dataclass(order=True)
class Hypothesis:
    score: float  # the sum of log-probabilities of an unfinished hypothesis
    log_probability: float
    tokens: list[int] = field(compare=False)
    complete: bool = field(default=True, compare=False)


def penalty(tokens: int) -> float:
    return ((5 + tokens) / 6) ** ALPHA


@torch.no_grad()
def search(model: Model, source: Tensor, beam: int, max_length: int) -> list[Hypothesis]:
    """Returns the `beam` best translations of one sentence (1, length), the best first."""
    encoded, padding = model.encode(source, torch.tensor([source.shape[1]]))
    candidates = 2 * beam if beam > 1 else 1
    live, finished = [Hypothesis(0, 0, [])], []
    for length in range(1, max_length + 1):
        inputs = torch.tensor([[END, *one.tokens] for one in live])
        logits = model.logits(inputs, encoded.expand(len(live), -1, -1), padding.expand(len(live), -1))[:, -1]
        sums = torch.tensor([one.log_probability for one in live])[:, None] + logits.log_softmax(-1)
        best = sums.flatten().topk(candidates)
        following = []
        for total, index in zip(best.values.tolist(), best.indices.tolist()):
            tokens, token = live[index // VOCABULARY].tokens, index % VOCABULARY
            if token == END:
                finished.append(Hypothesis(total / penalty(length), total, tokens))
            else:
                following.append(Hypothesis(total, total, [*tokens, token]))
        live, finished = following[:beam], sorted(finished, reverse=True)[:beam]
        if not live:
            break
        if len(finished) == beam and finished[-1].score > live[0].score / penalty(max_length):
            break
    if finished:
        return finished
    return [Hypothesis(h.score / penalty(max_length), h.log_probability, h.tokens, False) for h in live]


def record_search(model: Model, batch: dict[str, Tensor], beam: int, max_length: int) -> dict[str, Tensor]:
    """Returns the translations of all sentences. Missing tokens and hypotheses are -1, and missing scores 0."""
    count = len(SOURCE_LENGTHS)
    result = {
        "tokens": torch.full((count, beam, MAX_LENGTH), -1),
        "scores": torch.zeros(count, beam),
        "log_probabilities": torch.zeros(count, beam),
        "complete": torch.full((count, beam), -1),
    }
    for i, length in enumerate(batch["source_lengths"].tolist()):
        for j, one in enumerate(search(model, batch["source"][i : i + 1, :length], beam, max_length)):
            result["tokens"][i, j, : len(one.tokens)] = torch.tensor(one.tokens, dtype=torch.int64)
            result["scores"][i, j], result["log_probabilities"][i, j] = one.score, one.log_probability
            result["complete"][i, j] = one.complete
    shown = [[t for t in row if t >= 0] for row in result["tokens"][:, 0].tolist()]
    print(f"  beam {beam}, at most {max_length} tokens: {shown}")
    return result


def make_batch(source_lengths: tuple[int, ...]) -> dict[str, Tensor]:
    """Returns sentences as in TranslationDataset::batch(). A target is the source backwards without some tokens."""
    sources = [torch.randint(END, (length,)) for length in source_lengths]
    targets = [source.flip(0)[torch.rand(len(source)) > 0.3] for source in sources]
    count, longest = len(sources), max(len(target) for target in targets)
    source = torch.full((count, max(source_lengths) + 1), END)
    tokens = torch.full((count, longest + 2), END)
    mask = torch.zeros(count, longest + 1, dtype=torch.uint8)
    for i, target in enumerate(targets):
        source[i, : source_lengths[i]] = sources[i]
        tokens[i, 1 : len(target) + 1] = target
        mask[i, : len(target) + 1] = 1
    return {"source": source, "source_lengths": torch.tensor(source_lengths) + 1, "tokens": tokens, "mask": mask}


def compute_logits(model: Model, batch: dict[str, Tensor]) -> Tensor:
    return model.logits(batch["tokens"][:, :-1], *model.encode(batch["source"], batch["source_lengths"]))


def select(batch: dict[str, Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the logits and the targets of the rows that are not padding."""
    valid = batch["mask"].bool()
    return logits[valid], batch["tokens"][:, 1:][valid]


def train(models: list[Model]) -> None:
    """Trains the common weights of the models, because random models repeat one token."""
    optimizer = torch.optim.Adam(models[0].weights.values(), lr=4e-3)
    for _ in range(TRAINING_STEPS):
        batch = make_batch(tuple(torch.randint(1, 10, (16,)).tolist()))
        optimizer.zero_grad()
        losses = [F.cross_entropy(*select(batch, compute_logits(model, batch))) for model in models]
        sum(losses).backward()
        optimizer.step()
    print("losses after training:", [round(loss.item(), 2) for loss in losses])


def record(model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    logits = compute_logits(model, batch)
    chosen, targets = select(batch, logits)
    loss = F.cross_entropy(chosen, targets, label_smoothing=SMOOTHING)
    gradients = dict(zip(model.weights, torch.autograd.grad(loss, list(model.weights.values()))))
    result = {
        "logits": logits,
        "loss": loss.reshape(1),
        "nats_per_token": F.cross_entropy(chosen, targets).reshape(1),
        "gradient_norms": torch.stack([gradient.norm() for gradient in gradients.values()]),
    }
    result |= {f"gradient.{name}": gradients[name] for name in GRADIENTS}
    for case, beam, longest in SEARCHES:
        result |= {f"{case}.{key}": value for key, value in record_search(model, batch, beam, longest).items()}
    return result


def main() -> None:
    torch.manual_seed(29)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    weights = draw_weights()
    models = {
        "post_norm": Model(weights, TorchForm(weights, pre_norm=False)),
        "pre_norm": Model(weights, TorchForm(weights, pre_norm=True)),
        "reversible": Model(weights, OwnForm(weights, reversible=True, linear=False)),
        "pre_norm_linear": Model(weights, OwnForm(weights, reversible=False, linear=True)),
        "reversible_linear": Model(weights, OwnForm(weights, reversible=True, linear=True)),
    }
    train(list(models.values()))
    batch = make_batch(SOURCE_LENGTHS)
    tensors = {f"weight.{name}": weight for name, weight in weights.items()} | batch
    for name, model in models.items():
        print(name)
        tensors |= {f"{name}.{key}": value for key, value in record(model, batch).items()}
    path = Path(__file__).resolve().parent / "translation.safetensors"
    save_file({key: value.detach().clone().contiguous() for key, value in tensors.items()}, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
