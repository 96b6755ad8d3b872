"""Trained models."""

import os
import tempfile
import wave
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

from . import _core
from ._arguments import read_integer
from ._training import Config, format_settings


class Model:
    """A trained model, with NumPy arrays as arguments and results; see load().

    Functions that the type of the model does not support raise ConfigError.
    """

    def __init__(self, run: _core.Run):
        self._run = run
        self.config = Config._wrap(run.config)

    def __repr__(self) -> str:
        return f"<tapeformer.Model {self.config.model_type!r} from {self.checkpoint}>"

    @property
    def checkpoint(self) -> str:
        """The folder of the checkpoint."""
        return self._run.checkpoint

    @property
    def step(self) -> int:
        """The training step of the checkpoint."""
        return self._run.step

    def parameters(self) -> Dict[str, np.ndarray]:
        """Returns copies of the parameters by name."""
        return self._run.parameters()

    def logits(self, inputs, lengths=None) -> np.ndarray:
        """Computes logits without dropout.

        Args:
            inputs: Tokens (batch, length) of integers; features (batch, frames, features) of a speech model, or
                elements (batch, length, features) of a Set Transformer.
            lengths: Valid lengths (batch,); by default, all positions are valid. Autoregressive models take none.

        Returns:
            Autoregressive models: (batch, length, outputs), where row t describes token t + 1. Classifiers:
            (batch, classes). Speech models: (batch, steps, classes). Set Transformers: (batch, seeds, outputs).
        """
        inputs = np.asarray(inputs)
        if np.issubdtype(inputs.dtype, np.floating):
            return self._run.feature_logits(_floats(inputs), _integers(lengths))
        return self._run.token_logits(_integers(inputs), _integers(lengths))

    def loss(self, inputs, lengths=None, labels=None) -> float:
        """Computes the mean negative log-likelihood in nats without dropout.

        Args:
            inputs: Tokens (batch, length + 1), of which token t predicts token t + 1, or a text. Classifiers:
                tokens (batch, length).
            lengths: Valid lengths (batch,).
            labels: Classes (batch,) of a classifier.
        """
        if isinstance(inputs, str):
            inputs = [self.encode(inputs)]
        return self._run.token_loss(_integers(inputs), _integers(lengths), _integers(labels))

    def evaluate(self, split: str = "test", limit: int = 0) -> Dict[str, Any]:
        """Evaluates the model on "train", "valid" or "test" of its data, and returns the results by name.

        Args:
            limit: Maximum number of examples; 0: all.
        """
        return self._run.evaluate(split, read_integer("limit", limit))

    def encode(self, text: str) -> List[int]:
        """Returns the tokens of a text."""
        return self._run.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens; unknown tokens and bytes that are not UTF-8 become U+FFFD."""
        return self._run.decode(list(map(int, tokens))).decode("utf-8", "replace")

    def generate(
        self,
        prompt,
        length: Optional[int] = None,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        window: int = 0,
        mode: str = "auto",
    ):
        """Continues a text or sequences.

        Args:
            prompt: A text, or tokens (batch, prefix length).
            length: Text: maximum number of tokens to draw, by default 500; a stop token of the tokenizer ends the
                text earlier. Sequences: their length with the prefix, by default the length of training.
            temperature: Divides the logits; 0: the most probable token.
            top_k: Draws from this number of most probable tokens; 0: all.
            top_p: Draws from the smallest set of most probable tokens with at least this total probability.
            seed: Selects the random numbers, 0 to 2**64 - 1.
            window: Text: maximum number of tokens that the model reads; a longer text continues from the newer
                half of them. 0: the length of training if positions do not limit the text, otherwise no maximum.
            mode: "recurrent": one step per token; "recompute": the whole prefix for each token; "auto".

        Returns:
            The text without the prompt, or the sequences (batch, length) of uint8.
        """
        drawing = _core.DrawingOptions(
            float(temperature), read_integer("top_k", top_k), float(top_p), read_integer("seed", seed, 0, 1 << 64), mode
        )
        window = read_integer("window", window)
        if isinstance(prompt, str):
            length = read_integer("length", 500 if length is None else length)
            return self.decode(self._run.generate_tokens(self.encode(prompt), length, window, drawing))
        length = read_integer("length", self._run.sequence_length if length is None else length)
        return self._run.generate_sequences(_integers(prompt), length, drawing)

    def score(self, lines: Sequence[str], translations: Optional[Sequence[str]] = None) -> List[Dict[str, Any]]:
        """Scores lines of text independently of each other, or given translations of the lines.

        Returns a dict for each line with log_probability in nats, and the number of tokens. The lines of a
        language model are scored with their ends, and have the keys bytes and bits_per_byte, which is NaN if there are
        no bytes. A sentence that is longer than a translation model takes is cut.
        """
        if translations is not None:
            return self._run.score_pairs(_lines(lines), _lines(translations))
        return self._run.score_lines(_lines(lines))

    def transcribe(self, recording: Union[str, os.PathLike, np.ndarray], rate: int = 16000, *, beam: int = 0):
        """Returns the list of phones in a recording.

        Args:
            recording: The path of a WAV, AU, FLAC, Ogg or SPHERE file, or samples (n,) of one channel: floats in
                [-1, 1) or int16.
            rate: Samples per second, for an array.
            beam: Prefixes of a beam search; 0: the most probable class of each frame.
        """
        beam, rate = read_integer("beam", beam), read_integer("rate", rate, 1, 1 << 31)
        if not isinstance(recording, np.ndarray):
            return self._run.transcribe(os.fspath(recording), beam)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "samples.wav"
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(rate)
                file.writeframes(_to_int16(recording).tobytes())
            return self._run.transcribe(str(path), beam)

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int = 4,
        length_penalty: float = 0.6,
        max_length: int = 0,
        n_best: int = 0,
    ):
        """Translates lines.

        Args:
            beam: Hypotheses of the beam search.
            length_penalty: alpha of the length penalty ((5 + tokens) / 6)^alpha.
            max_length: Maximum number of tokens of a translation; 0: those of the source and 50.
            n_best: Number of hypotheses to return; 0: only the best text.

        Returns:
            A text for each line or, with n_best, a list of dicts with text, score and log_probability.
        """
        beam, n_best, max_length = map(read_integer, ("beam", "n_best", "max_length"), (beam, n_best, max_length))
        if n_best > beam:
            raise ValueError(f"n_best {n_best}: expected 0 to the beam, {beam}")
        found = self._run.translate(_lines(lines), beam, float(length_penalty), max(n_best, 1), max_length)
        if n_best == 0:
            return [hypotheses[0][0] for hypotheses in found]
        names = "text", "score", "log_probability"
        return [[dict(zip(names, one)) for one in hypotheses] for hypotheses in found]


def load(
    run: Union[str, os.PathLike],
    checkpoint: str = "latest",
    *,
    set: Optional[Mapping[str, Any]] = None,
    data_dir: Union[str, os.PathLike] = "",
) -> Model:
    """Loads a trained model. No data set is needed.

    Args:
        run: A run directory or a checkpoint folder.
        checkpoint: "latest", "best", "step-…" or the number of a step, as a string, of a run directory.
        set: Config values that replace those of the run, such as {"attention.rounds": 8}.
        data_dir: Folder of the data sets, for evaluate().
    """
    return Model(_core.Run(os.fspath(run), checkpoint, format_settings(set), os.fspath(data_dir)))


def _lines(lines: Sequence[str]) -> List[str]:
    if isinstance(lines, str):
        raise TypeError("expected a list of lines, not a str")
    return list(lines)


def _integers(values) -> Optional[np.ndarray]:
    if values is None:
        return None
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"expected integers, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _floats(values) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.float32)


def _to_int16(samples: np.ndarray) -> np.ndarray:
    if samples.ndim != 1:
        raise ValueError(f"expected samples (n,) of one channel, not {samples.shape}")
    if samples.dtype == np.int16:
        return samples
    if not np.issubdtype(samples.dtype, np.floating):
        raise TypeError(f"expected samples of float or int16, not {samples.dtype}")
    if not np.isfinite(samples).all():
        raise ValueError("the samples are not finite")
    return np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2")
