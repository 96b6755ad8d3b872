"""Compares reading a prompt and decoding by `tapeformer generate` and by llama-bench of llama.cpp, in turn, with the same weights.

RUN is an imported run. For each precision, GGUF files of it are written with `tapeformer export`. Prints one JSON object: medians of
tokens per second over the rounds, for a prompt of --prompt tokens, and for --length tokens that are drawn after it with batch 1.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

# The settings of `tapeformer generate`, and the type of the GGUF file.
FORMS = {
    "float32": (["--set", 'run.precision="float32"'], "float32"),
    "bfloat16": (["--set", 'run.precision="bfloat16"'], "bfloat16"),
    "int8": (["--weights", "int8"], "q8_0"),
}


def run(words, threads):
    environment = {**os.environ, "OMP_PROC_BIND": "true", "OMP_NUM_THREADS": str(threads)}
    return subprocess.run(words, capture_output=True, check=True, text=True, env=environment).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--program", default="build/release/tapeformer")
    parser.add_argument("--llama-bench", default="llama-bench", help="the program, or a command such as 'chroot DIR llama-bench'")
    parser.add_argument("--strip", default="", help="prefix of paths that llama-bench does not see")
    parser.add_argument("--folder", help="folder of the GGUF files; default: a temporary one")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = pathlib.Path(options.folder or tempfile.mkdtemp())
    text, results = folder / "prompt.txt", {}
    text.write_text("the " * options.prompt)
    for form in options.forms.split(","):
        settings, kind = FORMS[form]
        model = folder / f"model-{kind}.gguf"
        if not model.exists():
            run([options.program, "export", options.run, str(model), "--type", kind, "--quiet"], options.threads)
        figures = {"prompt": ([], []), "decoding": ([], [])}
        for _ in range(options.rounds):
            ours = json.loads(run([options.program, "generate", options.run, "--prompt-file", str(text), "--length",
                                   str(options.length), "--greedy", "--json", "--quiet", "--threads", str(options.threads), *settings],
                                  options.threads))
            figures["prompt"][0].append(ours["prompt_tokens"] / ours["prompt_seconds"])
            figures["decoding"][0].append(ours["tokens_per_second"])
            size = str(ours["prompt_tokens"])
            for figure, test in (("prompt", ["-p", size, "-n", "0"]), ("decoding", ["-p", "0", "-n", str(options.length), "-d", size])):
                theirs = json.loads(run([*options.llama_bench.split(), "-m", str(model).removeprefix(options.strip), *test, "-t",
                                         str(options.threads), "-r", "1", "-o", "json"], options.threads))
                figures[figure][1].append(theirs[0]["avg_ts"])
        results[form] = {name: {"tapeformer": round(statistics.median(a), 1), "llama.cpp": round(statistics.median(b), 1)}
                         for name, (a, b) in figures.items()}
        print(form, results[form], file=sys.stderr)
    print(json.dumps({"threads": options.threads, "rounds": options.rounds, **results}))


if __name__ == "__main__":
    main()
