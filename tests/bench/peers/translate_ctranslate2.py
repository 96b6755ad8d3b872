"""Translates a file with CTranslate2 and the weights of a Tapeformer checkpoint, for comparison with "tapeformer translate".

The model has pre-norm or post-norm layers, softmax attention and shared embeddings. Prints one JSON object with sentences per
second. CTranslate2 divides the log-probability of a hypothesis of n tokens by n^alpha, and Tapeformer by ((5 + n) / 6)^alpha, so
only greedy translations (--beam 1) with the same --max-length are equal.
"""

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import ctranslate2
import numpy as np
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec
from safetensors.numpy import load_file

from translation_data import Settings, read_lines

UNKNOWN, START = "<unk>", "</s>"  # UNKNOWN is a piece of SentencePiece; START is the end token, which also begins a translation


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="folder with model.safetensors, config.toml and state.json")
    parser.add_argument("text", type=Path, help="file with one sentence in each line")
    parser.add_argument("--out", type=Path, help="file of the translations")
    parser.add_argument("--reference", type=Path, help="translations with which to compare the lines, as of tapeformer")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--length-penalty", type=float, default=0.6)
    parser.add_argument("--max-length", type=int, default=100, help="maximum tokens of a translation, as --max-length of tapeformer")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="number of measured translations of the file; the fastest counts")
    return parser.parse_args()


def set_linear(spec, weights: dict[str, np.ndarray], *names: str) -> None:
    """Sets a linear layer to the joined weights of linear layers."""
    spec.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    biases = [weights.get(f"{name}.bias") for name in names]
    if biases[0] is not None:
        spec.bias = np.concatenate(biases)


def set_norm(spec, weights: dict[str, np.ndarray], name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]


def set_attention(spec, weights: dict[str, np.ndarray], name: str, norm: str, products: list[str]) -> None:
    """Sets an attention block. Each product computes the projections whose names begin with its letters."""
    parts = {"q": f"{name}.query_projection", "k": f"{name}.key_projection", "v": f"{name}.value_projection"}
    for layer, letters in zip(spec.linear, products):
        set_linear(layer, weights, *(parts[letter] for letter in letters))
    set_linear(spec.linear[-1], weights, f"{name}.out_projection")
    set_norm(spec.layer_norm, weights, norm)


def set_stack(spec, weights: dict[str, np.ndarray], stack: str, positions: np.ndarray) -> None:
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = weights["embedding.weight"]
    spec.position_encodings.encodings = positions
    # CTranslate2 applies this norm to post-norm layers too, but from_config() does not make it for them.
    spec.layer_norm = common_spec.LayerNormSpec()
    set_norm(spec.layer_norm, weights, f"{stack}.norm")
    for i, layer in enumerate(spec.layer):
        name = f"{stack}.layers.{i}"
        set_attention(layer.self_attention, weights, f"{name}.attention", f"{name}.norm1", ["qkv"])
        if stack == "decoder":
            set_attention(layer.attention, weights, f"{name}.cross_attention", f"{name}.cross_norm", ["q", "kv"])
        set_linear(layer.ffn.linear_0, weights, f"{name}.linear1")
        set_linear(layer.ffn.linear_1, weights, f"{name}.linear2")
        set_norm(layer.ffn.layer_norm, weights, f"{name}.norm2")


def make_positions(length: int, width: int) -> np.ndarray:
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(length, width).astype(np.float32)


def convert(settings: Settings, checkpoint: Path, folder: Path) -> None:
    """Writes the checkpoint to a folder in the format of CTranslate2."""
    settings.require(
        attention=("softmax",), cross_attention=("softmax",), norm=("pre", "post"), activation=("relu",),
        positions=("sinusoidal",), shared_embeddings=(True,), reversible=(False,),
    )  # fmt: skip
    model, weights = settings.config["model"], load_file(checkpoint / "model.safetensors")
    layers = (model["layers"], model["decoder_layers"] or model["layers"])
    spec = transformer_spec.TransformerSpec.from_config(layers, model["heads"], pre_norm=model["norm"] == "pre")
    positions = make_positions(settings.max_length, model["heads"] * model["head_dim"])
    set_stack(spec.encoder, weights, "encoder", positions)
    set_stack(spec.decoder, weights, "decoder", positions)
    spec.decoder.projection.weight, spec.decoder.projection.bias = weights["embedding.weight"], weights["predictor.bias"]
    pieces = [settings.tokenizer.id_to_piece(i) for i in range(settings.vocabulary - 1)]
    # The end token of the tokenizer is never used, so its name is free for the end token of the model.
    pieces = [f"<unused {i}>" if piece == START else piece for i, piece in enumerate(pieces)] + [START]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = spec.config.eos_token = spec.config.decoder_start_token = START
    spec.config.unk_token = UNKNOWN
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def translate(settings: Settings, translator: ctranslate2.Translator, lines: list[str], options: argparse.Namespace) -> list[str]:
    tokenizer = settings.tokenizer
    sources = tokenizer.encode(lines, out_type=str)
    results = translator.translate_batch(
        sources, beam_size=options.beam, length_penalty=options.length_penalty, max_batch_size=options.batch_tokens,
        batch_type="tokens", max_decoding_length=min(options.max_length, settings.max_length), max_input_length=0,
    )  # fmt: skip
    ids = [[tokenizer.piece_to_id(piece) for piece in result.hypotheses[0]] for result in results]
    return [text.strip(" ") for text in tokenizer.decode(ids)]


def main() -> None:
    options = parse()
    settings, lines = Settings.read(options.checkpoint), read_lines(options.text)
    with TemporaryDirectory() as folder:
        convert(settings, options.checkpoint, Path(folder))
        translator = ctranslate2.Translator(
            folder, inter_threads=1, intra_threads=options.threads, compute_type="float32"
        )
    translate(settings, translator, lines[:10], options)
    seconds, cpu_seconds = [], []
    for _ in range(options.repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        translations = translate(settings, translator, lines, options)
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    if options.out:
        options.out.write_text("".join(line + "\n" for line in translations), encoding="utf-8")
    results = {"sentences_per_second": len(lines) / min(seconds), "sentences_per_cpu_second": len(lines) / min(cpu_seconds)}
    if options.reference:
        pairs = list(zip(translations, read_lines(options.reference), strict=True))
        results["equal_lines"] = sum(a == b for a, b in pairs) / len(pairs)
    report = {"benchmark": "translate_ctranslate2", "ctranslate2": ctranslate2.__version__, "beam": options.beam}
    print(json.dumps(report | {"threads": options.threads, "sentences": len(lines)} | results))


if __name__ == "__main__":
    main()
