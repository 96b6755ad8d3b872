"""Runs the program tapeformer, which is part of the package."""

import os
import sys
from pathlib import Path


def main():
    program = Path(__file__).parent / "bin" / "tapeformer"
    os.execv(program, ["tapeformer", *sys.argv[1:]])
