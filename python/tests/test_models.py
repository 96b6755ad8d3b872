"""Training and trained models in Python. These tests need NumPy only."""

import ast
import os
import signal
import site
import subprocess
import sys
import threading
import time
import wave
from pathlib import Path

import numpy as np
import pytest

import tapeformer

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
SMALL = {
    "model.layers": 1, "model.heads": 2, "model.head_dim": 8, "model.feedforward": 16, "train.eval_every": 0,
    "train.checkpoint_every": 0, "train.log_every": 2, "train.steps": 6, "run.threads": 1, "run.device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def copy_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy") / "run"
    records = []
    result = tapeformer.train(
        CONFIGS / "copy/linear.toml",
        set={**SMALL, "data.max_length": 12, "data.batch_size": 4, "data.eval_limit": 8},
        run_dir=folder,
        on_metrics=records.append,
    )
    return folder, result, records


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("to be or not to be, that is the question.\n" * 200)
    settings = {
        **SMALL, "data.path": folder / "text.txt", "data.tokenizer": "characters", "data.sequence_length": 32, "data.batch_size": 8,
        "data.eval_limit": 8, "train.steps": 150, "schedule.warmup_steps": 10, "optimizer.ema": 0.9,
    }  # fmt: skip
    tapeformer.train(CONFIGS / "text/linear.toml", set=settings, run_dir=folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def translation_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translation")
    words = {"one": "uno", "two": "dos", "three": "tres", "four": "cuatro", "five": "cinco"}
    random = np.random.default_rng(0)
    lines = [list(random.choice(list(words), random.integers(1, 5))) for _ in range(300)]
    settings = {**SMALL, "data.max_ratio": 0, "data.vocabulary": 285, "data.batch_tokens": 200}
    for split in ("", "valid_", "test_"):
        for side, text in (("source", lines), ("target", [[words[w] for w in line] for line in lines])):
            path = folder / f"{split}{side}.txt"
            path.write_text("".join(" ".join(line) + "\n" for line in (text if not split else text[:10])))
            settings[f"data.{split}{side}"] = path
    tapeformer.train(CONFIGS / "quickstart-translation.toml", set=settings, run_dir=folder / "run")
    return folder / "run"


def test_training_returns_the_records_of_metrics_jsonl(copy_run):
    folder, result, records = copy_run
    assert result["step"] == result["steps"] == 6 and not result["time_is_up"]
    assert records == result["metrics"] == tapeformer.read_metrics(folder)
    assert [record["step"] for record in records if record["split"] == "train"] == [2, 4, 6]
    assert records[-1]["split"] == "test" and result["evaluation"]["nats_per_dim"] > 0


def test_configs_have_values_and_the_errors_of_the_command_line():
    config = tapeformer.Config(CONFIGS / "copy/linear.toml", {"train.steps": 7, "run.name": "x", "optimizer.lr": 0.5})
    assert config["train.steps"] == "7" and config["model.attention"] == '"linear"' and config.name == "x"
    assert "steps = 7" in config.to_toml()
    numbers = tapeformer.Config(CONFIGS / "copy/linear.toml", {"train.steps": np.int64(8), "optimizer.lr": np.float64(0.25)})
    assert numbers["train.steps"] == "8" and numbers["optimizer.lr"] == "0.25"
    assert tapeformer.Config(CONFIGS / "copy/linear.toml", {"run.name": "\U0001f600"}).name == "\U0001f600"
    with pytest.raises(KeyError):
        config["train.none"]
    with pytest.raises(tapeformer.ConfigError, match="train.step; did you mean train.steps"):
        tapeformer.Config(CONFIGS / "copy/linear.toml", {"train.step": 7})
    with pytest.raises(ValueError, match="No such file|cannot"):
        tapeformer.Config("none.toml")
    with pytest.raises(TypeError, match="a config value"):
        tapeformer.Config(set={"train.steps": object()})


def test_configs_are_found_by_the_names_of_the_command_line(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    for name in ("copy/linear", "quickstart"):
        assert tapeformer.Config(name).to_toml() == tapeformer.Config(CONFIGS / f"{name}.toml").to_toml()
    result = tapeformer.train("copy/linear", set={**SMALL, "train.steps": 1, "data.max_length": 12}, run_dir="run")
    assert result["step"] == 1
    for wrong in ("copy", "copy/linear.tom", "../configs/quickstart", "copy/nothing"):
        with pytest.raises(tapeformer.ConfigError) as raised:
            tapeformer.Config(wrong)
        printed = subprocess.run([program, "train", wrong], capture_output=True, text=True).stderr
        assert str(raised.value).splitlines()[0] in printed
    Path("quickstart").write_text('[run]\nname = "mine"\n[train]\nsteps = 1\n')
    assert tapeformer.Config("quickstart").name == "mine"  # a file is first


def test_errors_have_the_text_of_the_command_line(program, tmp_path):
    for arguments, call in (
        (["eval", "none"], lambda: tapeformer.load("none").evaluate()),
        (["train", str(CONFIGS / "copy/linear.toml"), "--set", "model.heads=0"],
         lambda: tapeformer.train(CONFIGS / "copy/linear.toml", set={"model.heads": 0})),
    ):  # fmt: skip
        printed = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=tmp_path).stderr
        with pytest.raises(Exception) as raised:
            call()
        assert str(raised.value).splitlines()[0] in printed


def test_logits_and_loss_agree(copy_run):
    model = tapeformer.load(copy_run[0])
    assert model.step == 6 and "linear" in model.config["model.attention"]
    tokens = np.random.default_rng(0).integers(0, 10, (3, 9))
    logits = model.logits(tokens[:, :-1])
    assert logits.shape[:2] == (3, 8) and logits.dtype == np.float32
    logits = logits.astype(np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nats = -np.take_along_axis(log_probabilities, tokens[:, 1:, None], 2).mean()
    assert abs(model.loss(tokens) - nats) < 1e-4
    assert sum(p.size for p in model.parameters().values()) > 1000
    assert model.evaluate("test", limit=4)["examples"] == 4
    for ignored in ({"lengths": [9, 9, 4]}, {"labels": [1, 2, 3]}):
        with pytest.raises(ValueError, match="no lengths and no labels"):
            model.loss(tokens, **ignored)
    for empty in (tokens[:, :1], tokens[:0]):
        with pytest.raises(ValueError, match="at least two tokens"):
            model.loss(empty)
    assert np.array_equal(model.logits(np.asfortranarray(tokens)), model.logits(tokens.astype(np.uint8)))


def test_sequences_are_generated(copy_run):
    model = tapeformer.load(copy_run[0])
    prompt = np.array([[1, 2, 3], [4, 5, 6]])
    first = model.generate(prompt, 10, seed=1)
    assert first.shape == (2, 10) and np.array_equal(first[:, :3], prompt)
    assert np.array_equal(first, model.generate(prompt, 10, seed=1, mode="recompute"))
    assert not np.array_equal(first, model.generate(prompt, 10, seed=2))
    for wrong in (257, -255):
        with pytest.raises(ValueError, match=str(wrong)):
            model.generate(np.array([[wrong, 2, 3]]), 10)
    with pytest.raises(ValueError, match="temperature"):
        model.generate(prompt, 10, temperature=-1.0)
    assert not np.array_equal(first, model.generate(prompt, 10, seed=(1 << 64) - 1))
    for name in ("seed", "top_k", "window", "length"):
        with pytest.raises(TypeError, match=f"{name} must be an integer, not float"):
            model.generate(prompt, **{"length": 10, name: 0.5})
        for wrong, text in ((-1, "at least 0, not -1"), (1 << 64, f"less than .*, not {1 << 64}")):
            with pytest.raises(ValueError, match=f"{name} must be {text}"):
                model.generate(prompt, **{"length": 10, name: wrong})
    with pytest.raises(ValueError, match="limit must be at least 0"):
        model.evaluate(limit=-1)


def test_text_is_generated_and_scored(text_run, program):
    model = tapeformer.load(text_run)
    text = model.generate("to be", 20, seed=3)
    assert len(model.encode(text)) == 20 and model.decode(model.encode("to be")) == "to be"
    assert model.generate("to be", 20, seed=3, mode="recompute", window=32) == text
    printed = subprocess.run(
        [program, "generate", text_run, "--prompt", "to be", "--length", "20", "--seed", "3", "--quiet"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert printed.stdout == "to be" + text + "\n"
    likely, unlikely = model.score(["to be or not to be", "qhtq sn,oi uebt tih"])
    assert likely["bits_per_byte"] < unlikely["bits_per_byte"] and likely["bytes"] == 19
    assert model.loss("to be or not to be") < model.loss("qhtq sn,oi uebt tih")
    with pytest.raises(tapeformer.ConfigError, match="translate|type"):
        model.translate(["a"])
    with pytest.raises(ValueError, match="empty"):
        model.generate("", 3)
    with pytest.raises(ValueError, match="length"):
        model.generate("to be", 0)
    with pytest.raises(ValueError, match="window"):
        model.generate("to be", 3, window=-1)
    with pytest.raises(TypeError, match="list of lines"):
        model.score("to be")


def test_an_imported_run_without_data_is_loaded(text_run, program, tmp_path):
    data = {"data.path": text_run.parent / "text.txt"}
    tapeformer.train(CONFIGS / "text/modern.toml", set={**SMALL, **data, "model.kv_heads": 1}, run_dir=tmp_path / "run")
    for command, source, target in (("export", "run", "exported"), ("import", "exported", "imported")):
        subprocess.run([program, command, tmp_path / source, tmp_path / target], check=True)
    model, trained = tapeformer.load(tmp_path / "imported"), tapeformer.load(tmp_path / "run")
    assert model.generate("to be", 5, seed=1) == trained.generate("to be", 5, seed=1)
    pytest.raises(tapeformer.ConfigError, model.evaluate).match("data.path")
    assert tapeformer.load(tmp_path / "imported", set=data).evaluate(limit=2)["examples"] == 2


def test_a_run_is_finetuned_on_prompts_with_adapters(text_run, tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "to be", "completion": " a question"}\n' * 40)
    config = text_run / "config.toml"
    settings = {
        "data.dataset": "prompts", "data.path": tmp_path / "prompts.jsonl", "model.init": text_run, "lora.rank": 4,
        "lora.targets": ["layers.*"], "optimizer.lr": 0.02, "train.steps": 100,
    }  # fmt: skip
    tapeformer.train(config, set=settings, run_dir=tmp_path / "run")
    base, tuned = tapeformer.load(text_run), tapeformer.load(tmp_path / "run")
    # The training scores the answers, and loss() the whole text.
    assert base.loss("to be a question") > 1.4 * tuned.loss("to be a question")
    assert set(base.parameters()) == set(tuned.parameters())
    with pytest.raises(tapeformer.ConfigError, match="train.freeze"):
        tapeformer.train(config, set={**settings, "train.freeze": ["nothing"]}, run_dir=tmp_path / "other")


def test_translation(translation_run):
    model = tapeformer.load(translation_run)
    lines = ["one two", "three"]
    texts = model.translate(lines)
    assert len(texts) == 2 and all(isinstance(text, str) for text in texts)
    best = model.translate(lines, n_best=2)
    assert best[0][0]["text"] == texts[0]
    assert all(a["score"] >= b["score"] for line in best for a, b in zip(line, line[1:]))
    scores = model.score(lines, ["uno dos", "tres"])
    assert all(score["log_probability"] < 0 for score in scores)
    with pytest.raises(ValueError):
        model.translate(lines, beam=2, n_best=3)
    for wrong in ({"n_best": -1}, {"max_length": -1}, {"length_penalty": float("nan")}):
        with pytest.raises(ValueError):
            model.translate(lines, **wrong)
    with pytest.raises(TypeError, match="list of lines"):
        model.translate("one two")
    with pytest.raises(ValueError, match="2 lines"):
        model.score(lines, ["uno"])


def test_classification(tmp_path):
    settings = {**SMALL, "train.steps": 2, "data.eval_limit": 4, "data.batch_size": 4}
    tapeformer.train(CONFIGS / "listops/softmax.toml", set=settings, run_dir=tmp_path / "run")
    model = tapeformer.load(tmp_path / "run")
    tokens, lengths = np.ones((2, 9), int), np.array([9, 4])
    logits = model.logits(tokens, lengths)
    assert logits.shape == (2, 10)
    alone = model.logits(tokens[1:, :4])
    assert np.allclose(logits[1], alone[0], atol=1e-5)
    assert model.loss(tokens, lengths, labels=np.array([3, 7])) > 0


def test_recordings_are_transcribed(tmp_path):
    if not (Path(os.environ.get("TAPEFORMER_DATA") or "none") / "fsdd").is_dir():
        pytest.skip("skipped: TAPEFORMER_DATA has no spoken digits")
    settings = {
        "model.layers": 1, "model.hidden": 8, "train.epochs": 1, "run.threads": 1, "data.limit": 20,
        "data.eval_limit": 5, "data.cmvn": "utterance",
    }  # fmt: skip
    tapeformer.train(CONFIGS / "speech/fsdd-bilstm.toml", set=settings, run_dir=tmp_path / "run")
    model = tapeformer.load(tmp_path / "run")
    samples = (np.random.default_rng(0).normal(size=8000) * 0.1).astype(np.float32)
    with wave.open(str(tmp_path / "one.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes((samples * 32768).round().astype("<i2").tobytes())
    phones = model.transcribe(tmp_path / "one.wav")
    assert isinstance(phones, list) and phones == model.transcribe(samples, 8000)
    samples[3] = np.nan
    with pytest.raises(ValueError, match="finite"):
        model.transcribe(samples, 8000)
    with pytest.raises(tapeformer.DataError, match="none.wav"):
        model.transcribe("none.wav")


def test_a_damaged_or_newer_run_raises(copy_run, tmp_path):
    import shutil

    damaged = tmp_path / "damaged"
    shutil.copytree(copy_run[0], damaged)
    weights = next(damaged.glob("checkpoints/step-*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises((tapeformer.CheckpointError, tapeformer.DataError), match="safetensors"):
        tapeformer.load(damaged)
    newer = tmp_path / "newer"
    shutil.copytree(copy_run[0], newer)
    with open(next(newer.glob("checkpoints/step-*/config.toml")), "a") as file:
        file.write("\n[future]\nkey = 1\n")
    with pytest.raises((tapeformer.ConfigError, tapeformer.CheckpointError), match="future|checksum"):
        tapeformer.load(newer)


def test_wrong_arrays_raise(copy_run):
    model = tapeformer.load(copy_run[0])
    for wrong in (np.zeros((2, 3), np.complex64), np.array(["a"]), np.zeros((1, 1, 1, 1, 1, 1, 1, 1), int)):
        with pytest.raises((TypeError, ValueError)):
            model.logits(wrong)
    with pytest.raises(ValueError, match="99"):
        model.logits(np.full((1, 3), 99))
    for wrong in (np.zeros((1, 3)), np.zeros((1, 3, 4), np.float32)):
        with pytest.raises(TypeError, match="takes tokens: expected integers, not floats"):
            model.logits(wrong)
    with pytest.raises(TypeError, match="expected integers, not float64"):
        model.loss(np.zeros((1, 3)))
    with pytest.raises(ValueError):
        model.logits(np.zeros((1, 1000), int))


def test_a_callback_that_raises_ends_the_training(tmp_path):
    def fail(record):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tapeformer.train(
            CONFIGS / "copy/linear.toml", set={**SMALL, "data.max_length": 12}, run_dir=tmp_path / "run",
            on_metrics=fail,
        )  # fmt: skip


def test_control_c_saves_a_checkpoint_and_the_run_resumes(tmp_path):
    settings = {**SMALL, "data.max_length": 12, "data.batch_size": 2, "data.eval_limit": 4, "train.log_every": 1}
    arguments = dict(run_dir=tmp_path / "run")

    def interrupt(record):
        if record["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tapeformer.train(CONFIGS / "copy/linear.toml", set=settings, on_metrics=interrupt, **arguments)
    result = tapeformer.train(CONFIGS / "copy/linear.toml", set=settings, resume=True, **arguments)
    assert result["step"] == 6 and result["metrics"][0]["step"] in (4, 5)
    with pytest.raises(tapeformer.ConfigError, match="resume=True"):
        tapeformer.train(CONFIGS / "copy/linear.toml", set=settings, **arguments)


def test_a_second_control_c_ends_the_training_but_not_the_interpreter(tmp_path):
    code = f"""if True:
        import signal, tapeformer
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def interrupt_twice(record):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

        arguments = dict(set={ {**SMALL, "data.max_length": 12, "data.eval_limit": 4} }, run_dir="run", resume=True)
        try:
            tapeformer.train({str(CONFIGS / "copy/linear.toml")!r}, on_metrics=interrupt_twice, **arguments)
        except KeyboardInterrupt:
            print(tapeformer.train({str(CONFIGS / "copy/linear.toml")!r}, **arguments)["step"])
        """
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout == "6\n", ended.stderr


@pytest.mark.parametrize("has_handler", [False, True])
def test_sigterm_has_its_effect_after_a_checkpoint(has_handler, tmp_path):
    code = f"""if True:
        import os, signal, tapeformer

        def stop(*_):
            raise SystemExit("stopped")

        if {has_handler}:
            signal.signal(signal.SIGTERM, stop)
        tapeformer.train(
            {str(CONFIGS / "copy/linear.toml")!r}, run_dir="run", set={ {**SMALL, "data.max_length": 12} },
            on_metrics=lambda record: os.kill(os.getpid(), signal.SIGTERM),
        )
        """
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == (1 if has_handler else -signal.SIGTERM), ended.stderr
    assert ended.stderr.endswith("stopped\n") == has_handler
    assert list((tmp_path / "run/checkpoints").glob("step-*"))


LONG_CALLS = {
    "generate": ("text_run", lambda model: model.generate("to be", 10_000_000)),
    "score": ("text_run", lambda model: model.score(["to be or not " * 500_000])),
    "evaluate": ("copy_run", lambda model: model.evaluate(limit=1_000_000)),
    "translate": ("translation_run", lambda model: model.translate(["one two three"] * 200_000)),
    "score pairs": ("translation_run", lambda model: model.score(["one two three"] * 200_000, ["uno dos"] * 200_000)),
}


@pytest.mark.parametrize("name", LONG_CALLS)
def test_control_c_ends_long_calls(name, request):
    fixture, call = LONG_CALLS[name]
    run = request.getfixturevalue(fixture)
    model = tapeformer.load(run[0] if fixture == "copy_run" else run)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    start = time.time()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        call(model)
    assert time.time() - start < 30


def test_exceptions_of_signal_handlers_end_long_calls(text_run):
    def raise_error(*_):
        raise TimeoutError("enough")

    model = tapeformer.load(text_run)
    previous = signal.signal(signal.SIGALRM, raise_error)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeoutError, match="enough"):
            model.generate("to be", 10_000_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_threads_that_compute_do_not_abort_the_end_of_the_interpreter(text_run):
    code = f"""if True:
        import threading, time, tapeformer
        model = tapeformer.load({str(text_run)!r})

        def generate():
            while True:
                model.generate("to be", 100)

        for _ in range(2):
            threading.Thread(target=generate, daemon=True).start()
        time.sleep(0.3)
        """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0 and not ended.stderr


def test_the_type_stub_declares_all_names_of_the_extension(tmp_path):
    pytest.importorskip("nanobind", reason="skipped: nanobind is not installed")
    folder, stub = Path(tapeformer._core.__file__).parent, tmp_path / "_core.pyi"
    arguments = ["-q", "-m", "_core", "-i", folder, "-o", stub]  # as in python/CMakeLists.txt
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", *arguments], check=True)
    nodes = ast.parse(stub.read_text()).body
    declared = {node.target.id if isinstance(node, ast.AnnAssign) else getattr(node, "name", "") for node in nodes}
    names = {name for name in dir(tapeformer._core) if not name.startswith("_")}
    assert len(names) > 20 and not names - declared


@pytest.mark.parametrize("name", ["tapeformer", "tapeformer.torch"])
def test_type_checkers_see_the_public_names(name):
    module = pytest.importorskip(name, reason="skipped: PyTorch is not installed")
    nodes = ast.parse(Path(module.__file__).read_text()).body
    (names,) = [ast.literal_eval(node.value) for node in nodes if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"]
    submodules = {x for x in dir(module) if getattr(module, x) in sys.modules.values()}
    assert names == sorted(names) and set(names) == {x for x in dir(module) if not x.startswith("_")} - submodules


def test_mypy_accepts_a_strict_program(tmp_path):
    pytest.importorskip("mypy", reason="skipped: mypy is not installed")
    pytest.importorskip("torch", reason="skipped: PyTorch is not installed")
    (tmp_path / "program.py").write_text("""if True:
        import tapeformer
        import tapeformer.torch as tt
        import torch

        def attend(x: torch.Tensor) -> torch.Tensor:
            out, state = tt.gated_linear_attention(tt.linear_attention(x, x, x, causal=True), x, x)
            layer = tt.AttentionLayer(tt.CausalLinearAttention(), 16, 2)
            masked: torch.Tensor = layer(x, x, x, tt.TriangularCausalMask(N=4), None, tt.LengthMask(torch.ones(2)))
            step = tt.RecurrentAttentionLayer(tt.RecurrentLinearAttention(), 16, 2)
            print(tt.FullMask(4, device="cpu").bool_matrix, step(x, x, x), tt.LinearState, masked)
            return tt.softmax_attention_step(x, x, x, None)[0] + out + state

        try:
            print(tapeformer.__version__, tapeformer.train(tapeformer.Config("quickstart"))["step"])
        except (tapeformer.ConfigError, tapeformer.DataError):
            print(tapeformer.load("runs/copy").translate(["a"]))
        """)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "program.py"]
    folder = str(Path(tapeformer.__file__).parents[1])
    # mypy finds an installed package itself, and refuses its folder as a path.
    environment = os.environ if folder in site.getsitepackages() else {**os.environ, "MYPYPATH": folder}
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_python_part_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import tapeformer; tapeformer.Config(set={'train.steps': 1})"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_extension_computes_on_the_openmp_threads_of_an_older_torch(tmp_path):
    find_library = """if True:
        import tapeformer
        print(*{line.split()[-1] for line in open("/proc/self/maps") if "/libgomp" in line})
        """
    found = subprocess.run([sys.executable, "-c", find_library], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    if len(found) != 1:
        pytest.skip("skipped: the installed PyTorch is older, or the build has another OpenMP library")
    library = tmp_path / "torch" / "lib" / "libgomp-12345678.so.1"  # both names of the library are changed there
    library.parent.mkdir(parents=True)
    (library.parents[1] / "__init__.py").touch()
    library.write_bytes(Path(found[0]).read_bytes().replace(b"\0libgomp.so.1\0", b"\0libgomp.so.9\0"))
    read_threads = f"""if True:
        import ctypes, tapeformer
        settings = {{**{SMALL!r}, "data.max_length": 12, "run.threads": 3}}
        library = ctypes.CDLL({str(library)!r})
        show = lambda record: print("threads:", library.omp_get_max_threads())
        tapeformer.train("copy/linear", set=settings, run_dir={str(tmp_path / "run")!r}, on_metrics=show)
        """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path[1:]])}
    command = [sys.executable, "-c", read_threads]
    assert "threads: 3" in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
