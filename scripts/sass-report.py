#!/usr/bin/env python3
"""Prints the resources and the instructions of the CUDA kernels in a program, a library or a cubin.

    scripts/sass-report.py build/release/tapeformer                        all kernels for sm_90a
    scripts/sass-report.py build/release/tapeformer --kernel softmax       kernels whose name contains "softmax"
    scripts/sass-report.py build/release/tapeformer --max-stack 0 --kernel linear    exit status 1 if one uses the stack

The columns are: registers per thread, bytes of the stack frame, resident warps per multiprocessor as far as registers
limit them, instructions, and the instructions of the largest loop. The last column counts some of the instructions in
this loop: loads from global memory by width (LDG.128 is 16 bytes), accesses to local memory (LDL, STL), which are
spilled registers or arrays, accesses to shared memory (LDS, STS), loads of matrices from shared memory (LDSM),
asynchronous copies to shared memory (LDGSTS), matrix products of tensor cores (HMMA) and special functions (MUFU). The
counts are static: each instruction counts once, also in branches that are rarely taken.

The script needs cuobjdump of the CUDA toolkit, in PATH or by --cuobjdump.
"""

import argparse
import collections
import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field

# Registers per multiprocessor, granularity of a warp's registers, and largest number of resident warps, of all
# architectures from 8.0 to 10.0 except for the warps of 8.6 and 8.9 (CUDA C++ Programming Guide, table of compute
# capabilities).
REGISTERS, GRANULARITY, WARP = 65536, 256, 32
MAX_WARPS = collections.defaultdict(lambda: 64, sm_86=48, sm_89=48)
COUNTED = ("LDL", "STL", "LDS", "STS", "LDSM", "LDGSTS", "HMMA", "MUFU")


@dataclass
class Kernel:
    """Resources and instruction counts of a kernel. `loop` is the number of instructions in the largest loop."""

    name: str
    registers: int = 0
    stack_bytes: int = 0
    warps: int = 0
    instructions: int = 0
    loop: int = 0
    loop_counts: dict = field(default_factory=dict)


def short_name(name: str) -> str:
    """Returns a demangled name without namespaces, return type and parameters."""
    name = re.sub(r"tapeformer::|cuda::|\(anonymous namespace\)::|^void ", "", name)
    depth = 0
    for i in reversed(range(len(name))):  # the parameters are the last parentheses
        depth += (name[i] == ")") - (name[i] == "(")
        if depth == 0:
            return name[:i] if name[i] == "(" else name
    return name


def output_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def opcode_of(instruction: str) -> str:
    """Returns the opcode of an instruction such as "@!P0 BRA 0x120" with its modifiers."""
    words = instruction.split()
    return words[1] if words[0].startswith("@") and len(words) > 1 else words[0]


def counted_as(opcode: str) -> str | None:
    """Returns the name under which an opcode is counted, or None."""
    parts = opcode.split(".")
    if parts[0] == "LDG":
        width = next((p for p in parts[1:] if p in ("128", "64", "U16", "S16", "U8", "S8")), "32")
        return "LDG." + width.lstrip("US")
    return parts[0] if parts[0] in COUNTED else None


def largest_loop(instructions: list[tuple[int, str]]) -> list[str]:
    """Returns the instructions between the target of a backward branch and the branch, for the longest such range."""
    begin, end = 0, -1
    for address, text in instructions:
        target = re.search(r"\bBRA\S*\s.*?0x([0-9a-f]+)", text)
        if target and int(target[1], 16) < address and address - int(target[1], 16) > end - begin:
            begin, end = int(target[1], 16), address
    return [text for address, text in instructions if begin <= address <= end]


def read_instructions(sass: str) -> dict[str, list[tuple[int, str]]]:
    """Returns the addresses and texts of the instructions of each function in the output of cuobjdump -sass."""
    functions, current = {}, None
    for line in sass.splitlines():
        if header := re.search(r"Function : (\S+)", line):
            current = functions.setdefault(header[1], [])
        elif current is not None and (found := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)):
            current.append((int(found[1], 16), found[2]))
    return functions


def read_kernels(program: str, arch: str, cuobjdump: str) -> list[Kernel]:
    functions = read_instructions(output_of([cuobjdump, "-arch", arch, "-sass", program]))
    if not functions:
        raise SystemExit(f"error: {program} has no kernels for {arch}")
    usage = output_of([cuobjdump, "-arch", arch, "-res-usage", program])
    resources = dict(re.findall(r"Function (\S+):\s+(REG:\d+ STACK:\d+)", usage))
    names = subprocess.run(["c++filt"], input="\n".join(functions), capture_output=True, text=True).stdout.splitlines()
    kernels = []
    for (mangled, instructions), name in zip(functions.items(), names or functions):
        registers, stack = map(int, re.findall(r"\d+", resources.get(mangled, "REG:0 STACK:0")))
        per_warp = max(-(-registers * WARP // GRANULARITY) * GRANULARITY, GRANULARITY)
        loop = largest_loop(instructions)
        counts = collections.Counter(filter(None, (counted_as(opcode_of(text)) for text in loop)))
        warps = min(REGISTERS // per_warp, MAX_WARPS[arch])
        kernels.append(
            Kernel(short_name(name), registers, stack, warps, len(instructions), len(loop), dict(sorted(counts.items())))
        )
    return sorted(kernels, key=lambda kernel: kernel.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--kernel", default="", help="a part of the names of the kernels to print")
    parser.add_argument("--max-stack", type=int, help="largest stack frame in bytes; kernels above it are named")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.cuobjdump:
        raise SystemExit("error: cuobjdump is not in PATH; it is part of the CUDA toolkit")
    kernels = [k for k in read_kernels(options.program, options.arch, options.cuobjdump) if options.kernel in k.name]
    if not kernels:
        raise SystemExit(f"error: no kernel has a name that contains {options.kernel!r}")
    if options.json:
        print(json.dumps([asdict(kernel) for kernel in kernels], indent=1))
    else:
        print("registers  stack  warps  instructions  loop  kernel and counts of the loop")
        for k in kernels:
            counts = ", ".join(f"{name} {count}" for name, count in k.loop_counts.items())
            print(f"{k.registers:9}  {k.stack_bytes:5}  {k.warps:5}  {k.instructions:12}  {k.loop:4}  {k.name}: {counts}")
    limit = options.max_stack
    above = [k.name for k in kernels if limit is not None and k.stack_bytes > limit]
    for name in above:
        print(f"error: {name} has a stack frame above {limit} bytes", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
