"""make_bleu_golden.py: writes bleu.json, scores of the Python package sacrebleu for generated translations.

It needs `pip install sacrebleu==2.6.0`. README.md lists the keys.
"""

import json
import random
import unicodedata
from pathlib import Path

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

CORPORA, SEGMENTS = 20, 100
CONFIGURATIONS = [(tokenizer, lower) for lower in (False, True) for tokenizer in ("13a", "intl", "none", "char")]

# Sentences are one choice from each list.
SENTENCES = [
    [["The old bridge", "Our neighbour", "Dr. Miller's team", "Nobody", "A well-known U.S. company"],
     ["crossed", "has found", "didn't see", "will pay for", "re-opened"],
     ["the river", "$1,250.50", "3.5% of it", "the so-called \"report\"", "AT&T", "room 12-B"],
     ["at 10:30 a.m.", "in 2019-2020", "(again)", "yesterday", "for 1,000 days"], [".", "!", "?", "...", ""]],
    [["Der alte Mann", "Die Straße", "Mein Bruder", "Das Übergrößenträgerchen"],
     ["geht", "verkaufte", "weiß nichts über", "hält"],
     ["das „rote“ Haus", "3,5 Millionen Euro", "GROẞE ÄPFEL", "den 7. Versuch"],
     ["um 8.15 Uhr", "z. B. im Süden", "– leider –", "nicht"], [".", "!", "", " ."]],
    [["¿Dónde", "El niño", "Mañana", "La señora Núñez"], ["está", "compró", "quiere ver", "perdió"],
     ["el último «libro»", "1.234,56 pesos", "la 2ª casa", "un café"], ["?", "…", "!", ""]],
    [["Ο ΟΔΥΣΣΕΑΣ", "ΌΛΟΣ Ο ΚΌΣΜΟΣ", "Σας", "ΤΟΥΣ ΣΟΦΟΥΣ"], ["είδε", "ΑΣ.", "Σ'", "ρώτησε·"], ["τις θάλασσες", "ΤΗΣ;", "ΣΣ", "τίποτα"]],
    [["Старый дом", "Наша МАМА", "№ 5"], ["стоит", "купила", "не знает"], ["у реки", "за 1 000 ₽", "«ничего»"], [".", "!", " — да"]],
    [["İstanbul'da", "IĞDIR", "DİYARBAKIR İLİ"], ["bir ev", "ISI", "İİ"], ["gördüm", "yok", "İ."]],
    [["猫", "我的朋友", "東京の天気"], ["喜欢", "は", "在2024年"], ["吃魚", "とても良い", "買了３本書"], ["。", "！", "」", "?"]],
    [["안녕하세요", "오늘"], ["날씨가", "100원"], ["좋아요", "없다"], [".", "!"]],
    [["नमस्ते", "राम ने"], ["१२३,४५६", "घर"], ["देखा।", "है"]],
    [["مرحبا", "الكتاب"], ["١٬٢٣٤٫٥", "جديد"], ["؟", "،", "."]],
]
PIECES = [
    "&quot;", "&amp;", "&lt;", "&gt;", "&apos;", "&amp;lt;", "&amp;amp;quot;", "&", "<skipped>", "<SKIPPED>", "-\n", "\n", "\r", "\t",
    " ", "  ", "\u00a0", "\u3000", "\u2009", "\u200b", "\u0085", "\u2028", "\x1c", "\x1f", "\ufeff", "\u180e", ".", ",", "-", "'",
    "...", ".5", "5.", "1,234.5", "1-2", "3-a", "a-3", "-4", "--", "$5", "€", "²", "½", "Ⅻ", "ⅻ", "٣", "६", "〇", "³.", "!?", "@user",
    "#1", "C++", "a_b", "[x]", "{y}", "~", "^", "`", "|", "\\", "/", "%", "“q”", "‘s’", "«f»", "„d“", "。", "、", "・", "「", "」", "，", "．",
    "😀", "👍🏽", "👨‍👩‍👧", "🇩🇪", "❤️", "©", "™", "→", "∑", "±", "Σ", "ΑΣ", "ΣΑ", "Α\u0301Σ", "aΣ:", "Σ’", "ªΣ", "🅰Σ", "ⓐΣ", "İ", "ẞ", "Ǆ", "ǅ", "K", "Ω",
    "ﬁ", "e\u0301", "\u0301", "Æ", "Ⴀ", "Ꭰ", "Å", "𝐀", "𐐀", "𝟎", "中", "ก", "zz", "The", "the", "house", "HOUSE", "a", "b", "\x00", "\x7f",
]
# Unicode 3.2, so that the characters do not depend on the version of Python.
CHARACTERS = [chr(c) for c in range(0x30000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")]


def make_sentence(rng: random.Random) -> str:
    return " ".join(rng.choice(part) for part in rng.choice(SENTENCES)).replace(" .", ".")


def make_random_text(rng: random.Random) -> str:
    text = ""
    for _ in range(rng.choice([0, 1, 2, 4, 8, 12])):
        text += rng.choice(PIECES) if rng.random() < 0.8 else rng.choice(CHARACTERS)
        text += rng.choice(["", "", " "])
    return text


def change(rng: random.Random, text: str) -> str:
    """Returns a translation that shares words with `text`."""
    words = text.split(" ")
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at = rng.randrange(len(words))
        words[at] = rng.choice([words[at] + " " + words[at], "", words[at].upper(), words[at].lower(), words[rng.randrange(len(words))],
                                rng.choice(PIECES), words[at] + rng.choice(PIECES)])
    return " ".join(words)


def make_segment(rng: random.Random, corpus: int, reference_count: int) -> list[str]:
    """Returns a hypothesis and its references."""
    if corpus == 0:  # no matches
        return [rng.choice(["x y", "qq", "x", ""])] + ["z w v"] * reference_count
    base = make_sentence(rng) if rng.random() < 0.6 else make_random_text(rng)
    if corpus == 1:  # equal lines
        return [base] * (1 + reference_count)
    segment = [change(rng, base) for _ in range(reference_count)] + [base]
    if rng.random() < 0.1:
        segment = [text + "\r" for text in segment]
    if rng.random() < 0.05:
        segment[rng.randrange(len(segment))] = rng.choice(["", " ", "\r"])
    return segment


def score(metric: BLEU | CHRF, hypotheses: list[str], references: list[list[str]]) -> dict:
    result = metric.corpus_score(hypotheses, references)
    return {"score": result.score, "text": str(result), "signature": str(metric.get_signature())}


def make_corpus(rng: random.Random, corpus: int) -> dict:
    reference_count = [1, 1, 1, 2, 3][corpus % 5]
    segments = [make_segment(rng, corpus, reference_count) for _ in range(SEGMENTS)]
    hypotheses, *references = (list(texts) for texts in zip(*segments))
    result: dict = {"segments": segments, "sentence_bleu": [], "sentence_chrf": []}
    for i, (hypothesis, *texts) in enumerate(segments):
        tokenizer, lower = CONFIGURATIONS[i % len(CONFIGURATIONS)]
        bleu = BLEU(tokenize=tokenizer, lowercase=lower, effective_order=True)
        result["sentence_bleu"].append(round(bleu.sentence_score(hypothesis, texts).score, 11))
        result["sentence_chrf"].append(round(CHRF(lowercase=lower).sentence_score(hypothesis, texts).score, 11))
    result["bleu"] = [score(BLEU(tokenize=tokenizer, lowercase=lower), hypotheses, references) for tokenizer, lower in CONFIGURATIONS]
    result["chrf"] = [score(CHRF(lowercase=lower), hypotheses, references) for lower in (False, True)]
    return result


def main() -> None:
    if sacrebleu.__version__ != "2.6.0":
        raise SystemExit(f"make_bleu_golden.py: expected sacrebleu 2.6.0, found {sacrebleu.__version__}")
    rng = random.Random(1)
    corpora = [make_corpus(rng, corpus) for corpus in range(CORPORA)]
    configurations = [{"tokenizer": name, "lower_case": lower} for name, lower in CONFIGURATIONS]
    rows = ",\n".join(json.dumps(corpus, ensure_ascii=False, separators=(",", ":")) for corpus in corpora)
    text = f'{{"configurations":{json.dumps(configurations)},\n"corpora":[\n{rows}\n]}}\n'
    (Path(__file__).parent / "bleu.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
