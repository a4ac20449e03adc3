"""Hosts on which elastic jobs are tried: namespaces of this machine, whose first serves the job's store."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from two_hosts import Hosts

SERVER = """
import sys
import rankwise as dist

with dist.TCPStore("10.77.0.1", 0, is_master=True) as store:
    print(store.port, flush=True)
    sys.stdin.read()
"""
_PATIENCE_S = 20.0
#: Which part of the cuts between two hosts is in one direction.
_ONE_WAY = 0.3


class Network:
    """Some hosts, with a store on the first.

    Args:
        count: How many hosts there are.

    Attributes:
        url: Where the store is.
    """

    def __init__(self, count: int) -> None:
        self.hosts = Hosts(count)
        self._folder = tempfile.TemporaryDirectory()
        self._before = os.environ.get("RANKWISE_SECRET_FILE")

    def __enter__(self) -> Network:
        secret = Path(self._folder.name, "secret")
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
        os.environ["RANKWISE_SECRET_FILE"] = str(secret)
        self.hosts.__enter__()
        command = self.hosts.command(0, sys.executable, "-c", SERVER)
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        self.url = f"tcp://{self.hosts.addresses[0]}:{self._server.stdout.readline().strip()}"
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.communicate("", timeout=_PATIENCE_S)
        self.hosts.close()
        self._folder.cleanup()
        if self._before is None:
            del os.environ["RANKWISE_SECRET_FILE"]
        else:
            os.environ["RANKWISE_SECRET_FILE"] = self._before


class Weather:
    """What is wrong with a network: hosts that are cut off, and pairs of which the first does not reach the other.

    Args:
        hosts: The hosts; the first serves the store and is never cut off.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._count = len(hosts.names)
        self._cut_off: set[int] = set()
        self._severed: set[tuple[int, int]] = set()

    def cut_off(self, draw: random.Random, needed: set[int]) -> list[tuple[int, ...]]:
        """Cut a host off from all others, the store's too, but not the last that is needed; return what is wrong."""
        whole = [host for host in range(1, self._count) if host not in self._cut_off and needed - {host}]
        if not whole:
            return []
        host = draw.choice(whole)
        self._cut_off.add(host)
        self._hosts.part(host)
        return [(host,)]

    def cut_between(self, draw: random.Random) -> list[tuple[int, ...]]:
        """Cut two hosts from each other that both reach the store, in one direction or both; return what is wrong."""
        if self._count < 3:
            return []
        here, there = draw.sample(range(1, self._count), 2)
        return self.cut(here, there, draw.random() >= _ONE_WAY)

    def cut(self, here: int, there: int, both_ways: bool = True) -> list[tuple[int, ...]]:
        """Have one host not reach another; return what is wrong now."""
        pairs = [(here, there), (there, here)][: 1 + both_ways]
        new = [pair for pair in pairs if pair not in self._severed]
        for pair in new:
            self._severed.add(pair)
            self._sever(pair)
        return [*new]

    def is_cut_off(self, host: int) -> bool:
        """Tell whether a host is cut off."""
        return host in self._cut_off

    def heal(self, wrong: tuple[int, ...]) -> None:
        """Mend one of the things that are wrong."""
        if len(wrong) == 1:
            self._cut_off.remove(wrong[0])
            self._hosts.join(wrong[0])
            for pair in self._severed:  # which the system has forgotten
                if pair[0] == wrong[0]:
                    self._sever(pair)
        else:
            here, there = wrong
            self._severed.remove((here, there))
            if here not in self._cut_off:
                self._hosts.mend(here, there)

    def _sever(self, pair: tuple[int, int]) -> None:
        if pair[0] not in self._cut_off:
            self._hosts.sever(*pair)
