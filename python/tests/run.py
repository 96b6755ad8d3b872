"""Runs pytest with the arguments. Exits with 77, which ctest reports as skipped, if all tests need a missing package."""

import sys

try:
    import numpy  # noqa: F401
    import pytest
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

NOTHING_COLLECTED = 5

status = pytest.main(["-q", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]])
sys.exit(77 if status == NOTHING_COLLECTED else status)
