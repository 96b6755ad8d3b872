"""Tests the files of scripts/build-wheels.sh. Usage: wheel_test.py FOLDER [TEST…]. Needs readelf."""

import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

FOLDER = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else sys.exit(__doc__)
MEGABYTE = 1_000_000
NEWEST_OPENMP = 4.5  # version of symbols that GCC 6 and later have
SYSTEM_LIBRARIES = {  # those of the policy manylinux that every system has
    "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libresolv.so.2",
    "librt.so.1", "libstdc++.so.6", "libutil.so.1", "libz.so.1",
}  # fmt: skip
CORE = "tapeformer/lib/tapeformer/{}libtapeformer_core.so."
FILES = ["__init__.py", "_core.pyi", "bin/tapeformer", "configs/quickstart.toml", "py.typed", "torch/__init__.py"]


def read_dynamic(path):
    """Returns the needed libraries and the search paths of an ELF file."""
    text = subprocess.run(["readelf", "-dW", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", text)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text), [x for line in paths for x in line.split(":")]


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheels = sorted(FOLDER.glob("*.whl"))
        cls.scratch = tempfile.TemporaryDirectory()
        cls.roots = [Path(cls.scratch.name) / wheel.stem for wheel in cls.wheels]
        for wheel, root in zip(cls.wheels, cls.roots):
            zipfile.ZipFile(wheel).extractall(root)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def find_elf_files(self, root):
        def is_elf(path):
            with path.open("rb") as file:
                return file.read(4) == b"\x7fELF"

        return [x for x in root.rglob("*") if x.is_file() and is_elf(x)]

    def test_there_is_a_wheel_of_311_and_one_of_the_stable_abi(self):
        tags = [wheel.stem.split("-", 2)[2] for wheel in self.wheels]
        self.assertEqual([re.sub(r"_2_\d+_", "_2_N_", x) for x in tags],
                         ["cp311-cp311-manylinux_2_N_x86_64", "cp312-abi3-manylinux_2_N_x86_64"])  # fmt: skip
        self.assertTrue((self.roots[1] / "tapeformer" / "_core.abi3.so").exists())
        for tag in tags:
            self.assertLessEqual(int(re.search(r"_2_(\d+)_", tag)[1]), 36)

    def test_a_wheel_has_at_most_60_megabytes(self):
        for wheel in self.wheels:
            self.assertLessEqual(wheel.stat().st_size, 60 * MEGABYTE, wheel.name)

    def test_the_program_its_configs_and_the_kernels_of_all_levels_are_inside(self):
        for wheel in self.wheels:
            entries = {x.filename: x for x in zipfile.ZipFile(wheel).infolist()}
            for name in FILES:
                self.assertIn(f"tapeformer/{name}", entries)
            self.assertTrue(entries["tapeformer/bin/tapeformer"].external_attr >> 16 & 0o111)
            for level in ("", "glibc-hwcaps/x86-64-v3/", "glibc-hwcaps/x86-64-v4/"):
                self.assertEqual(sum(x.startswith(CORE.format(level)) for x in entries), 1, level)

    def test_all_libraries_are_found_inside_or_belong_to_every_system(self):
        for root in self.roots:
            for file in self.find_elf_files(root):
                needed, paths = read_dynamic(file)
                folders = []
                for path in paths:
                    self.assertTrue(path.startswith("$ORIGIN"), f"{file.name}: {path}")
                    folders.append(Path(path.replace("$ORIGIN", str(file.parent))))
                for library in set(needed) - SYSTEM_LIBRARIES:
                    self.assertTrue(any((x / library).exists() for x in folders), f"{file.name} needs {library}")

    def test_libgomp_has_the_name_that_pytorch_uses(self):
        for root in self.roots:
            names = [x.name for x in root.rglob("libgomp*") if x.suffix != ".txt"]
            self.assertEqual(names, ["libgomp.so.1"])

    def test_the_libraries_need_no_function_of_openmp_that_older_copies_of_pytorch_lack(self):
        for root in self.roots:
            for file in self.find_elf_files(root):
                if file.name == "libgomp.so.1":
                    continue
                text = subprocess.run(["readelf", "-VW", file], check=True, stdout=subprocess.PIPE, text=True).stdout
                for version in re.findall(r"Name: G?OMP_([\d.]+)", text):
                    self.assertLessEqual(float(version), NEWEST_OPENMP, file.name)

    def test_every_bundled_library_has_its_licence(self):
        for root in self.roots:
            (folder,) = root.glob("*.dist-info/licenses/bundled")
            owners = dict(re.findall(r"^(\S+\.so\S*) (\S+)$", (folder / "list.txt").read_text(), re.MULTILINE))
            self.assertEqual(set(owners), {x.name for x in (root / "tapeformer.libs").iterdir()})
            for package in {*owners.values(), "nanobind"}:
                self.assertTrue((folder / f"{package}.txt").stat().st_size > 100, package)

    def test_the_source_distribution_has_no_tests_and_no_builds(self):
        (archive,) = FOLDER.glob("*.tar.gz")
        names = [x.partition("/")[2] for x in tarfile.open(archive).getnames()]
        for name in ("CMakeLists.txt", "LICENSE", "PKG-INFO", "configs/quickstart.toml", "python/src/module.cpp"):
            self.assertIn(name, names)
        without_kit = [x for x in names if not x.startswith("tests/attention/")]  # which the program links
        self.assertFalse([x for x in without_kit if x.startswith(("build/", "dist/", "tests/", "."))])


unittest.main(verbosity=2)
