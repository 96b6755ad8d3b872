#!/usr/bin/env python3
"""Trains a character model of a text in plain PyTorch, with attention of Tapeformer. Usage: min_gpt.py [TEXT]"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import tapeformer.torch as tt

LENGTH, WIDTH, HEADS, LAYERS, STEPS = 256, 128, 4, 4, int(sys.argv[2]) if len(sys.argv) > 2 else 300


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).unbind(2)
        x = x + self.out(tt.softmax_attention(q, k, v, causal=True).flatten(2))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(characters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


torch.manual_seed(0)
text = open(sys.argv[1] if len(sys.argv) > 1 else __file__, encoding="utf-8").read()
characters = sorted(set(text))
data = torch.tensor([characters.index(c) for c in text])
model = Model(len(characters))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
start = time.time()
for step in range(1, STEPS + 1):
    first = torch.randint(len(data) - LENGTH, (8,))
    batch = torch.stack([data[i : i + LENGTH + 1] for i in first])
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == 1:
        print(f"step {step}: loss {loss.item():.3f} nats, {time.time() - start:.1f} s", flush=True)

tokens = data[None, :1]
with torch.no_grad():
    for _ in range(200):
        logits = model(tokens[:, -LENGTH:])[:, -1]
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], 1)
print("".join(characters[i] for i in tokens[0]))
