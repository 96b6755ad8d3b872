"""Compares the speed and memory of Tapeformer and PyTorch in pairs of benchmarks, and writes peers.json and peers.md.

Each round runs Tapeformer and then PyTorch, so that other load on the machine affects both. The ratio of a benchmark is the
median over the rounds of the time of PyTorch divided by the time of Tapeformer. Above 1, Tapeformer is faster.
"""

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CONFIGS = ROOT / "configs"
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
PROGRAMS = ("build/release/tapeformer_bench", "build/dev/tapeformer_bench", "build/tapeformer_bench")
MILLI = 1e-3
MICRO = 1e-6


class RunError(Exception):
    """The error of a program that failed. Its text is the error line of the standard error of the program."""


@dataclass(frozen=True)
class Field:
    """A number in the JSON output of a program: the keys that lead to it, and the size of its unit in seconds or bytes."""

    keys: tuple
    unit: float = 1.0

    def read(self, report: dict) -> float:
        value = report
        for key in self.keys:
            value = value[key]
        return value * self.unit


@dataclass(frozen=True)
class Figure:
    """A row of the table. Without a field for memory, the memory is the peak resident set of the process."""

    name: str
    ours: Field
    theirs: Field
    our_memory: Field | None = None
    their_memory: Field | None = None


@dataclass(frozen=True)
class Pair:
    """The commands of a benchmark: the arguments of `tapeformer bench`, and a script for PyTorch with its arguments.

    If `threads` is not 0, it replaces the option --threads.
    """

    name: str
    ours: tuple
    theirs: tuple
    figures: tuple
    threads: int = 0


@dataclass
class Side:
    """The measurements of one program for one figure: the seconds and the bytes of memory in each round."""

    command: list
    seconds: list = field(default_factory=list)
    memory: list = field(default_factory=list)
    error: str = ""

    def summary(self) -> dict:
        fields = {"command": " ".join(self.command), "seconds": self.seconds}
        if self.seconds:
            fields |= {"median_seconds": statistics.median(self.seconds), "memory_bytes": statistics.median(self.memory)}
        return fields | ({"error": self.error} if self.error else {})


def train_step_pair(precision: str) -> Pair:
    return Pair(
        f"train-step-{precision}",
        ("train-step", "--dropout", "0", "--repeats", "3", "--precision", precision),
        ("train_step.py", "--steps", "3", "--precision", precision),
        (
            Figure(
                f"training step of the MNIST model, batch 10, {precision}",
                Field(("seconds_per_step",)),
                Field(("seconds_per_step",)),
                Field(("peak_resident_bytes",)),
                Field(("step_peak_bytes",)),
            ),
        ),
    )


def text_step_pair(kind: str, precision: str) -> Pair:
    settings = (
        "model.layers=12",
        "model.heads=8",
        "model.head_dim=64",
        "model.feedforward=2048",
        "data.sequence_length=1024",
        "data.batch_size=4",
        "optimizer.ema=0",
    )
    sizes = ("--layers", "12", "--head-dim", "64", "--feedforward", "2048", "--length", "1024", "--batch", "4")
    return Pair(
        f"text-step-{kind}-{precision}",
        ("train-step", "--config", str(CONFIGS / f"text/{kind}.toml"), "--repeats", "3", "--precision", precision,
         *(word for setting in settings for word in ("--set", setting))),
        ("train_step.py", "--text", "--steps", "3", "--attention", kind, "--chunk", "64", *sizes,
         "--precision", precision),
        (
            Figure(
                f"training step of a byte model, 12 layers, width 512, 4 x 1,024 tokens, {kind}, {precision}",
                Field(("seconds_per_step",)),
                Field(("seconds_per_step",)),
                Field(("peak_resident_bytes",)),
                Field(("step_peak_bytes",)),
            ),
        ),
    )  # fmt: skip


def lstm_pair(precision: str) -> Pair:
    figures = [
        Figure(
            f"Bi-LSTM 3 × 320, 800 frames, batch 16, {precision}, PyTorch {form}",
            Field(("milliseconds",), MILLI),
            Field((f"milliseconds_{form}",), MILLI),
            Field(("peak_resident_bytes",)),
            Field((f"peak_bytes_{form}",)),
        )
        for form in ("padded", "packed")
    ]
    return Pair(
        f"lstm-{precision}",
        ("lstm", "--frames", "800", "--batch", "16", "--repeats", "2", "--precision", precision),
        ("lstm.py", "--frames", "800", "--batch", "16", "--repeats", "2", "--precision", precision),
        tuple(figures),
    )


def attention_pair(kind: str, precision: str) -> Pair:
    form = "SDPA" if kind == "softmax" else "chunked, compiled"
    return Pair(
        f"{kind}-{precision}",
        ("attention", "--kind", kind, "--shortest", "4096", "--longest", "4096", "--head-dim", "64", "--precision",
         precision),
        ("attention.py", "--kinds", kind, "--from", "12", "--to", "12", "--head-dim", "64", "--precision", precision),
        (
            Figure(
                f"{kind} attention, 4,096 tokens, {precision}, PyTorch {form}",
                Field(("lengths", 0, "seconds")),
                Field(("results", 0, "seconds")),
                Field(("lengths", 0, "peak_bytes")),
                Field(("results", 0, "peak_bytes")),
            ),
        ),
    )  # fmt: skip


def survey_pair(kind: str, package: str, ours: tuple) -> Pair:
    return Pair(
        f"survey-{kind}",
        ("attention", *ours, "--shortest", "4096", "--longest", "4096", "--repeats", "1"),
        ("survey.py", "--kind", kind, "--from", "12", "--to", "12", "--repeats", "1"),
        (
            Figure(
                f"{kind} attention, 4,096 tokens, {package}",
                Field(("lengths", 0, "seconds")),
                Field(("results", 0, "seconds")),
                Field(("lengths", 0, "peak_bytes")),
                Field(("results", 0, "peak_bytes")),
            ),
        ),
    )


def survey_pairs() -> list[Pair]:
    def config(name: str, *settings: str) -> tuple:
        words = ("model.heads=8", "model.head_dim=64", *settings)
        return ("--config", str(CONFIGS / f"survey/{name}.toml"), *(w for word in words for w in ("--set", word)))

    no_mask = ("--mask", "none")
    return [
        survey_pair("linformer", "linformer", ("--kind", "linformer")),
        survey_pair("performer", "performer-pytorch", ("--kind", "performer", *no_mask)),
        survey_pair("causal-performer", "performer-pytorch", ("--kind", "performer")),
        survey_pair("local", "local-attention",
                    config("image-1d", "attention.block=256", "attention.memory=256")),
        survey_pair("memory-compressed", "memory-compressed-attention", ("--kind", "memory-compressed")),
        survey_pair("sinkhorn", "sinkhorn-transformer", ("--kind", "sinkhorn", *no_mask)),
        survey_pair("routing", "routing-transformer",
                    config("routing", "attention.cluster_size=512", "attention.local_share=0")),
        survey_pair("axial-row", "axial-attention", ("--kind", "axial-row", *no_mask)),
        survey_pair("axial-column", "axial-attention", ("--kind", "axial-column", *no_mask)),
        survey_pair("longformer", "transformers", ("--kind", "longformer", *no_mask)),
        survey_pair("big-bird", "transformers", ("--kind", "big-bird", *no_mask)),
    ]  # fmt: skip


def decode_pair(batch: int, precision: str, threads: int = 0) -> Pair:
    case = 0 if threads == 1 else 1  # `bench generate` measures one sequence on one thread, and a batch on all threads
    name = f"decode-{batch}" + ("-one-thread" if threads == 1 else "") + f"-{precision}"
    title = f"decoding, batch {batch}, {precision}" + (", one thread" if threads == 1 else "")
    return Pair(
        name,
        ("generate", "--batch", str(batch), "--tokens", "128", "--repeats", "5", "--precision", precision),
        ("generate.py", "--batch", str(batch), "--length", "129", "--precision", precision),
        (
            Figure(
                f"{title}, a token",
                Field(("cases", case, "milliseconds_per_token"), MILLI),
                Field(("milliseconds_per_token",), MILLI),
                Field(("cases", case, "peak_resident_bytes")),
                Field(("peak_rss_bytes",)),
            ),
        ),
        threads,
    )


def all_pairs() -> list[Pair]:
    ctc = Pair(
        "ctc",
        ("ctc",),
        ("ctc.py",),
        (Figure("CTC loss and gradient", Field(("milliseconds",), MILLI), Field(("milliseconds",), MILLI)),),
    )
    small_op = Pair(
        "small-op",
        ("small-op",),
        ("small_op.py",),
        (
            Figure(
                "addition of 16 elements in a chain, one thread",
                Field(("microseconds_per_op_in_chain",), MICRO),
                Field(("microseconds",), MICRO),
            ),
        ),
        1,
    )
    lsh = Pair(
        "lsh",
        ("lsh-attention", "--wrap", "global", "--duplicates", "none", "--across_buckets", "yes", "--scale", "rsqrt_dim",
         "--shortest", "4096", "--longest", "4096", "--buckets", "64"),
        ("lsh_attention.py", "--from", "12", "--to", "12"),
        (
            Figure(
                "LSH attention, 4,096 tokens, reformer-pytorch",
                Field(("lengths", 0, "seconds")),
                Field(("results", 0, "seconds")),
                Field(("lengths", 0, "peak_bytes")),
                Field(("results", 0, "peak_bytes")),
            ),
        ),
    )  # fmt: skip
    precisions = ("float32", "bfloat16")
    return [
        *(train_step_pair(precision) for precision in precisions),
        *(text_step_pair(kind, precision) for kind in ("softmax", "linear") for precision in precisions),
        *(lstm_pair(precision) for precision in precisions),
        ctc,
        small_op,
        lsh,
        *(attention_pair(kind, precision) for kind in ("softmax", "linear", "gated-delta") for precision in precisions),
        *(decode_pair(1, precision, threads) for threads in (1, 0) for precision in precisions),
        *(decode_pair(64, precision) for precision in precisions),
        *survey_pairs(),
    ]


def choose_pairs(names: str) -> list[Pair]:
    """Returns the pairs that a comma-separated list of names selects. "lstm" selects all names that begin with "lstm-"."""
    pairs = all_pairs()
    chosen = []
    for name in names.split(","):
        found = [pair for pair in pairs if pair.name == name or pair.name.startswith(name + "-")]
        if not found:
            raise SystemExit(f"run.py: unknown pair {name!r}; there are {', '.join(pair.name for pair in pairs)}")
        chosen += [pair for pair in found if pair not in chosen]
    return chosen


def commands(pair: Pair, program: str, threads: int) -> tuple[list, list]:
    """Returns the command lines of Tapeformer and of PyTorch."""
    count = str(pair.threads or threads)
    # `bench generate` always measures one sequence with one thread.
    ours = [program, "bench", *pair.ours, "--device", "cpu", "--threads", count, "--json", "--quiet"]
    theirs = [sys.executable, str(HERE / pair.theirs[0]), *pair.theirs[1:], "--threads", count]
    return ours, theirs


def error_line(text: str) -> str:
    """Returns the last line that begins with the name of an error, or else the last line.

    After the error, PyTorch may print advice.
    """
    lines = text.strip().splitlines() or [""]
    return next((line for line in reversed(lines) if re.match(r"(\S*Error|error)\b", line)), lines[-1])


def run_program(command: list, limit: float = 1800) -> tuple[dict, int]:
    """Runs a command for at most `limit` seconds. Returns its JSON output and the peak resident bytes of the process."""
    environment = os.environ | {"OMP_PROC_BIND": "true"}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
        timer = threading.Timer(limit, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (output, errors):
            file.seek(0)
        if process.returncode != 0:
            raise RunError(error_line(errors.read()) or f"exit status {process.returncode}")
        return json.loads(output.read()), usage.ru_maxrss * 1024


def measure_pair(pair: Pair, lines: tuple[list, list], rounds: int, run: Callable) -> list[tuple[Figure, Side, Side]]:
    """Runs both programs in turn. A program that fails is not run again, but the other program runs in all rounds."""
    rows = [(figure, Side(lines[0]), Side(lines[1])) for figure in pair.figures]
    failed = ["", ""]
    for _ in range(rounds):
        for program in (0, 1):
            if failed[program]:
                continue
            try:
                report, resident = run(lines[program])
            except (RunError, ValueError, OSError) as error:
                failed[program] = str(error)
                continue
            for figure, *sides in rows:
                time = (figure.ours, figure.theirs)[program]
                memory = (figure.our_memory, figure.their_memory)[program]
                sides[program].seconds.append(time.read(report))
                sides[program].memory.append(memory.read(report) if memory else resident)
    for _, *sides in rows:
        for side, error in zip(sides, failed):
            side.error = error
    return rows


def row_of(pair: Pair, figure: Figure, ours: Side, theirs: Side) -> dict:
    """Returns one row of the results, with ratios if both programs ran in every round."""
    row = {"pair": pair.name, "figure": figure.name, "tapeformer": ours.summary(), "pytorch": theirs.summary()}
    if ours.seconds and len(ours.seconds) == len(theirs.seconds):
        ratios = [b / a for a, b in zip(ours.seconds, theirs.seconds)]
        row |= {
            "ratios": ratios,
            "ratio": statistics.median(ratios),
            "memory_share": statistics.median(ours.memory) / statistics.median(theirs.memory),
        }
    return row


def time_text(seconds: float) -> str:
    for unit, name in ((1, "s"), (MILLI, "ms"), (MICRO, "µs")):
        if seconds >= unit:
            break
    value = seconds / unit
    return f"{value:.0f} {name}" if value >= 100 else f"{value:.3g} {name}"


def side_text(side: dict) -> tuple[str, str]:
    """Returns the cells of time and memory of one program. If the program failed, the first cell is its error."""
    if side.get("error"):
        return "failed: " + side["error"].replace("|", "\\|"), ""
    return time_text(side["median_seconds"]), f"{side['memory_bytes'] / 1e6:.0f} MB"


def table(machine: dict, rows: list[dict]) -> str:
    """Returns the description of the machine and the results in Markdown."""
    lines = [f"- {name.replace('_', ' ')}: {value}" for name, value in machine.items()]
    lines += [
        "",
        "| benchmark | Tapeformer | PyTorch | ratio (rounds) | memory of Tapeformer | of PyTorch | share |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        (our_time, our_memory), (their_time, their_memory) = side_text(row["tapeformer"]), side_text(row["pytorch"])
        ratio = share = ""
        if "ratio" in row:
            ratio = f"**{row['ratio']:.2f}** ({min(row['ratios']):.2f} to {max(row['ratios']):.2f})"
            share = f"{row['memory_share']:.2f}"
        cells = (row["figure"], our_time, their_time, ratio, our_memory, their_memory, share)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def processor(cpuinfo: str) -> dict:
    """Returns the name of the processor, and which of FLAGS it has, from the text of /proc/cpuinfo."""
    values = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        values.setdefault(key.strip(), value.strip())
    present = values.get("flags", "").split()
    family = ", ".join(f"{key} {values[key]}" for key in ("cpu family", "model") if key in values)
    return {
        "processor": values.get("model name", "unknown") + (f" ({family})" if family else ""),
        "flags": " ".join(f"{flag}: {'yes' if flag in present else 'no'}" for flag in FLAGS),
    }


def text_of(command: list) -> str:
    """Returns the standard output of a command, or an empty string if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def describe_machine(program: str, threads: int, rounds: int) -> dict:
    info = json.loads(text_of([program, "info", "--json", "--quiet"]) or "{}")
    versions = text_of([
        sys.executable, "-c",
        "import re, torch; dnn = re.search('(?:MKL-DNN|oneDNN\\)?) v([0-9.]+)', torch.__config__.show());"
        "print(f'PyTorch {torch.__version__}, oneDNN {dnn[1] if dnn else None}')",
    ])  # fmt: skip
    commit = text_of(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    if text_of(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]):
        commit += " with changes"
    return processor(Path("/proc/cpuinfo").read_text()) | {
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "rounds": rounds,
        "tapeformer": ", ".join(str(info[key]) for key in ("version", "compiler", "blas", "blas_kernels") if key in info),
        "pytorch": versions,
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "environment": "OMP_PROC_BIND=true OMP_WAIT_POLICY=" + os.environ.get("OMP_WAIT_POLICY", "(unset)"),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh [DIR]", description=__doc__)
    parser.add_argument("--pairs", default="", help="comma-separated names or prefixes of names; empty: all pairs")
    parser.add_argument("--rounds", type=int, default=5, help="number of runs of each program (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                        help="number of threads of each program (default: all available processors)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "peers", help="folder of peers.json and peers.md")
    parser.add_argument("--program", help="path of tapeformer_bench; default: the first of " + ", ".join(PROGRAMS))
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    if not options.program:
        found = [ROOT / path for path in PROGRAMS if (ROOT / path).exists()]
        if not found:
            parser.error("no program found: build Tapeformer or set --program")
        options.program = str(found[0])
    return options


def main() -> None:
    options = parse()
    pairs = choose_pairs(options.pairs) if options.pairs else all_pairs()
    machine = describe_machine(options.program, options.threads, options.rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    # An interrupted program may leave damaged files in the default cache of torch.compile.
    cache = tempfile.TemporaryDirectory()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
    for pair in pairs:
        print(f"{pair.name} …", file=sys.stderr, flush=True)
        lines = commands(pair, options.program, options.threads)
        for figure, ours, theirs in measure_pair(pair, lines, options.rounds, run_program):
            rows.append(row_of(pair, figure, ours, theirs))
        # Writes the files after each pair, so that an interrupted run keeps its results.
        (options.out / "peers.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
        (options.out / "peers.md").write_text(table(machine, rows))
    print((options.out / "peers.md").read_text(), end="")


if __name__ == "__main__":
    main()
