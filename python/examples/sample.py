#!/usr/bin/env python3
"""Loads a run of "tapeformer train" and samples from its model. Usage: sample.py RUN [PROMPT]"""

import sys

import numpy as np

import tapeformer

if len(sys.argv) < 2:
    sys.exit("usage: sample.py RUN [PROMPT]")
model = tapeformer.load(sys.argv[1])
print(f"{model.checkpoint}: step {model.step}, {sum(p.size for p in model.parameters().values())} parameters")
if "tokenizer" in model.config.to_toml():
    prompt = sys.argv[2] if len(sys.argv) > 2 else "\n"
    print(prompt + model.generate(prompt, 300, temperature=0.8, seed=1))
    print(f"{model.loss(prompt + 'the') :.3f} nats per token" if prompt.strip() else "")
else:
    print(model.generate(np.zeros((4, 1), int), seed=1))
