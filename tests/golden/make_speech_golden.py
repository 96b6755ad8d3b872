"""Writes ctc.safetensors and lstm.safetensors: float64 values and gradients of PyTorch.

README.md lists the keys. Run this script with the Python of tests/bench/peers/setup.sh.
"""

import torch
import torch.nn.functional as F
from make_golden import write
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

LABELS = (  # the labels of each utterance; two utterances have the minimum number of frames for their labels
    (3, 5, 5, 1, 7, 2, 2, 2, 6),
    (1, 2, 3, 4),
    (),
    (6, 1, 6),
    (7, 7, 4, 4, 1),
)
FRAMES = (40, 31, 12, 3, 7)


def ctc_case(scale: float, blank: int) -> dict[str, Tensor]:
    """Returns the inputs, the loss of every utterance and the gradient of the sum of the losses.

    The logits are random with the standard deviation `scale`.
    """
    classes = 8
    logits = (torch.randn(len(FRAMES), max(FRAMES), classes, dtype=torch.float64) * scale).requires_grad_()
    labels = torch.zeros(len(LABELS), max(map(len, LABELS)), dtype=torch.int64)
    for row, own in zip(labels, LABELS):
        row[: len(own)] = torch.tensor([label if blank == 0 else label - 1 for label in own])
    counts = torch.tensor([len(own) for own in LABELS])
    losses = F.ctc_loss(
        logits.log_softmax(-1).transpose(0, 1), labels, torch.tensor(FRAMES), counts, blank=blank, reduction="none"
    )
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    return {
        "logits": logits,
        "frames": torch.tensor(FRAMES),
        "labels": labels,
        "label_lengths": counts,
        "losses": losses,
        "gradient": gradient,
    }


def ctc() -> None:
    cases = {"plain": ctc_case(1.0, 0), "sharp": ctc_case(8.0, 0), "last_blank": ctc_case(2.0, 7)}
    write("ctc", {f"{case}.{key}": value for case, tensors in cases.items() for key, value in tensors.items()})


def lstm_case(bidirectional: bool, layers: int) -> dict[str, Tensor]:
    """Returns the inputs, the result for packed sequences, the parameters and the gradients of sum(cotangent * result)."""
    lengths = torch.tensor([9, 1, 6, 4])
    model = nn.LSTM(5, 7, layers, batch_first=True, bidirectional=bidirectional).double()
    x = torch.randn(4, 11, 5, dtype=torch.float64, requires_grad=True)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    result, _ = pad_packed_sequence(model(packed)[0], batch_first=True, total_length=11)
    cotangent = torch.randn_like(result)
    names, parameters = zip(*model.named_parameters())
    gradients = torch.autograd.grad(result, (x, *parameters), cotangent)
    tensors = {"x": x, "lengths": lengths, "result": result, "cotangent": cotangent, "gradient.x": gradients[0]}
    for name, parameter, gradient in zip(names, parameters, gradients[1:]):
        tensors |= {name: parameter, f"gradient.{name}": gradient}
    return tensors


def lstm() -> None:
    cases = {"one": lstm_case(False, 1), "both": lstm_case(True, 1), "stack": lstm_case(True, 3)}
    write("lstm", {f"{case}.{key}": value for case, tensors in cases.items() for key, value in tensors.items()})


def main() -> None:
    torch.set_num_threads(1)
    for topic in (ctc, lstm):
        torch.manual_seed(7)
        topic()


if __name__ == "__main__":
    main()
