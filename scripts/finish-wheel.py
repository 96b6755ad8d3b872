#!/usr/bin/env python3
"""Completes a wheel that auditwheel has repaired, with files of this Debian system. Usage: finish-wheel.py WHEEL FOLDER

Adds libgomp under its own name, so that the loader uses the copy of PyTorch if PyTorch is imported first, and the licences of
the bundled libraries. Needs patchelf and the Python packages wheel and nanobind.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARIES = "tapeformer.libs"
COMPILED_IN = ["libcxxopts-dev", "libtomlplusplus-dev", "nlohmann-json3-dev"]  # packages of headers


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def find_package(library):
    """Returns the Debian package of a library, whose name auditwheel may have completed with a hash."""
    name = re.sub(r"-[0-9a-f]{8}(?=\.)", "", library)
    packages = {line.split(":")[0] for line in run("dpkg", "-S", f"*/{name}").splitlines()}
    if len(packages) != 1:
        sys.exit(f"finish-wheel: {name} is in several packages: {', '.join(sorted(packages))}")
    return packages.pop()


def add_libgomp(folder):
    """Copies libgomp, and lets the other libraries of the folder find it."""
    shutil.copy(Path(run("g++", "-print-file-name=libgomp.so.1").strip()).resolve(), folder / "libgomp.so.1")
    for library in folder.iterdir():
        if "libgomp.so.1" in run("patchelf", "--print-needed", str(library)).split():
            run("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", str(library))


def add_licences(libraries, folder):
    """Writes the licences of the bundled libraries, the texts that they name, and a list of the libraries."""
    folder.mkdir(parents=True)
    owners = {library.name: find_package(library.name) for library in libraries}
    lines = [f"{library} {package}" for library, package in sorted(owners.items())]
    texts = set()
    for package in {*owners.values(), *COMPILED_IN}:
        text = Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8", errors="replace")
        (folder / f"{package}.txt").write_text(text, encoding="utf-8")
        texts |= {name.rstrip(".") for name in re.findall(r"/usr/share/common-licenses/([\w.+-]+)", text)}
    for name in texts:
        shutil.copy(Path("/usr/share/common-licenses") / name, folder / name)
    licence = next(x for x in importlib.metadata.files("nanobind") if x.name == "LICENSE")
    shutil.copy(licence.locate(), folder / "nanobind.txt")
    versions = run("dpkg-query", "-W", "-f", "${Package} ${Version}\n", *sorted({*owners.values(), *COMPILED_IN}))
    list_text = "Bundled libraries and their Debian packages:\n\n{}\n\nVersions of the packages, and of packages whose headers are compiled in:\n\n{}"
    (folder / "list.txt").write_text(list_text.format("\n".join(lines), versions), encoding="utf-8")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: finish-wheel.py WHEEL FOLDER")
    with tempfile.TemporaryDirectory() as scratch:
        run(sys.executable, "-m", "wheel", "unpack", sys.argv[1], "--dest", scratch)
        (root,) = Path(scratch).iterdir()
        (information,) = root.glob("*.dist-info")
        add_libgomp(root / LIBRARIES)
        add_licences(list((root / LIBRARIES).iterdir()), information / "licenses" / "bundled")
        run(sys.executable, "-m", "wheel", "pack", str(root), "--dest-dir", sys.argv[2])


main()
