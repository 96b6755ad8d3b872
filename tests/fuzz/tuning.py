"""The kinds of cases that start a run from the weights of another run (model.init): with other tokens, and on prompts and answers."""

import json

from cases import TEXTS, change, copy, files_under, mutate_file, needs_of
from runner import Case

SPEECH = ["speech", "lstm", "cached", "ark", "an4"]
RUNS = [*TEXTS, "pairs", *SPEECH, "copy", "lsh"]
# Configs whose models have weights of equal shapes, except those of the tokens.
ALIKE = {"text": ["pieces", "text"], "pieces": ["text", "pieces"], "lstm": ["cached", "ark"], "cached": ["lstm", "cached"]}
SETTINGS = ["data.tokenizer=bytes", "data.tokenizer=characters", "data.tokenizer=sentencepiece", "data.vocabulary=290",
            "data.sentencepiece_model=pieces.model", "data.unknown_characters=token", "data.max_length=8", "data.dataset=copy",
            "data.limit=3", "data.cmvn=utterance", "model.norm=post", "model.positions=none", "model.tied_embeddings=true",
            "model.shared_embeddings=false", "train.steps=1"]
DATA = {"text.txt", "pairs/train.src", "pairs/train.tgt", "lexicon.txt", "kaldi/train/text", "ark/train/text", "an4/etc/an4.dic"}


BYTES = ["model.init_tokens=new", "data.tokenizer=bytes"]  # characters of templates are not in the text
FINETUNE_SETTINGS = [["lora.rank=2"], ["lora.rank=3", "lora.targets=[\"*\"]"], ["lora.rank=2", "lora.targets=[\"nothing\"]"],
                     ["lora.rank=1", "lora.dropout=0.5"], ["train.freeze=[\"layers.*\"]"], ["train.freeze=[\"*\"]"],
                     ["train.freeze=[\"\"]"], ["train.freeze=[\"x*y\", \"?\"]"], ["model.init_new=[\"predictor.*\"]"],
                     ["model.init_unused=[\"*\"]"], ["model.layers=2"], ["data.packed=false"], ["data.chat_template=chatml", *BYTES],
                     ["data.chat_template=llama3", "data.system_prompt=a", *BYTES], ["data.chat_template=chatml"],
                     ["data.sequence_length=3"], ["data.valid_share=0.3"], ["data.test_share=0.9"], ["optimizer.ema=0.5"]]


def exchange_letters(rng, path):
    """Replaces up to three letters everywhere in a file, so that the data have as many other tokens."""
    text = path.read_text()
    letters = {rng.choice(text): rng.choice("ABCDaehtzäß語") for _ in range(rng.choice([1, 2, 3]))}
    path.write_text("".join(letters.get(c, c) if c.isalpha() else c for c in text))


def tokens_of(folder, run):
    """Returns the tokenizer or the phones in the latest checkpoint of a run."""
    task = json.loads((folder / run / "checkpoints/latest/state.json").read_text()).get("task") or {}
    return task.get("phones", task)


def check_tokens(folder):
    """Returns a problem if the new run has other tokens than its initial weights."""
    if tokens_of(folder, "run") != tokens_of(folder, "first"):
        return ["the weights of model.init have other tokens than their run"]
    return []


def tuning(rng, base, folder):
    """Starts a run from another run, often with changed data, settings of other tokens, or a changed checkpoint."""
    runs = [name for name in RUNS if (base / "runs" / name).exists()]
    name = rng.choice(runs + [name for name in ("pieces", "lstm", "ark", "an4") if name in runs])
    first = rng.choice([name, name, *ALIKE.get(name, []), rng.choice(runs)])
    first = first if first in runs else name
    copy(base, folder, f"configs/{name}.toml", *needs_of(name))
    if (base / "pieces.model").exists():
        copy(base, folder, "pieces.model")
    copy(base / "runs", folder, first)
    (folder / first).rename(folder / "first")
    data = [path for path in files_under(folder) if str(path.relative_to(folder)) in DATA]
    changed = []
    if data and rng.random() < 0.5:
        changed = [rng.choice(data)]
        if rng.random() < 0.6:
            exchange_letters(rng, changed[0])
        else:
            mutate_file(rng, changed[0], [base / "text.txt", *data])
    is_broken = rng.random() < 0.15
    if is_broken:
        changed += change(rng, files_under(folder / "first"))
    settings = ["model.init=" + rng.choice(["first", "first", "first/checkpoints/latest"])]
    settings += rng.sample(SETTINGS, rng.choice([0, 0, 1, 1, 2]))
    keeps = rng.random() < 0.6
    if not keeps:
        settings.append("model.init_tokens=new")
    elif rng.random() < 0.3:
        settings.append("model.init_tokens=keep")
    arguments = ["train", f"configs/{name}.toml", "--run-dir", "run", *(word for text in settings for word in ("--set", text))]
    return Case(arguments, {0, 2, 3, 5}, files=changed, check=check_tokens if keeps and not is_broken else None)


def write_prompts(rng, path, text, has_template):
    """Writes prompts and answers, which are parts of a text, as JSON lines."""
    def part():
        at = rng.randrange(len(text))
        return text[at:at + rng.randrange(1, 12)]
    with path.open("w") as file:
        for _ in range(12):
            messages = [{"role": role, "content": part()} for role in ("system", "user", "assistant")]
            line = {"prompt": part(), "completion": part()}
            if has_template and rng.random() < 0.5:
                line = {"messages": messages[rng.randrange(2):]}
            file.write(json.dumps(line, ensure_ascii=rng.random() < 0.5) + "\n")


def prompts(rng, base, folder):
    """Finetunes a run on prompts and answers, often changed, with settings of frozen and new tensors and of adapters."""
    copy(base, folder, "configs/text.toml", *needs_of("text"))
    copy(base / "runs", folder, "text")
    (folder / "text").rename(folder / "first")
    path = folder / "prompts.jsonl"
    chosen = rng.sample(FINETUNE_SETTINGS, rng.choice([0, 1, 1, 2, 3]))
    options = list({word.split("=")[0]: word for words in chosen for word in words}.values())
    write_prompts(rng, path, (folder / "text.txt").read_text(), any("chat_template" in word for word in options))
    changed = []
    if rng.random() < 0.6:
        changed = [path]
        mutate_file(rng, path, [base / "text.txt"])
    if rng.random() < 0.2:
        changed += change(rng, files_under(folder / "first"))
    settings = ["model.init=first", "data.dataset=prompts", "data.path=prompts.jsonl", "train.steps=2"]
    settings += options
    arguments = ["train", "configs/text.toml", "--run-dir", "run", *(word for text in settings for word in ("--set", text))]
    return Case(arguments, {0, 2, 3, 5}, files=changed)
