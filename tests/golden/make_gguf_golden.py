"""make_gguf_golden.py: writes gguf_types.gguf, tensors of all types, and gguf_types.safetensors, their values.

It needs `pip install gguf==0.19.0 numpy safetensors`. README.md lists the keys.
"""

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

FOLDER = Path(__file__).parent
TYPES = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q4_K, Type.Q5_K, Type.Q6_K]
# Offsets of the float16 numbers in a block.
SCALES = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}
ROWS, COLUMNS = 2, 512


def random_blocks(kind: Type, rng: np.random.Generator) -> np.ndarray:
    """Returns (ROWS, bytes of a row) random bytes whose scales are finite. Some scales are subnormal or zero."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // values, size), dtype=np.uint8)
    for offset in SCALES.get(kind, []):
        scales = rng.normal(0, 0.1, len(blocks)).astype(np.float16)
        scales[:2] = [0, 3e-7]
        blocks[:, offset:offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    if kind in (Type.F32, Type.F16, Type.BF16):
        numbers = rng.normal(0, 1, ROWS * COLUMNS).astype(np.float32)
        numbers[:4] = [0, -0.0, 65504, 6e-8]
        stored = {Type.F32: numbers.view(np.uint8), Type.F16: numbers.astype(np.float16).view(np.uint8),
                  Type.BF16: (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)}
        return stored[kind].reshape(ROWS, -1)
    return blocks.reshape(ROWS, -1)


def main() -> None:
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(FOLDER / "gguf_types.gguf", "llama")
    writer.add_uint32("test.integer", 7)
    writer.add_float32("test.number", 0.5)
    writer.add_bool("test.flag", True)
    writer.add_string("test.text", "größer")
    writer.add_array("test.texts", ["a", "", "ü"])
    writer.add_array("test.integers", [1, -2, 3])
    writer.add_array("test.numbers", [0.25, -1.5])
    expected = {}
    for kind in TYPES:
        data = random_blocks(kind, rng)
        plain = {Type.F32: np.float32, Type.F16: np.float16}.get(kind)
        if plain:
            data = data.view(plain)
        writer.add_tensor(f"{kind.name}.weight", data, raw_dtype=kind)
        expected[f"{kind.name}.weight"] = np.ascontiguousarray(gguf.dequantize(data, kind).reshape(ROWS, COLUMNS).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, FOLDER / "gguf_types.safetensors")


if __name__ == "__main__":
    main()
