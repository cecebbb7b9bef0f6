"""A line that tells what is going on: rewritten on a terminal, a line per step elsewhere."""

import os
import sys
import threading
import time


class Progress:
    """step() begins a step, detail() says more about it; say() prints something that stays.

    On a terminal the step, its time and its detail share one line that is rewritten four times a second. Elsewhere
    each step is printed once, when it begins, and details are left out.
    """

    def __init__(self, name, stream=sys.stderr):
        self._name = name
        self._stream = stream
        self._tty = stream.isatty()
        self._lock = threading.Lock()
        self._step = self._detail = ""
        self._begin = time.monotonic()
        self._running = False
        self._thread = None

    def __enter__(self):
        if self._tty:
            self._running = True
            self._thread = threading.Thread(target=self._rewrite, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._running = False
        if self._thread:
            self._thread.join()
        with self._lock:
            self._clear()

    def step(self, text):
        with self._lock:
            self._step, self._detail, self._begin = text, "", time.monotonic()
            if self._tty:
                self._draw()
            else:
                print(f"{self._name}: {text}", file=self._stream, flush=True)

    def detail(self, text):
        with self._lock:
            self._detail = text

    def say(self, text, file=sys.stdout):
        with self._lock:
            self._clear()
            print(text, file=file, flush=True)

    def _rewrite(self):
        while self._running:
            with self._lock:
                self._draw()
            time.sleep(0.25)

    def _clear(self):
        if self._tty:
            self._stream.write("\r\033[K")
            self._stream.flush()

    def _draw(self):
        if not self._step:
            return
        line = f"{self._name}: {self._step} ... {time.monotonic() - self._begin:.0f} s"
        if self._detail:
            line += f"  {self._detail}"
        try:
            width = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            width = 80
        self._stream.write("\r\033[K" + line[: width - 1])
        self._stream.flush()
