"""The kinds of cases. KINDS has a function for each kind, which copies valid inputs, mutates some and returns a Case."""

import pathlib

import formats
import pretrained
import streams
import systems
import tuning
from cases import (IMAGES, TEXT_SUFFIXES, argument, change, copy, files_under, mutate_file, needs_of, trained,
                   use_run)
from mutate import NUMBERS, mutate_text, pick_text
from runner import Case


def configs(rng, base, folder):
    name = rng.choice(trained(base))
    copy(base, folder, f"configs/{name}.toml", *needs_of(name))
    path = folder / f"configs/{name}.toml"
    arguments = ["train", f"configs/{name}.toml", "--data-dir", "data", "--run-dir", "run"]
    if rng.random() < 0.7:
        others = [base / f"configs/{rng.choice(trained(base))}.toml"]
        path.write_bytes(mutate_text(rng, path.read_bytes(), others[0].read_bytes()))
    for _ in range(rng.choice([0, 0, 1, 2])):
        key = rng.choice(["run.seed", "model.layers", "model.heads", "data.batch_size", "data.path", "optimizer.lr",
                          "schedule.kind", "attention.rounds", "attention.conv", "attention.decay", "train.steps",
                          "model.dropout", "data.downscale"])
        value = rng.choice([rng.choice(NUMBERS).encode(), pick_text(rng)])
        arguments += ["--set", argument(key.encode() + b"=" + value)]
    if rng.random() < 0.7:
        arguments.append("--dry-run")
    return Case(arguments, {0, 2, 3, 4, 5}, large=True, files=[path])


def checkpoints(rng, base, folder):
    name = rng.choice(trained(base))
    copy(base, folder, f"runs/{name}", "audio", *needs_of(name))
    changed = change(rng, files_under(folder / "runs"))
    arguments = use_run(rng, name) + ["--data-dir", "data"]
    if rng.random() < 0.3:
        copy(base, folder, f"configs/{name}.toml")
        arguments = ["train", f"configs/{name}.toml", "--run-dir", f"runs/{name}", "--resume", "--data-dir", "data",
                     "--set", "train.steps=3"]
    return Case(arguments, {0, 1, 2, 3, 5}, large=any(path.suffix == ".toml" for path in changed), files=changed)


def audio(rng, base, folder):
    copy(base, folder, "audio", "runs/speech", "runs/an4")
    path = rng.choice(files_under(folder / "audio"))
    mutate_file(rng, path, files_under(folder / "audio"))
    run = "an4" if path.suffix == ".mfc" and rng.random() < 0.9 else "speech"
    arguments = ["transcribe", f"runs/{run}", str(path.relative_to(folder))]
    if rng.random() < 0.3:
        named = path.with_name(argument(rng.choice([b"x\x1b[31m.wav", b"\xffx.wav", b"-x.wav", b"a\nforged: x.wav"])))
        path.rename(named)
        path = named
        arguments[2] = str(path.relative_to(folder))
    if run == "speech" and rng.random() < 0.5:
        arguments.append("--stream")
        if rng.random() < 0.5:
            arguments[2] = "-"
            arguments += rng.choice([[], ["--raw"]])
    return Case(arguments + rng.choice([[], ["--json"]]), {0, 3}, stdin=path.read_bytes(), files=[path])


def _speech_folder(rng, base, folder, kind, suffixes):
    copy(base, folder, kind, "lexicon.txt")
    paths = [path for path in files_under(folder / kind) if path.suffix in suffixes or rng.random() < 0.2]
    return change(rng, paths)


def kaldi(rng, base, folder):
    kind = rng.choice(["kaldi", "ark", "an4"])
    changed = _speech_folder(rng, base, folder, kind, TEXT_SUFFIXES | {".ark"})
    config = {"kaldi": rng.choice(["speech", "lstm"]), "ark": "ark", "an4": "an4"}[kind]
    copy(base, folder, f"configs/{config}.toml", f"runs/{config}")
    layout = ["an4", "--layout", "an4"] if kind == "an4" else [f"{kind}/{rng.choice(['train', 'test'])}"]
    arguments = rng.choice([["data", "verify", "./" + layout[0], *layout[1:]],
                            ["train", f"configs/{config}.toml", "--run-dir", "run"], ["eval", f"runs/{config}"]])
    return Case(arguments, {0, 2, 3}, files=changed)


def idx(rng, base, folder):
    copy(base, folder, "data")
    name = rng.choice(IMAGES)
    data_set = rng.choice(["mnist", "mnist", "mnist", "cifar10"])
    changed = change(rng, files_under(folder / "data" / data_set))
    copy(base, folder, f"configs/{name}.toml", f"runs/{name}")
    arguments = rng.choice([["data", "verify", data_set], ["data", "prepare", data_set], ["data", "list"],
                            ["train", f"configs/{name}.toml", "--dry-run"], ["eval", f"runs/{name}"],
                            ["data", "fetch", data_set, "--from", f"data/{data_set}"]])
    target = "other" if arguments[1] == "fetch" else "data"
    return Case(arguments + ["--data-dir", target], {0, 2, 3}, files=changed)


def lexicon(rng, base, folder):
    copy(base, folder, "lexicon.txt", "kaldi", "configs/lstm.toml", "runs/lstm")
    changed = change(rng, [folder / "lexicon.txt"])
    arguments = rng.choice([["data", "verify", "./lexicon.txt", "--layout", "lexicon"],
                            ["train", "configs/lstm.toml", "--dry-run"], ["eval", "runs/lstm"]])
    return Case(arguments, {0, 3}, files=changed)


def caches(rng, base, folder):
    copy(base, folder, "kaldi", "cache", "configs/cached.toml", "runs/cached", "lexicon.txt")
    changed = change(rng, files_under(folder / "cache"))
    broken = any(path.is_symlink() or not path.is_file() for path in changed)
    arguments = rng.choice([["train", "configs/cached.toml", "--run-dir", "run"], ["eval", "runs/cached"]])
    return Case(arguments, {0, 1} if broken else {0}, files=changed)  # status 1 if the cache file cannot be replaced


COMMANDS = ["train", "eval", "generate", "complete", "transcribe", "translate", "score",
            "bleu", "bench", "reproduce", "data", "info", "report",
            "help", "--help", "-h", "--version"]
OPTIONS = ["--run-dir", "--resume", "--dry-run", "--device", "--threads", "--seed", "--data-dir", "--set", "--json",
           "--quiet", "--help", "--checkpoint", "--split", "--limit", "--batch", "--dtype", "--beam", "--trn",
           "--alignments", "--confusions", "--count", "--mode", "--scale", "--greedy", "--out", "--index", "--keep",
           "--samples", "--stream", "--raw", "--from", "--sentences", "--layout", "--configs", "-h",
           "--n-best", "--max-length", "--length-penalty", "--batch-tokens", "--scores", "--tokenize", "--lowercase"]
ODD_WORDS = ["-", "--", "---", "--=", "--=x", "-=", "-x", "-xyz", "--json=", "--json=maybe", "--no-json", "--seed=",
             "--seed", "--set=", "--set", "--set==", "--help=1", "-h1", "--out=", "---json", "-json", "--jsn"]
WORDS = ["configs/copy.toml", "runs/pairs", "pairs/test.src", "pairs", "intl", "runs/copy", "runs/image", "runs/speech", "audio/a.wav", "runs/copy/checkpoints",
         "runs/copy/checkpoints/latest", "runs", ".", "nothing", "list", "verify", "fetch", "prepare", "mnist",
         "cifar10", "copy", "train", "cpu", "cuda", "cuda:0", "cuda:99", "auto", "best", "latest", "step-1", "test",
         "audio/a.wav/below", "A" * 300, "data", "lexicon", "kaldi", "run.seed=1", "a.png", "0,1", "smoke",
         "configs", "/dev/full", "/dev/null", "/proc/self/mem"]


def command_word(rng):
    choice = rng.randrange(10)
    if choice <= 3:
        return rng.choice(OPTIONS)
    if choice <= 6:
        return rng.choice(WORDS)
    if choice == 7:
        return rng.choice(ODD_WORDS)
    if choice == 8:
        return f"{rng.choice(OPTIONS)}={rng.choice(NUMBERS + WORDS)}"
    return rng.choice([rng.choice(NUMBERS), argument(pick_text(rng))])


PREFIXES = {"train": ["configs/copy.toml", "--run-dir", "out"], "eval": ["runs/copy"], "complete": ["runs/image"],
            "transcribe": ["runs/speech", "audio/a.wav"], "data": ["verify", "./lexicon.txt"],
            "translate": ["runs/pairs", "pairs/test.src"], "score": ["runs/pairs", "pairs/test.src", "pairs/test.tgt"],
            "bleu": ["pairs/test.tgt", "pairs/test.tgt"]}


def commands(rng, base, folder):
    copy(base, folder, "configs", "runs/copy", "runs/image", "runs/speech", "runs/pairs", "pairs", "audio", "data", "lexicon.txt")
    command = rng.choice(COMMANDS if rng.random() < 0.95 else [argument(pick_text(rng)), "trian", "evl"])
    arguments = [command]
    # Benchmarks and reproductions take minutes, so only their lists, help texts and errors are tested.
    if command in ("bench", "reproduce"):
        arguments += rng.choice([["list"], ["--help"], [], ["small-opp"]])
    elif rng.random() < 0.6:
        arguments += PREFIXES.get(command, ["runs/image"] if command == "generate" else [])
    for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 5])):
        arguments.insert(rng.randrange(1, len(arguments) + 1), command_word(rng))
    if rng.random() < 0.1:  # adds a folder that is invalid: inside a file, too long, or a file
        arguments += ["--run-dir", rng.choice(["lexicon.txt/run", "r" * 300, "lexicon.txt"])]
    return Case(arguments, {0, 1, 2, 3, 4, 5}, large=True, stdin=(base / "audio/a.wav").read_bytes())


KINDS = {"configs": configs, "checkpoints": checkpoints, "audio": audio, "kaldi": kaldi, "idx": idx,
         "lexicon": lexicon, "commands": commands, "caches": caches, "pictures": formats.pictures, "ogg": formats.ogg,
         "pipes": formats.pipes, "encodings": formats.encodings, "pieces": formats.pieces,
         "bpe": pretrained.bpe, "gguf": pretrained.gguf, "huggingface": pretrained.huggingface, "import": pretrained.imports,
         "pairs": formats.pairs, "streams": streams.streams, "tuning": tuning.tuning, "prompts": tuning.prompts, "converted": systems.converted,
         "environment": systems.environment}
# Kinds with fewer cases, because their inputs vary less or their runs take long.
RARE = {"caches", "converted"}


def make_case(name, rng, base, folder):
    """Returns a case of the kind `name` with its files in `folder`."""
    pathlib.Path(folder).mkdir()
    return KINDS[name](rng, base, folder)
