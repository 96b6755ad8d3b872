"""Runs the program with limits on time and memory, and checks the outcome of each run."""

import dataclasses
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import time
import unicodedata

MEBIBYTE = 1 << 20
DOCUMENTED = {0, 1, 2, 3, 4, 5, 75, 130}
RAW = re.compile(
    r"basic_string|filesystem error|\[json\.exception|std::|terminate called|vector::_M|_M_range|bad_alloc|what\(\)|"
    r"cxxopts|toml::|\bsto(i|l|d|ul|ll)\b|map::at|bad variant|bad_optional|regex_error|core dumped|basic_ios|"
    r"iostream error|an error in the program|invalid_argument|out_of_range|libgomp|Traceback|bad_function_call|Resource temporarily")
SANITIZER = re.compile(r"Sanitizer|runtime error:")
# Two failures of large cases are accepted. The OpenMP library cannot start thousands of threads within the memory
# limit. A sanitizer aborts the program if an allocation fails, where a build without sanitizers reports the failure.
NO_THREAD = re.compile(rb"libgomp: Thread creation failed")
# Messages of the OpenMP library about environment variables.
OPENMP = re.compile(rb"^libgomp: (?!Thread creation).*$", re.MULTILINE)
SANITIZED_MEMORY = re.compile(r"(Address|Thread)Sanitizer: (out of memory|allocation-size-too-big|requested allocation size)")
FORBIDDEN = set("\u2028\u2029\u200e\u200f\u061c") | {chr(c) for c in [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]}


@dataclasses.dataclass
class Case:
    """A call of the program in a separate folder."""
    arguments: list
    statuses: set  # accepted exit statuses
    prefix: list = dataclasses.field(default_factory=list)  # a command that runs instead of the program
    variables: dict = dataclasses.field(default_factory=dict)  # changes of the environment; None removes a variable
    stdin: bytes = b""
    # Whether the case may need much time or memory. If so, SIGINT at the time limit must end the program, and
    # the program must report allocations that exceed the memory limit.
    large: bool = False
    files: list = dataclasses.field(default_factory=list)  # paths of the changed files, for the report
    check: object = None  # after exit status 0: a function of the folder of the case that returns a list of problems
    feeder: object = None  # makes an object that writes standard input step by step (streams.Feeder)


@dataclasses.dataclass
class Outcome:
    status: int
    out: bytes
    err: bytes
    seconds: float
    peak: int  # peak memory in bytes
    interrupted: bool = False
    problems: list = dataclasses.field(default_factory=list)  # of the feeder


class Program:
    def __init__(self, path, seconds=20, memory=1 << 30):
        self.path = os.path.abspath(path)
        symbols = pathlib.Path(self.path).read_bytes()
        self.sanitized = b"__asan_init" in symbols or b"__tsan_init" in symbols
        self.seconds = seconds * (5 if self.sanitized else 1)
        self.memory = memory * (3 if self.sanitized else 1)

    def environment(self, folder):
        names = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(folder), "TMPDIR": str(folder)}
        proxy = "http://127.0.0.1:9"  # an address without a server, so that nothing is downloaded
        return names | {
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "https_proxy": proxy, "http_proxy": proxy,
            "ALL_PROXY": proxy, "LC_ALL": "C.UTF-8",
            "ASAN_OPTIONS": f"exitcode=99:allocator_may_return_null=1:max_allocation_size_mb={self.memory // MEBIBYTE}",
            "TSAN_OPTIONS": f"exitcode=99:allocator_may_return_null=1:max_allocation_size_mb={self.memory // MEBIBYTE}",
            "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=99",
        }

    def _limits(self, large):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not self.sanitized:
            # RLIMIT_AS would also count the files of libraries, which have 800 MB in a CUDA build.
            size = self.memory if large else 4 * self.memory
            resource.setrlimit(resource.RLIMIT_DATA, (size, size))

    def run(self, case, folder):
        """Runs a case in `folder` and returns the Outcome, with at most 16 MiB of each output."""
        names = self.environment(folder) | case.variables
        environment = {name: value for name, value in names.items() if value is not None}
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(case.stdin)
            given.seek(0)
            start = time.monotonic()
            feeder = case.feeder() if case.feeder else None
            child = subprocess.Popen([*(case.prefix or [self.path]), *case.arguments], cwd=folder,
                                     stdin=feeder.given if feeder else given, stdout=out,
                                     stderr=err, env=environment, preexec_fn=lambda: self._limits(case.large),
                                     start_new_session=True)
            if feeder:
                feeder.start(child.pid, out.fileno(), self.seconds / 2)
            status, peak, interrupted = self._wait(child.pid, start, case.large)
            child.returncode = status
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read(16 * MEBIBYTE))
            problems = feeder.finish() if feeder else []
            return Outcome(status, texts[0], texts[1], time.monotonic() - start, peak, interrupted, problems)

    def _wait(self, pid, start, large):
        interrupted = False
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            took = time.monotonic() - start
            if ended:
                return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, interrupted
            if took > self.seconds and large and not interrupted:
                os.kill(pid, signal.SIGINT)
                interrupted = True
            if took > self.seconds + (self.seconds / 2 if large else 0):
                os.killpg(pid, signal.SIGKILL)
            time.sleep(0.002 if took < 0.2 else 0.02)


def _text_problems(text, name):
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        return [f"{name} is not UTF-8: {error}"]
    problems = []
    bad = {c for c in decoded if (unicodedata.category(c) == "Cc" and c not in "\n\t") or c in FORBIDDEN}
    if bad:
        problems.append(f"{name} holds control characters: {sorted(map(repr, bad))}")
    if re.search(r"^forged:", decoded, re.MULTILINE):
        problems.append(f"{name} has a line that the input forged")
    if SANITIZER.search(decoded):
        problems.append(f"{name} holds a sanitizer report")
    elif found := RAW.search(decoded):
        problems.append(f"{name} holds raw library text: {found.group()}")
    return problems


READS_PIPES = ("bleu", "score", "translate")


def problems_of(case, outcome, program):
    """Returns the problems of the outcome of a case as a list of texts."""
    if program.sanitized and case.large and SANITIZED_MEMORY.search(outcome.err.decode(errors="replace")):
        return []
    if case.large and outcome.status == 1 and NO_THREAD.search(outcome.err):
        return []
    messages = OPENMP.sub(b"", outcome.err) if case.variables else outcome.err
    problems = _text_problems(outcome.out, "standard output") + _text_problems(messages, "standard error")
    status = outcome.status
    if outcome.interrupted:
        if status not in (75, 130, *case.statuses):
            problems.append(f"an interrupt at the time limit ended with status {status}")
    elif status == -signal.SIGKILL and case.arguments[0] in READS_PIPES and any(path.is_fifo() for path in case.files):
        pass  # it waits for somebody who writes
    elif status == -signal.SIGKILL:
        problems.append(f"hang: no end within {program.seconds} seconds")
    elif status not in case.statuses | ({1} if case.large else set()):
        problems.append(f"status {status}, expected one of {sorted(case.statuses)}"
                        + ("" if status in DOCUMENTED else "; it is not documented"))
    problems += outcome.problems
    if status > 0 and not messages.strip() and not outcome.interrupted and "--quiet" not in case.arguments:
        problems.append(f"status {status} without a message")
    if case.large and status == 1 and not re.search(rb"memory|cannot", outcome.err):
        problems.append("status 1 for another reason than memory or a failed write")
    if outcome.peak > program.memory:
        problems.append(f"{outcome.peak // MEBIBYTE} MiB of memory")
    prints_text = any(word.startswith(("--help", "-h", "--version")) for word in case.arguments)
    if (status == 0 or status == 130 and outcome.out) and "--json" in case.arguments and not prints_text:
        try:
            json.loads(outcome.out)
        except ValueError:
            problems.append("standard output is not one JSON object")
    return problems
