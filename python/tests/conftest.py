import os
import signal
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # tests run in parallel, so waiting threads must not spin
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts processes in the background without it


@pytest.fixture(scope="session")
def program():
    """The program tapeformer of the same build."""
    import tapeformer

    path = os.environ.get("TAPEFORMER_PROGRAM") or Path(tapeformer.__file__).parent / "bin" / "tapeformer"
    if not Path(path).exists():
        pytest.skip("skipped: the program tapeformer is not installed with the package")
    return path
