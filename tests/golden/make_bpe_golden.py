"""make_bpe_golden.py: writes bpe_tokenizer.json, a small tokenizer, and bpe.json, tokens of texts.

It needs `pip install tokenizers==0.23.3`. README.md lists the keys.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = Path(__file__).parent
WORD = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")
MARKS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")


def split_of(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
# For each name: the pre-tokenizer, the normaliser, and ignore_merges.
TOKENIZERS = {
    "gpt2": (BYTE_LEVEL, None, False),
    "gpt2-nfc": (BYTE_LEVEL, normalizers.NFC(), False),
    "smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL]), None, False),
    "qwen2": (split_of(WORD % ""), normalizers.NFC(), False),
    "llama3": (split_of(WORD % "{1,3}"), None, True),
    "qwen35": (split_of(MARKS), normalizers.NFC(), False),
}
TRAINING = """In the beginning God created the heaven and the earth. And the earth was without form, and void;
and darkness was upon the face of the deep. It's what they've said, we'll see: I'd do 12 of 345 things.
Ελληνικά και русский язык, größer, déjà vu, 日本語の文, 中文文本, हिन्दी में, العربية, עברית, ไทย, 한국어.
  if (x > 0) {\n\t\treturn x + 10;\n  }\n\n
""" * 20
TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\n\n\n", " \n ", "\t\tx", "Hello world", "Hello  world", " Hello", "Hello ", "it's IT'S it’s don'T 'LL we'Ve",
    "'s", "''s", " 's", "'", "'r", "'re", "'\u017f 'S", "12345 1 22 333 4444 55555", "x1y22z333", "  12", "12  ", "a  1", "½ Ⅻ ² ٣٤٥ १२३४",
    "foo(bar)[0] += 1;  // x\n\n\ty", "...\n\n\nend", "a.\nb", "a.\r\n\r\nb", "(( x", "\u00a0x", "x\u00a0\u00a0y", "\u3000全角 空白\u3000\u3000x", "a\u2028b\u2029\u2029c",
    "\u0085x\u0085\u0085", "\x1cx\x1f y", "\u200bx\ufeffy", "e\u0301 é ａ\u0323\u0307 \u1100\u1161\u11a8 각", "हिन्दी में नमस्ते", "ก็ไม่เป็นไร", "שָׁלוֹם עֹלָם", "مرحبا بالعالم",
    "日本語の文。\n中文文本，\n", "한국어 텍스트", "Ἑλλάς καὶ", "Привет, мир!", "👨‍👩‍👧 ❤️ 🇩🇪🏽", "\U000e0041\U0001f1e9", "<|end|>", "a <|end|> b<|end|>", "<|end|", "<|en<|end|><tool>x</tool>",
    "<|pad|>  <|pad|>", "x   y", "é<\u0301é>", "and the earth was without form, and void", "the the the\n\n\n\nthe", "a" * 70, " " * 40 + "x", "\n" * 9 + " x",
]


def main() -> None:
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = BYTE_LEVEL
    base.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    base.train_from_iterator([TRAINING], trainer)
    base.add_special_tokens(["<|endoftext|>", "<|end|>", "<|pad|>"])
    base.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("</tool>", normalized=False), AddedToken("  ", normalized=True),
                     AddedToken("é>", normalized=True)])
    (FOLDER / "bpe_tokenizer.json").write_text(json.dumps(json.loads(base.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
    golden = []
    for name, (pre_tokenizer, normalizer, ignore_merges) in TOKENIZERS.items():
        entries = json.loads(base.to_str())
        entries["model"]["ignore_merges"] = ignore_merges
        tokenizer = Tokenizer.from_str(json.dumps(entries))
        tokenizer.pre_tokenizer = pre_tokenizer
        if normalizer:
            tokenizer.normalizer = normalizer
        own = json.loads(tokenizer.to_str())
        golden.append({"name": name, "pre_tokenizer": own["pre_tokenizer"], "normalizer": own["normalizer"], "ignore_merges": ignore_merges,
                       "tokens": [tokenizer.encode(text).ids for text in TEXTS]})
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in golden)
    texts = json.dumps(TEXTS, separators=(",", ":"))
    (FOLDER / "bpe.json").write_text(f'{{"texts":{texts},\n"tokenizers":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
