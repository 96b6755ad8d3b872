"""Cases whose standard input is written step by step: lines with pauses, cut lines, NULs, other encodings and signals."""

import os
import signal
import socket
import threading
import time

from cases import copy, translate_options
from mutate import mutate_text, pick_text
from runner import Case

SIGNALS = [signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH]


class Hear(int):
    """A step that waits until the program has printed this number of lines."""


class Feeder:
    """Writes the steps of a case to the standard input of the program: bytes, pauses in seconds, signals and Hear."""

    def __init__(self, steps, form):
        self.steps, self.unanswered = steps, None
        if form == "socket":
            self.given, self.input = (end.detach() for end in socket.socketpair())
        else:
            self.given, self.input = os.pipe()
            if form == "non-blocking":
                os.set_blocking(self.given, False)

    def start(self, child, out, seconds):
        os.close(self.given)
        self.child, self.out, self.end = child, out, time.monotonic() + seconds
        self.thread = threading.Thread(target=self._feed, daemon=True)
        self.thread.start()

    def finish(self):
        """Returns the problems, after the program has ended."""
        self.thread.join()
        return [] if self.unanswered is None else [f"no answer to line {self.unanswered} while standard input is open"]

    def _has_ended(self):
        try:
            return os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _hear(self, count):
        while os.pread(self.out, 1 << 24, 0).count(b"\n") < count:
            if self._has_ended():
                return
            if time.monotonic() > self.end:
                self.unanswered = self.unanswered or int(count)
                return
            time.sleep(0.01)

    def _write(self, data):
        while data:
            data = data[os.write(self.input, data):]

    def _feed(self):
        try:
            for step in self.steps:
                if isinstance(step, bytes):
                    self._write(step)
                elif isinstance(step, Hear):
                    self._hear(step)
                elif isinstance(step, signal.Signals):
                    os.kill(self.child, step)
                else:
                    time.sleep(step)
        except OSError:  # the program has ended
            pass
        os.close(self.input)


def _cut(rng, data):
    """Returns the data in pieces, whose boundaries may divide characters, with pauses between them."""
    steps = []
    for _ in range(rng.choice([0, 1, 2])):
        size = rng.randrange(len(data) + 1)
        steps += [data[:size], rng.choice([0.001, 0.02])]
        data = data[size:]
    return [*steps, data]


def _odd_lines(rng, lines):
    """Returns bytes that follow the lines: changed lines, NULs, another encoding, or a long line."""
    choice = rng.randrange(6)
    text = rng.choice(lines)
    if choice == 0:
        return mutate_text(rng, text, lines[0])
    if choice == 1:
        size = rng.randrange(len(text))
        return text[:size] + b"\0" * rng.choice([1, 1, 2, 1000]) + text[size:]
    if choice == 2:
        return text.decode().encode(rng.choice(["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-16", "utf-8-sig"]))
    if choice == 3:
        return text.strip() * rng.choice([50, 3000])
    if choice == 4:
        return rng.choice([b"\n", b"\r\n", b"\r", b" \n", b"\xe3\x80\x80\n", b"\n" * 500])
    return pick_text(rng) + rng.choice([b"", b"\n"])


def _command(rng):
    """Returns arguments, the file of the clean lines, and the number of clean lines that are answered one by one."""
    choice = rng.randrange(6)
    if choice <= 2:
        options = translate_options(rng)
        answers = 0 if {"--json", "--n-best"} & set(options) else 1000
        return ["translate", "runs/pairs", *rng.choice([[], ["-"], ["/dev/stdin"]]), *options], "pairs/test.src", answers
    if choice == 3:
        options = rng.choice([[], ["--json"]])
        return ["score", "runs/pairs", "-", "pairs/test.tgt", *options], "pairs/test.src", 0 if options else 4
    if choice == 4:
        options = rng.choice([[], ["--json"]])
        return ["score", "runs/text", "-", *options], "text.txt", 0 if options else 1000
    return rng.choice([["bleu", "-", "pairs/test.tgt"], ["generate", "runs/text", "-", "--length", "3", "--json"]]), "pairs/test.tgt", 0


def streams(rng, base, folder):
    """Writes lines one at a time and waits for the answers, and then odd bytes or signals."""
    copy(base, folder, "pairs", "runs/pairs", "runs/text", "text.txt")
    arguments, name, answers = _command(rng)
    lines = [line for line in (base / name).read_bytes().splitlines(keepends=True) if line.strip()]
    steps, heard = [], 0
    for line in lines[:rng.choice([0, 1, 2, 4])]:
        steps += _cut(rng, line)
        heard += 1
        if heard <= answers:
            steps.append(Hear(heard))
        elif rng.random() < 0.5:
            steps.append(rng.choice([0.001, 0.1]))
    statuses = {0, 2, 3}
    if rng.random() < 0.6:
        for _ in range(rng.choice([1, 1, 3])):
            steps += _cut(rng, _odd_lines(rng, lines))
    if rng.random() < 0.4:
        chosen = rng.choice(SIGNALS)
        steps += [rng.choice([0.0, 0.3, 1.0, 1.0])] + [chosen] * rng.choice([1, 1, 2])
        # Without an answer, a signal can arrive before the program has handlers.
        statuses |= {130} | (set() if answers and heard else {-chosen})
    form = rng.choice(["pipe", "pipe", "socket", "non-blocking"])
    if "/dev/stdin" in arguments and form == "socket":
        form = "pipe"  # a socket has no path
    return Case(arguments, statuses, feeder=lambda: Feeder(steps, form))
