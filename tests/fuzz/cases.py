"""Functions that the kinds of cases share: they copy, mutate and break valid inputs, and name commands that use a run."""

import os
import shutil

from mutate import mutate_bytes, mutate_text

TEXT_SUFFIXES = {"", ".toml", ".json", ".scp", ".txt", ".fileids", ".transcription", ".dic", ".src", ".tgt"}
IMAGES = ["image", "grid"]
SEQUENCES = ["copy", "lsh"]
TEXTS = ["text", "pieces", "bpe", "gated"]
TRANSLATIONS = ["pairs", "lightning"]


def copy(base, folder, *names):
    for name in names:
        source, target = base / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)


def files_under(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def mutate_file(rng, path, others=()):
    other = rng.choice([*others, path])
    other = other.read_bytes() if other.is_file() else b""  # break_file() may have removed it
    mutate = mutate_text if path.suffix in TEXT_SUFFIXES and rng.random() < 0.9 else mutate_bytes
    path.write_bytes(mutate(rng, path.read_bytes(), other))


def break_file(rng, path):
    """Replaces a file by a folder, by a link to itself or to /dev/full, or by a pipe, or removes it."""
    path.unlink()
    choice = rng.randrange(5)
    if choice == 0:
        path.mkdir()
    elif choice == 1:
        path.symlink_to(path.name)
    elif choice == 2:
        path.symlink_to("/dev/full")
    elif choice == 3:
        os.mkfifo(path)


def change(rng, paths, count=(1, 1, 1, 2)):
    """Mutates one or two of the files, or rarely breaks them. Returns the paths of the changed files."""
    changed = []
    for _ in range(rng.choice(count)):
        path = rng.choice(paths)
        if path in changed or not path.is_file():
            continue
        if rng.random() < 0.05:
            break_file(rng, path)
        else:
            mutate_file(rng, path, paths)
        changed.append(path)
    return changed


def trained(base):
    """Returns the names of the configs with a run. A build without a library lacks some of them."""
    return sorted(path.name for path in (base / "runs").iterdir())


def needs_of(name):
    """Returns the names of the inputs that the config `name` reads."""
    if name in IMAGES:
        return ["data"]
    if name in TEXTS:
        return ["text.txt"] + (["bpe"] if name == "bpe" else [])
    if name in TRANSLATIONS:
        return ["pairs"]
    special = {"ark": ["ark"], "an4": ["an4"], "pictures": ["pictures"]}
    return special.get(name, [] if name in SEQUENCES else ["kaldi", "lexicon.txt"])


def argument(text):
    """Returns bytes as an argument of a command line. Removes NUL bytes, which an argument cannot contain."""
    return os.fsdecode(text.replace(b"\0", b""))


def translate_options(rng):
    return rng.choice([[], ["--greedy"], ["--n-best", "2"], ["--scores"], ["--json"], ["--max-length", "3"], ["--batch-tokens", "1"],
                       ["--beam", "7", "--length-penalty", "0"]])


def use_run(rng, name, runs="runs"):
    """Returns arguments that use the run `name` in the folder `runs`."""
    if name in TEXTS:
        return rng.choice([["eval", f"{runs}/{name}", "--limit", "2"], ["generate", f"{runs}/{name}", "--length", "3", "--json"],
                           ["eval", f"{runs}/{name}", "--limit", "2", "--context", "carried"], ["score", f"{runs}/{name}", "text.txt"]])
    if name in TRANSLATIONS:
        return rng.choice([["eval", f"{runs}/{name}"], ["translate", f"{runs}/{name}", "pairs/test.src", *translate_options(rng)],
                           ["score", f"{runs}/{name}", "pairs/test.src", "pairs/test.tgt", *rng.choice([[], ["--json"]])]])
    if name in [*IMAGES, "pictures"]:
        return rng.choice([["eval", f"{runs}/{name}", "--limit", "2"], ["generate", f"{runs}/{name}", "--count", "1"],
                           ["complete", f"{runs}/{name}", "--index", "1", "--samples", "1"]])
    if name in SEQUENCES:
        return rng.choice([["eval", f"{runs}/{name}", "--limit", "2"], ["generate", f"{runs}/{name}", "--count", "1"]])
    audio = "audio/a.mfc" if name == "an4" else "audio/a.wav"
    words = [["eval", f"{runs}/{name}"], ["transcribe", f"{runs}/{name}", audio]]
    if name == "speech":
        words.append(["transcribe", f"{runs}/{name}", "--stream", audio])
    return rng.choice(words)
