"""Tests that an installed wheel and PyTorch compute on one pool of threads, whichever is imported first. Needs both."""

import subprocess
import sys
import time

PROGRAM = """
import sys
for name in sys.argv[1].split(","):
    __import__(name)
import torch, tapeformer.torch as tt

print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if "gomp" in line}))
count_threads = lambda: sum(line.startswith("Threads:") and int(line.split()[1]) for line in open("/proc/self/status"))
torch.set_num_threads(3)
x = torch.randn(1, 2000, 4, 32, requires_grad=True)
before = count_threads()
torch.randn(1000, 1000).exp()
with_torch = count_threads()
tt.softmax_attention(x, x, x, causal=True).sum().backward()
after = count_threads()
print("threads at first, after PyTorch has computed, and after the wheel has computed:", before, with_torch, after)
assert before < with_torch == after
expected = torch.nn.functional.scaled_dot_product_attention(*[x.transpose(1, 2)] * 3, is_causal=True).transpose(1, 2)
assert torch.allclose(tt.softmax_attention(x, x, x, causal=True), expected, atol=1e-5)
"""

for order in ("tapeformer,torch", "torch,tapeformer", "tapeformer.torch", "numpy,tapeformer,torch"):
    start = time.monotonic()
    result = subprocess.run([sys.executable, "-c", PROGRAM, order], check=False)
    print(f"{order}: {'passed' if result.returncode == 0 else 'failed'}, {time.monotonic() - start:.1f} s", flush=True)
    if result.returncode != 0:
        sys.exit(1)
