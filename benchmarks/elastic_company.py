"""Processes that come and go at the word of a test or benchmark: it starts, shoots, stops and hears them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import rankwise as dist

PROGRAM = Path(__file__).with_name("elastic_program.py")
#: How long a test waits for a word; on a busy machine a process takes a while to begin.
PATIENCE_S = 60.0


def opened(url: str) -> dist.Store:
    """Return the store at a URL, for a process that has no rank yet."""
    scheme, _, place = url.partition("://")
    if scheme == "tcp":
        host, _, port = place.partition(":")
        return dist.TCPStore(host, int(port), timeout=timedelta(seconds=PATIENCE_S))
    from rankwise_stores import EtcdStore, RedisStore

    return (EtcdStore if scheme == "etcd" else RedisStore)(url, timeout=PATIENCE_S)


class Member:
    """One process, and what it has said: a line of JSON at a time."""

    def __init__(self, name: str, command: list[str], env: dict[str, str]) -> None:
        self.name, self.said = name, []
        self._words: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
        self._ear = Thread(target=self._listen, daemon=True)
        self._ear.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._words.put(json.loads(line))
        self._words.put(None)

    def hear(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first word from now on that is wanted."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                word = self._words.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                raise AssertionError(f"{self.name} has not said it; it said {self.said[-5:]}") from None
            if word is None:
                raise AssertionError(f"{self.name} has ended ({self.process.wait()}); it said {self.said[-5:]}")
            self.said.append(word)
            if wanted(word):
                return word

    def last_epoch(self) -> int:
        """Return the last epoch that it has begun, as far as it has said so; 0 if none."""
        with suppress(Empty):
            while (word := self._words.get_nowait()) is not None:
                self.said.append(word)
            self._words.put(None)
        return next((word["summed_in"] for word in reversed(self.said) if "summed_in" in word), 0)

    def hear_all(self) -> None:
        """Take in what it has said before it ended."""
        while (word := self._words.get(timeout=PATIENCE_S)) is not None:
            self.said.append(word)

    def hear_epoch(self, size: int) -> dict[str, Any]:
        """Return its word about the next epoch of so many members."""
        return self.hear(lambda word: word.get("size") == size)

    def hear_last_size(self, size: int) -> None:
        """Return once the last epoch that it has told of has so many members."""
        told = [word for word in self.said if "size" in word]
        if not told or told[-1]["size"] != size:
            self.hear_epoch(size)

    def hear_end(self) -> dict[str, Any]:
        """Return its last word, once it has ended well."""
        word = self.hear(lambda word: "steps" in word)
        assert self.process.wait(PATIENCE_S) == 0
        return word

    def end(self) -> None:
        """Kill it, if it is still there."""
        self.process.kill()
        self.process.wait()
        self._ear.join()

    def live_for(self, seconds: float) -> None:
        """Kill it after so long, wherever it is then."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.process.kill()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)


class Company:
    """A job: a store, and processes that meet there.

    Args:
        size: How many processes there are at first.
        url: Where they meet; a `TCPStore` of this process if empty.
        command: What makes a command of one that runs on a host, given its number; None where there is but one.
        hosts: The hosts on which the first processes are, in turn.
        **terms: What the program goes by, see there.
    """

    def __init__(
        self,
        size: int,
        url: str = "",
        command: Callable[..., list[str]] | None = None,
        hosts: Sequence[int] = (0, 1),
        **terms: Any,
    ) -> None:
        self._store: dist.Store | None = None
        if not url:
            store = self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=PATIENCE_S))
            url = f"tcp://127.0.0.1:{store.port}"
        self._folder = tempfile.TemporaryDirectory()
        self._finish = Path(self._folder.name, "finish")
        self._size, self._command = size, command
        self._terms = {"url": url, "finish": str(self._finish), **terms}
        self.all: list[Member] = []
        self.members = [self.start(rank, host=hosts[rank % len(hosts)]) for rank in range(size)]

    def start(self, rank: int = -1, host: int = 0, **terms: Any) -> Member:
        """Start a process."""
        place = {"rank": rank, "size": self._size}
        command = [sys.executable, str(PROGRAM), json.dumps({**self._terms, **place, **terms})]
        env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
        member = Member(f"process {len(self.all)}", self._command(host, *command) if self._command else command, env)
        self.all.append(member)
        return member

    def finish(self) -> None:
        """Have the program end at its next step."""
        self._finish.touch()

    def __enter__(self) -> Company:
        return self

    def __exit__(self, *exception: object) -> None:
        for member in self.all:
            member.end()
        if self._store is not None:
            self._store.close()
        self._folder.cleanup()
