"""Tests scripts/sass-report.py with a program that prints the output of cuobjdump for two kernels."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "sass-report.py"
SASS = """
	code for sm_90a
		Function : _ZN10tapeformer4cuda10add_kernelIfEEvPKT_
        /*0000*/                   LDC R1, c[0x0][0x28] ;                     /* 0x00000a00ff017b82 */
                                                                              /* 0x000e220000000800 */
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;           /* 0x1 */
        /*0020*/              @!P1 LDG.E.U16.CONSTANT R8, desc[UR4][R2.64] ;  /* 0x1 */
        /*0030*/                   LDG.E R9, desc[UR4][R2.64] ;               /* 0x1 */
        /*0040*/                   MUFU.EX2 R9, R9 ;                          /* 0x1 */
        /*0050*/               @P0 BRA 0x20 ;                                 /* 0x1 */
        /*0060*/               @P0 BRA 0x10 ;                                 /* 0x1 */
        /*0070*/                   EXIT ;                                     /* 0x1 */
        /*0080*/                   BRA 0x80 ;                                 /* 0x1 */
		Function : spilling_kernel
        /*0000*/                   STL [R1], R2 ;                             /* 0x1 */
        /*0010*/                   EXIT ;                                     /* 0x1 */
"""
USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function _ZN10tapeformer4cuda10add_kernelIfEEvPKT_:
  REG:40 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:536 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function spilling_kernel:
  REG:255 STACK:96 SHARED:0 LOCAL:0 CONSTANT[0]:536 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


class SassReport(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        folder = Path(self.folder.name)
        (folder / "sass").write_text(SASS)
        (folder / "usage").write_text(USAGE)
        self.tool = folder / "cuobjdump"
        self.tool.write_text(f'#!/bin/sh\ncase "$*" in *-sass*) cat {folder}/sass ;; *) cat {folder}/usage ;; esac\n')
        self.tool.chmod(0o755)

    def run_script(self, *options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-B", str(SCRIPT), "program", "--cuobjdump", str(self.tool), *options]
        return subprocess.run(command, capture_output=True, text=True)

    def test_reports_resources_and_the_instructions_of_the_largest_loop(self):
        add, spilling = json.loads(self.run_script("--json").stdout)
        self.assertEqual(add["name"], "add_kernel<float>")
        # 40 registers of 32 lanes are 1,280 registers per warp, of 65,536.
        self.assertEqual((add["registers"], add["stack_bytes"], add["warps"]), (40, 0, 51))
        self.assertEqual((add["instructions"], add["loop"]), (9, 6))
        self.assertEqual(add["loop_counts"], {"LDG.128": 1, "LDG.16": 1, "LDG.32": 1, "MUFU": 1})
        self.assertEqual((spilling["registers"], spilling["stack_bytes"], spilling["warps"]), (255, 96, 8))
        self.assertEqual((spilling["loop"], spilling["loop_counts"]), (0, {}))

    def test_kernels_above_the_largest_stack_frame_are_named(self):
        self.assertEqual(self.run_script("--max-stack", "96").returncode, 0)
        above = self.run_script("--max-stack", "95")
        self.assertEqual(above.returncode, 1)
        self.assertIn("spilling_kernel has a stack frame above 95 bytes", above.stderr)
        self.assertNotIn("add_kernel", above.stderr)

    def test_errors_name_what_is_missing(self):
        self.assertIn("no kernel has a name that contains 'scan'", self.run_script("--kernel", "scan").stderr)
        self.tool.write_text("#!/bin/sh\n")
        self.assertIn("program has no kernels for sm_90a", self.run_script().stderr)
        self.tool.write_text("#!/bin/sh\necho no device code >&2\nexit 255\n")
        self.assertIn("no device code", self.run_script().stderr)
        self.assertEqual(self.run_script().returncode, 1)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    unittest.main()
