"""Kinds of cases with the files of pretrained models: tokenizer.json, GGUF files and folders of Hugging Face, and import."""

import json
import struct

from cases import change, copy, files_under, use_run
from mutate import NUMBERS, mutate_bytes, mutate_text
from runner import Case


def _text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _list(key, kind, values):
    return _text(key) + struct.pack("<IIQ", 9, kind, len(values)) + b"".join(values)


def gguf_file(pieces, merges, numbers=(), tensors=()):
    """Returns a GGUF file with a tokenizer. The last piece is an end token.

    `numbers` has the type and the bytes of each further key, and `tensors` the shape and the float32 values of each tensor.
    """
    pieces = [*pieces, "<|end|>"]
    types = [1] * (len(pieces) - 1) + [3]
    values = [_text(f"tokenizer.ggml.{key}") + struct.pack("<I", 8) + _text(text) for key, text in (("model", "gpt2"), ("pre", "smollm"))]
    values += [_list("tokenizer.ggml.tokens", 8, [_text(piece) for piece in pieces]),
               _list("tokenizer.ggml.merges", 8, [_text(merge) for merge in merges]),
               _list("tokenizer.ggml.token_type", 5, [struct.pack("<i", kind) for kind in types]),
               _text("tokenizer.ggml.eos_token_id") + struct.pack("<II", 4, len(pieces) - 1)]
    values += [_text(key) + struct.pack("<I", kind) + data for key, (kind, data) in dict(numbers).items()]
    infos, data = b"", b""
    for name, (shape, content) in dict(tensors).items():
        infos += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, len(data))
        data += content + bytes(-len(content) % 32)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(dict(tensors)), len(values)) + b"".join(values) + infos
    return header + bytes(-len(header) % 32 or 32 * (not tensors)) + data


LLAMA = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 12}
LLAMA_KEYS = {"hidden_size": "embedding_length", "num_hidden_layers": "block_count", "num_attention_heads": "attention.head_count",
              "num_key_value_heads": "attention.head_count_kv", "intermediate_size": "feed_forward_length"}


def llama_tensors(rng, rows):
    """Returns the names in both formats, the shapes and the values of the tensors of a small model."""
    def add(name, short, *shape):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[name] = (short, list(shape), struct.pack(f"<{count}f", *(rng.uniform(-0.3, 0.3) for _ in range(count))))
    tensors = {}
    add("model.embed_tokens.weight", "token_embd.weight", rows, 8)
    for i in (0, 1):
        layer, block = f"model.layers.{i}.", f"blk.{i}."
        for name, short, shape in (("input_layernorm", "attn_norm", [8]), ("post_attention_layernorm", "ffn_norm", [8]),
                                   ("self_attn.q_proj", "attn_q", [8, 8]), ("self_attn.k_proj", "attn_k", [4, 8]),
                                   ("self_attn.v_proj", "attn_v", [4, 8]), ("self_attn.o_proj", "attn_output", [8, 8]),
                                   ("mlp.gate_proj", "ffn_gate", [12, 8]), ("mlp.up_proj", "ffn_up", [12, 8]),
                                   ("mlp.down_proj", "ffn_down", [8, 12])):
            add(f"{layer}{name}.weight", f"{block}{short}.weight", *shape)
    add("model.norm.weight", "output_norm.weight", 8)
    return tensors


def write_llama(folder, rng, tokenizer):
    """Writes a small model as a folder of Hugging Face and as a GGUF file."""
    vocabulary = tokenizer["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.get)
    tensors = llama_tensors(rng, 448)
    config = {"model_type": "llama", **LLAMA, "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
              "vocab_size": 448, "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": [420]}
    (folder / "hf").mkdir(parents=True)
    (folder / "hf/config.json").write_text(json.dumps(config))
    (folder / "hf/tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "hf/model.safetensors").write_bytes(safetensors({name: ("F32", shape, data) for name, (_, shape, data) in tensors.items()}))
    numbers = {f"llama.{LLAMA_KEYS[key]}": (4, struct.pack("<I", value)) for key, value in LLAMA.items()}
    numbers |= {"general.architecture": (8, _text("llama")), "llama.attention.layer_norm_rms_epsilon": (6, struct.pack("<f", 1e-5))}
    data = gguf_file(pieces, [" ".join(pair) for pair in tokenizer["model"]["merges"]], numbers,
                     {short: (shape, content) for short, shape, content in tensors.values()})
    (folder / "model.gguf").write_bytes(data)


# Models of tests/golden/hybrids.safetensors.
HYBRIDS = ["llama3", "yarn", "qwen3_next", "qwen3_5_text", "gla-conv", "delta_net", "gated_deltanet", "mamba2-groups"]


def _field(number, kind, data):
    return bytes([number << 3 | kind]) + (bytes([len(data)]) if kind == 2 else b"") + data


def piece_model(letters):
    """Returns a SentencePiece model with the tokens <unk>, <s>, </s> and letters, in the format of protocol buffers."""
    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("\u2581", 1), *((letter, 1) for letter in letters)]
    model = b"".join(_field(1, 2, _field(1, 2, text.encode()) + _field(2, 5, struct.pack("<f", -1)) + _field(3, 0, bytes([kind])))
                     for text, kind in pieces)
    return model + _field(2, 2, _field(3, 0, b"\1")) + _field(3, 2, _field(1, 2, b"identity") + _field(3, 0, b"\1") + _field(4, 0, b"\0"))


def write_hybrids(folder, golden, tokenizer):
    """Writes folders with the models in a golden file, and one of two tokenizers in each."""
    content = golden.read_bytes()
    size = struct.unpack_from("<Q", content)[0]
    header, data = json.loads(content[8:8 + size]), content[8 + size:]
    configs = header.pop("__metadata__")
    letters = "abcdefgh"
    small = dict(tokenizer, added_tokens=[], model=dict(tokenizer["model"], vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    for i, case in enumerate(HYBRIDS):
        start, tensors = f"{case}.original.", {}
        for name, entry in header.items():
            if name.startswith(start):
                begin, end = entry["data_offsets"]
                tensors[name[len(start):]] = (entry["dtype"], entry["shape"], data[begin:end])
        (folder / case).mkdir(parents=True)
        (folder / case / "config.json").write_text(configs[case])
        (folder / case / "model.safetensors").write_bytes(safetensors(tensors))
        if i % 2:
            (folder / case / "tokenizer.model").write_bytes(piece_model(letters))
        else:
            (folder / case / "tokenizer.json").write_text(json.dumps(small))


def safetensors(tensors):
    """Returns a safetensors file. `tensors` has a dtype, a shape and bytes for each name."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _paths(json_value, path=()):
    """Returns the paths of all entries of a JSON value. Long lists and objects count with some of their entries."""
    paths = [path] if path else []
    items = json_value.items() if isinstance(json_value, dict) else enumerate(json_value) if isinstance(json_value, list) else []
    for key, value in list(items)[:12]:
        paths += _paths(value, (*path, key))
    return paths


ODD = [None, True, -1, 0, 420, 426, 427, 2**31, 2**64, 1e300, "", "x", "Sequence", "ByteLevel", "\u0120", "a b", "..", "../x", "/etc/passwd", "é" * 3000,
       [], [[]], {}, {"type": "NFC"}, {"type": "Sequence"}, [1, 2, 3], "\x1b[31m", "\ud7ff\u2028", "model-00001-of-00002.safetensors"]


def mutate_json(rng, text):
    """Changes, removes, moves or repeats entries of a JSON text, or mutates the text."""
    if rng.random() < 0.3:
        return mutate_text(rng, text, rng.choice(NUMBERS).encode())
    value = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        paths = _paths(value)
        if not paths:
            break
        *parents, last = rng.choice(paths)
        parent = value
        for key in parents:
            parent = parent[key]
        choice = rng.randrange(5)
        if choice == 0:
            del parent[last]
        elif choice == 1 and isinstance(parent, dict):
            parent[rng.choice(["type", "x", "\x1b[0m", "content", str(last) + "_"])] = parent[last]
        elif choice == 2:
            other = value
            for key in rng.choice(paths):
                other = other[key] if (isinstance(other, dict) and key in other) or (isinstance(other, list) and isinstance(key, int) and key < len(other)) else {}
            parent[last] = json.loads(json.dumps(other))
        elif choice == 3 and rng.random() < 0.2:
            deep = parent[last]
            for _ in range(rng.choice([10, 40, 500])):
                deep = [deep]
            parent[last] = deep
        else:
            parent[last] = rng.choice(ODD)
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "replace")


def _replace(path, mutate, rng):
    path.write_bytes(mutate(rng, path.read_bytes()))
    return path


def bpe(rng, base, folder):
    """Changes a tokenizer.json, or the text that it encodes."""
    copy(base, folder, "bpe", "configs/bpe.toml", "runs/bpe", "text.txt")
    path = folder / "bpe/tokenizer.json"
    if rng.random() < 0.85:
        _replace(path, mutate_json, rng)
    else:
        path = folder / "text.txt"
        path.write_bytes(mutate_text(rng, path.read_bytes(), "<|end|><|endoftext|>  'S 'ſ é\u0301>\n\u3000\u2028 \U000e0041".encode()))
    if rng.random() < 0.2:
        return Case(use_run(rng, "bpe"), {0, 2, 3}, files=[path])
    arguments = ["train", "configs/bpe.toml"] + rng.choice([["--dry-run"], ["--run-dir", "run"]])
    return Case(arguments, {0, 2, 3}, files=[path])


def _mutate_gguf(rng, data):
    """Replaces a number of the header by another, removes bytes or mutates them."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data)
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.choice([rng.randrange(40), rng.randrange(min(2000, len(data))), rng.randrange(len(data))])
        form = rng.choice(["<B", "<I", "<Q"])
        limit = 256 ** struct.calcsize(form)
        value = rng.choice([0, 1, 2, 3, 8, 9, 31, 32, 255, limit - 1, limit // 2, limit // 2 - 1, limit - 32, rng.randrange(limit), rng.randrange(64)])
        data[at:at + struct.calcsize(form)] = struct.pack(form, value % limit)
    if rng.random() < 0.1:
        data = data[:rng.randrange(len(data))]
    return bytes(data)


def _read(base, *arguments, files):
    command = [str(base / "read_files"), *arguments]
    return Case([], {0, 3}, prefix=command, files=files)


def gguf(rng, base, folder):
    copy(base, folder, "gguf")
    name = rng.choice(["types", "tokenizer"])
    path = _replace(folder / f"gguf/{name}.gguf", _mutate_gguf, rng)
    return _read(base, rng.choice(["weights", name if name == "tokenizer" else "weights"]), f"gguf/{name}.gguf", files=[path])


def huggingface(rng, base, folder):
    copy(base, folder, "huggingface")
    paths = files_under(folder / "huggingface")
    path = rng.choice(paths)
    if path.suffix == ".json" and rng.random() < 0.9:
        _replace(path, mutate_json, rng)
    else:
        change(rng, paths)
    return _read(base, rng.choice(["weights", "tokenizer"]), "huggingface", files=[path])


def imports(rng, base, folder):
    """Changes a model and imports it, or changes an imported run and exports it."""
    if rng.random() < 0.2:
        copy(base, folder, "imported")
        changed = change(rng, files_under(folder / "imported")) if rng.random() < 0.7 else []
        output = rng.choice(["out", "out.gguf", "imported", "a/b/out.gguf", "", ".."])
        arguments = ["export", f"imported/{rng.choice(['hf', 'gguf'])}", output] + rng.choice([[], ["--type", rng.choice(["float16", "q8_0", "bfloat16"])]])
        return Case(arguments + rng.choice([[], ["--family", rng.choice(["qwen3", "gpt2"])]]), {0, 2, 3, 5}, files=changed)
    copy(base, folder, "import")
    if rng.random() < 0.3:
        copy(base, folder, "hybrids")
        source = f"hybrids/{rng.choice(HYBRIDS)}"
        path = rng.choice(files_under(folder / source))
        if path.suffix == ".json" and rng.random() < 0.9:
            _replace(path, mutate_json, rng)
        else:
            change(rng, [path])
    elif rng.random() < 0.4:
        source, path = "import/model.gguf", _replace(folder / "import/model.gguf", _mutate_gguf, rng)
    else:
        source, paths = "import/hf", files_under(folder / "import/hf")
        path = rng.choice(paths)
        if path.suffix == ".json" and rng.random() < 0.9:
            _replace(path, mutate_json, rng)
        else:
            change(rng, [path])
    run = rng.choice(["run", "run", "run", "a/b/run", "import", ".", "run/"])
    return Case(["import", source, run], {0, 2, 3}, files=[path], check=lambda at: [] if (at / run / "config.toml").exists() else ["no run"])
