"""Tests that the source distribution has all folders that CMake adds without tests."""

import re
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


class SourceDistribution(unittest.TestCase):
    def test_no_folder_of_the_program_is_left_out(self):
        sdist = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["sdist"]
        loop = re.search(r"foreach\(folder (.*)\)\n  add_subdirectory", (ROOT / "CMakeLists.txt").read_text())
        self.assertIn("core", loop[1].split())
        for folder in loop[1].split():
            if folder.split("/")[0] in sdist["exclude"]:
                self.assertIn(f"{folder}/*", sdist["include"])


if __name__ == "__main__":
    unittest.main()
