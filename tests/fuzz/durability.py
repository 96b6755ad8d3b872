"""Tests that a training continued after a signal or a full disk ends with the weights of an undisturbed training."""

import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import time

from inputs import config_text

STEPS = 300
STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]
LOST = {-signal.SIGKILL, *(-stop for stop in STOPS), 75, 130}


class Training:
    """Runs trainings of one config in separate run directories and compares their final checkpoints with a reference."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        (self.folder / "config.toml").write_text(config_text("copy").replace("steps = 2", f"steps = {STEPS}").replace(
            "checkpoint_every = 1", "checkpoint_every = 10"))
        start = time.monotonic()
        status, text = self.finish(self.start("reference"))
        if status != 0:
            raise RuntimeError(f"the reference training failed: {text}")
        self.seconds = time.monotonic() - start
        self.expected = self.result("reference")

    def start(self, run, file_bytes=None):
        def limit():
            if file_bytes is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        return subprocess.Popen(
            [self.program.path, "train", "config.toml", "--run-dir", str(run), "--resume", "--quiet",
             "--set", "data.batch_size=8"], cwd=self.folder,
            env=self.program.environment(self.folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            preexec_fn=limit, restore_signals=False)

    def finish(self, child):
        """Returns the exit status and the standard error."""
        try:
            text = child.communicate(timeout=10 * self.program.seconds)[1]
        except subprocess.TimeoutExpired:
            child.kill()
            return -signal.SIGKILL, "hang: no end within the time limit"
        return child.returncode, text.decode(errors="replace").strip()

    def result(self, run):
        latest = self.folder / run / "checkpoints" / "latest"
        return [(latest / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]

    def problem_at_end(self, run):
        """Continues the run to its end. Returns a description of the first problem, or None."""
        status, text = self.finish(self.start(run))
        if status != 0:
            return f"continuing ended with status {status}: {text}"
        if self.result(run) != self.expected:
            return "the final weights differ from the weights of an undisturbed training"
        left = [p.name for p in (self.folder / run / "checkpoints").iterdir() if "tmp" in p.name or "part" in p.name]
        return f"unfinished files were left: {left}" if left else None


def _kill_once(training, rng, run):
    child = training.start(run)
    time.sleep(rng.uniform(0, 1.1 * training.seconds))
    sent = rng.choice([signal.SIGKILL, signal.SIGKILL, *STOPS])
    child.send_signal(sent)
    status, text = training.finish(child)
    if status not in LOST | {0}:
        return f"signal {sent.name} ended the training with status {status}: {text}"
    return None


def kills(program, folder, seed, count, report):
    """Sends `count` signals at random moments, up to four to each run. Returns the number of runs with a problem."""
    training = Training(program, folder)
    findings, done, case = 0, 0, 0
    while done < count:
        rng, run = random.Random(f"{seed}/kill/{case}"), f"run-{case}"
        problem = None
        for _ in range(min(rng.randint(1, 4), count - done)):
            problem = problem or _kill_once(training, rng, run)
            done += 1
        problem = problem or training.problem_at_end(run)
        if problem:
            report(f"seed {seed}, killed run {case}: {problem}")
            findings += 1
        else:
            shutil.rmtree(training.folder / run)
        case += 1
    return findings


def _mount(folder, kilobytes, options=""):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", f"{options}size={kilobytes}k,nr_inodes=1000", "tmpfs", folder],
                          capture_output=True).returncode == 0


def _check_full(training, run, child):
    """Waits for a training. It must end with status 0, or with 1 and a reason, and its checkpoint must be valid.

    Returns a description of the first problem, or None.
    """
    status, text = training.finish(child)
    if status not in (0, 1):
        return f"status {status}: {text}"
    if status == 1 and "cannot" not in text:
        return f"status 1 without the reason: {text}"
    if (training.folder / run / "checkpoints" / "latest").exists():
        words = [training.program.path, "eval", str(run), "--limit", "2", "--quiet"]
        done = subprocess.run(words, cwd=training.folder, env=training.program.environment(training.folder),
                              capture_output=True)
        if done.returncode != 0:
            return f"the last checkpoint cannot be evaluated: {done.stderr.decode(errors='replace')}"
    return None


def full_disks(program, folder, seed, count, report):
    """Trains on `count` small disks, then enlarges the disks and continues. Returns the number of runs with a problem.

    Without the right to mount disks, limits the size of files instead.
    """
    training = Training(program, folder)
    needed = sum(p.stat().st_size for p in (training.folder / "reference").rglob("*") if p.is_file()) // 1024
    rooted = os.geteuid() == 0
    findings = 0
    for case in range(count):
        rng, disk = random.Random(f"{seed}/disk/{case}"), training.folder / f"disk-{case}"
        disk.mkdir()
        run = f"disk-{case}/run"
        kilobytes = rng.randint(8, max(9, int(1.1 * needed)))
        mounted = rooted and _mount(disk, kilobytes)
        if case == 0 and not mounted:
            report("no tmpfs can be mounted: files are limited in size instead")
        try:
            largest = len(training.expected[1])
            child = training.start(run, None if mounted else rng.randint(0, largest))
            problem = _check_full(training, run, child)
            if mounted:
                subprocess.run(["mount", "-o", "remount,size=1g", str(disk)], check=True)
            problem = problem or training.problem_at_end(run)
        finally:
            if mounted:
                subprocess.run(["umount", "-l", str(disk)], check=True)
        if problem:
            report(f"seed {seed}, full disk {case} of {kilobytes} KiB: {problem}")
            findings += 1
        shutil.rmtree(disk, ignore_errors=True)
    return findings
