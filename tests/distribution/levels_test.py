"""Tests that the dynamic loader selects the CPU kernels for the processor, and that all levels compute nearly equal losses.

The tunable glibc.cpu.hwcaps hides extensions of the processor from the dynamic loader.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

# For each level: its name, the extensions to hide from the loader, and an extension of the level that lower
# levels lack.
LEVELS = [
    ("x86-64-v2", "-AVX2,-AVX512F", "sse4.2"),
    ("x86-64-v3", "-AVX512F", "avx2"),
    ("x86-64-v4", "", "avx512vl"),
]
TOLERANCE = 1e-4  # the largest relative difference of losses between levels


def run(command, tunables=""):
    environment = dict(os.environ, GLIBC_TUNABLES=f"glibc.cpu.hwcaps={tunables}", OMP_WAIT_POLICY="passive")
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed ({done.returncode}):\n{done.stdout}{done.stderr}"
    return done.stdout


def losses_of_kernels(program, tunables):
    """Returns the level, its extensions and the losses that the program level_losses prints."""
    level, extensions, *models = run([program], tunables).splitlines()
    assert len(models) >= 3, models
    return level, extensions.split(), [float(loss) for model in models for loss in model.split()[1:]]


def losses_of_training(program, configs, folder, tunables):
    """Trains for a few steps with the hidden extensions. Returns the level of the kernels, its extensions and the losses."""
    info = json.loads(run([program, "info", "--json"], tunables))
    settings = ["train.steps=10", "train.log_every=1", "train.eval_every=0", "data.batch_size=2", "data.eval_limit=1",
                "model.layers=2", "model.heads=2", "model.head_dim=4", "model.feedforward=16"]
    words = [word for setting in settings for word in ("--set", setting)]
    run([program, "train", configs / "copy/linear.toml", "--run-dir", folder, "--threads", 2, "--device", "cpu", *words],
        tunables)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return info["cpu_kernels"], info["compiled_for"].split(), [line["loss_nats"] for line in lines if line["split"] == "train"]


def check(losses_at, optimized):
    """Calls losses_at(level, tunables) for each level that the processor supports, and compares the losses."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().replace("sse4_2", "sse4.2").split()
    losses = {}
    for level, tunables, extension in LEVELS:
        if extension not in flags:
            print(f"{level}: this processor does not support the level")
            continue
        selected, extensions, losses[level] = losses_at(level, tunables)
        assert selected == level, f"with {tunables or 'all extensions'}, the loader selects {selected} instead of {level}"
        for other, _, sign in LEVELS:
            assert (sign in extensions) == (other <= level), f"{level} is compiled for {extensions}"
        print(level, losses[level][-1])
    base = losses["x86-64-v2"]
    assert len(base) >= 10
    for level, others in losses.items():
        assert len(others) == len(base)
        for a, b in zip(base, others):
            assert abs(a - b) <= TOLERANCE * abs(a), f"{level}: loss {b}, but {a} at x86-64-v2"
    # From x86-64-v3 on, optimized code uses the fused multiply-add, which rounds differently. Equal losses
    # mean equal code.
    if optimized and "x86-64-v3" in losses:
        assert losses["x86-64-v3"] != base, "x86-64-v2 and x86-64-v3 run the same kernels"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--losses", type=pathlib.Path, help="the program level_losses")
    parser.add_argument("--build", type=pathlib.Path, help="a build folder, which is installed into a temporary folder")
    parser.add_argument("--configs", type=pathlib.Path, help="the folder configs of the repository")
    arguments = parser.parse_args()
    if arguments.losses:
        check(lambda level, tunables: losses_of_kernels(arguments.losses, tunables), optimized=False)
        return
    with tempfile.TemporaryDirectory() as folder:
        first, prefix = pathlib.Path(folder) / "first", pathlib.Path(folder) / "prefix"
        run(["cmake", "--install", arguments.build, "--prefix", first])
        first.rename(prefix)  # an installation must not depend on its path
        check(lambda level, tunables: losses_of_training(prefix / "bin/tapeformer", arguments.configs,
                                                         pathlib.Path(folder) / level, tunables),
              optimized=True)


main()
