"""Kinds of cases for converted runs and for environment variables."""

from cases import argument, change, copy, files_under, mutate_file, needs_of, use_run
from inputs import CONVERT
from mutate import NUMBERS, pick_text
from runner import Case


def converted(rng, base, folder):
    """Uses a run that scripts/convert.py wrote, or calls the script with changed files."""
    name = rng.choice(sorted(path.name for path in (base / "converted").iterdir()))
    config, run = f"configs/{name}.toml", f"converted/{name}"
    copy(base, folder, run, config, f"runs/{name}", *needs_of(name))
    if rng.random() < 0.5:
        changed = change(rng, files_under(folder / run)) if rng.random() < 0.5 else []
        arguments = rng.choice([use_run(rng, name, "converted"), ["train", config, "--set", f"model.init={run}", "--run-dir", "run"],
                                ["train", config, "--run-dir", run, "--resume"]])
        return Case(arguments + ["--data-dir", "data"], {0, 1, 2, 3, 5}, files=changed)
    weights = folder / f"runs/{name}/checkpoints/latest/model.safetensors"
    changed = rng.choice([weights.resolve(), folder / config])
    mutate_file(rng, changed, [weights.resolve(), folder / config])
    if rng.random() < 0.2:
        changed = changed.rename(changed.with_suffix(rng.choice([".pt", ".txt", ".toml"])))
    named = changed if changed.suffix == ".pt" or rng.random() < 0.1 else weights
    arguments = [str(named), "--config", rng.choice([config] * 9 + [str(weights)]), "--out", rng.choice(["out"] * 5 + [run, config])]
    arguments += rng.choice([[], [], ["--drop", "norm"], ["--rename", "norm=predictor"], ["--rename", argument(pick_text(rng)) + "=x"]])
    return Case(arguments, {0, 2}, prefix=CONVERT, files=[changed])


# Folders that do not exist, are files, or cannot be written to. None removes a variable.
PATHS = [None, "", ".", "new", "new/", "lexicon.txt", "/proc/nowhere", "/dev/null", "~", "x" * 5000, "\x1b[31m", "a\nforged: x", "\udcff"]
THREADS = [None, "", "0", "1", "3", "2,1", " 2", "-1", "many", "4096", "100000", "99999999999999999999"]
LAUNCH = [None, None, "", "0", "1", "2", "-1", "x", "99999999999999999999"]
VARIABLES = {
    "HOME": PATHS, "TAPEFORMER_DATA": PATHS, "XDG_DATA_HOME": PATHS, "TMPDIR": PATHS, "PATH": [None, "", ".", "/nowhere", "/usr/bin:/bin"],
    "LANG": [None, "", "xx_YY.UTF-8", "de_DE.UTF-8", "C"], "LC_ALL": [None, "", "nowhere", "tr_TR.ISO8859-9", "POSIX"],
    "TERM": [None, "", "dumb", "x" * 300], "COLUMNS": NUMBERS, "OMP_NUM_THREADS": THREADS, "OPENBLAS_NUM_THREADS": THREADS,
    "OMP_THREAD_LIMIT": ["1", "0", "x"], "OMP_DYNAMIC": ["true", "x"], "OMP_PROC_BIND": ["true", "close", "false", "x"],
    "OMP_PLACES": ["cores", "threads", "{0}", "{999}", "{", "x"], "OMP_WAIT_POLICY": ["passive", "ACTIVE", "", "x"],
    "OMP_STACKSIZE": ["64K", "0", "-1", "x", "1G"], "OMP_SCHEDULE": ["static", "dynamic,0", "x"],
    "OPENBLAS_CORETYPE": ["Haswell", "Prescott", "", "x"], "TAPEFORMER_CUDA_SYNC": ["", "0", "1"],
    "TAPEFORMER_BFLOAT16_DOT_PRODUCTS": ["", "0", "1", "x"], "SLURM_NTASKS": LAUNCH, "SLURM_PROCID": LAUNCH,
    "SLURM_STEP_NUM_TASKS": LAUNCH, "PMI_RANK": LAUNCH, "PMI_SIZE": LAUNCH, "PMIX_RANK": LAUNCH,
}
COMMANDS = [
    ["info"], ["info", "--json"], ["data", "list"], ["data", "list", "mnist"], ["data", "fetch", "mnist", "--from", "data/mnist"],
    ["data", "fetch", "fashion-mnist", "--from", "data/mnist"], ["data", "prepare", "mnist"], ["data", "verify", "mnist"],
    ["data", "prepare", "synthetic-speech", "--sentences", "1"], ["train", "configs/copy.toml", "--run-dir", "run"],
    ["train", "configs/image.toml", "--dry-run"], ["eval", "runs/copy", "--limit", "2"], ["generate", "runs/copy", "--count", "1"],
    ["transcribe", "runs/speech", "audio/a.wav"], ["data", "verify", "./kaldi/train", "--allow-commands"], ["bench", "list"],
]


def environment(rng, base, folder):
    """Runs a command with environment variables that are missing, empty or invalid."""
    copy(base, folder, "configs", "runs/copy", "runs/speech", "audio", "data", "kaldi", "lexicon.txt")
    scp = folder / "kaldi/train/wav.scp"
    scp.write_text(scp.read_text().replace("s0-u0 s0-u0.wav", "s0-u0 cat kaldi/train/s0-u0.wav |"))
    names = rng.sample(list(VARIABLES), rng.choice([1, 2, 3, 6]))
    variables = {name: rng.choice(VARIABLES[name]) for name in names}
    if rng.random() < 0.2:
        variables = {name: None for name in ("HOME", "PATH", "TMPDIR", "LC_ALL", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")} | variables
    return Case(rng.choice(COMMANDS), {0, 1, 2, 3, 4}, variables=variables)
