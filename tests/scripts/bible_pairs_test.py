"""Tests of scripts/bible-pairs.sh with a program that prints small texts in the place of `diatheke`."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bible-pairs.sh"
PROGRAM = '#!/bin/sh\ncat "$(dirname "$0")/$2" 2>/dev/null || true\n'  # the arguments begin with -b MODULE


def write_pairs(english: list[str], spanish: list[str], folder: Path) -> subprocess.CompletedProcess:
    """Runs the script for two texts, and returns its result. An empty text is that of a module which is not installed."""
    for name, lines in (("engWEB2015eb", english), ("spaRV1909eb", spanish)):
        (folder / name).write_text("".join(line + "\n" for line in [*lines, f"({name})"]), encoding="utf-8")
    program = folder / "diatheke"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run([SCRIPT, folder / "out"], env=environment, capture_output=True, text=True)


def read_pairs(part: str, folder: Path) -> list[tuple[str, str]]:
    texts = [(folder / "out" / f"bible.{part}.{name}").read_text(encoding="utf-8").splitlines() for name in ("en", "es")]
    return list(zip(*texts, strict=True))


class BiblePairs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = Path(directory.name)

    def pairs_of(self, english: list[str], spanish: list[str], part: str = "train") -> list[tuple[str, str]]:
        result = write_pairs(english, spanish, self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return read_pairs(part, self.folder)

    def test_markup_is_removed(self):
        english = [
            'I Kings 1:1: In <w savlm="x">the</w>  day, <w>God</w><note placement="foot"></note><w>made</w> light<note></note>.',
            '<title type="psalm">A <w>Psalm</w>.</title> <l sID="a"/>I Kings 1:2: <q>“Go.”</q><q>He went</q>.<title>B</title> ',
        ]
        spanish = ["I Kings 1:1: Hizo, <transChange>siendo</transChange><w>día</w>, luz.", "I Kings 1:2: Ve. Y fué."]
        expected = [("In the day, God made light.", "Hizo, siendo día, luz."), ("“Go.” He went.", "Ve. Y fué.")]
        self.assertEqual(self.pairs_of(english, spanish), expected)

    def test_verses_of_one_text_and_differing_chapters_are_left_out(self):
        english = [f"Ruth {chapter}:{verse}: e{chapter}.{verse}" for chapter in range(1, 5) for verse in (1, 2)]
        spanish = [line.replace(": e", ": s") for line in english if not line.startswith("Ruth 2:2")] + ["Esther 1:1: s"]
        expected = [(f"e{chapter}.{verse}", f"s{chapter}.{verse}") for chapter in (1, 4) for verse in (1, 2)]
        self.assertEqual(self.pairs_of(english, spanish), expected)

    def test_parts_are_chapters_without_verses_of_training(self):
        english = [f"Psalms {chapter}:{verse}: e{chapter}.{verse}" for chapter in range(1, 81) for verse in (1, 2)]
        english[2 * 39] = "Psalms 40:1: e1.1"  # a verse of training in a chapter for tests
        spanish = [line.replace(": e", ": s") for line in english]
        train = self.pairs_of(english, spanish)
        self.assertEqual(len(train), 2 * 76)
        self.assertEqual(read_pairs("test", self.folder), [("e40.2", "s40.2"), ("e80.1", "s80.1"), ("e80.2", "s80.2")])
        valid = [(f"e{chapter}.{verse}", f"s{chapter}.{verse}") for chapter in (20, 60) for verse in (1, 2)]
        self.assertEqual(read_pairs("valid", self.folder), valid)

    def test_missing_text(self):
        for english, spanish in (([], ["Ruth 1:1: s"]), (["Ruth 1:1: e"], [])):
            result = write_pairs(english, spanish, self.folder)
            self.assertEqual(result.returncode, 1)
            self.assertIn("install diatheke, sword-text-web and sword-text-sparv", result.stderr)


if __name__ == "__main__":
    unittest.main()
