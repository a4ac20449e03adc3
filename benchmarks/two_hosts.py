"""Hosts that are network namespaces of this machine, on one network: for tests and benchmarks.

It needs root, `ip` and `tc`; `forbidden()` tells what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from functools import cache
from pathlib import Path
from types import TracebackType

_PATIENCE_S = 20


@cache
def forbidden() -> str:
    """Return why this machine permits no namespaces; empty if it does."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"there is no {' and no '.join(missing)} here"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Hosts(2):
            pass
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"
    return ""


@cache
def has_netem() -> bool:
    """Tell whether the kernel can delay and lose packets by itself."""
    with Hosts(1) as hosts:
        rules = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
        return subprocess.run(hosts.command(0, *rules), capture_output=True, timeout=_PATIENCE_S).returncode == 0


class Hosts:
    """Some hosts on one network, each a namespace with the interfaces `lo` and `eth0`.

    Args:
        count: How many hosts there are; two are joined directly.
        delay_ms: How long every packet takes, in each direction, between two hosts.
        loss_percent: How many of them are lost.
        middle: The program through which all packets of two hosts pass, as `slow_link.py` has it.
    """

    def __init__(
        self, count: int = 2, delay_ms: float = 0, loss_percent: float = 0, middle: Path | None = None
    ) -> None:
        self._slow = [str(delay_ms), str(loss_percent)] if delay_ms or loss_percent else []
        self._middle = middle
        self._relay: subprocess.Popen[str] | None = None
        key = uuid.uuid4().hex[:6]
        self.names = [f"rw{key}{index}" for index in range(count)]
        self.addresses = [f"10.77.0.{index + 1}" for index in range(count)]
        self.addresses6 = [f"fd77::{index + 1}" for index in range(count)]
        self._hub = f"rw{key}hub"

    def __enter__(self) -> Hosts:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def command(self, host: int, *words: str) -> list[str]:
        """Return the command line that runs `words` on a host."""
        return ["ip", "netns", "exec", self.names[host], *words]

    def limit(self, mbit_per_s: int) -> None:
        """Limit what leaves each host to so many megabits per second."""
        # A shorter burst is spent before a virtual machine's timer comes round, and the link idles.
        rules = f"rate {mbit_per_s}mbit burst 512kb latency 50ms"
        for host in range(len(self.names)):
            _do(*self.command(host, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *rules.split()))

    def control_congestion(self, algorithm: str) -> None:
        """Have what goes from host to host controlled by one of the system's algorithms."""
        for host, address in enumerate(self.addresses):
            route = f"10.77.0.0/24 dev eth0 proto kernel scope link src {address} congctl {algorithm}"
            _do(*self.command(host, "ip", "route", "replace", *route.split()))

    def part(self, host: int) -> None:
        """Cut a host off from the others."""
        _do(*self.command(host, "ip", "link", "set", "eth0", "down"))

    def join(self, host: int) -> None:
        """Let a host that was cut off reach the others again."""
        _do(*self.command(host, "ip", "link", "set", "eth0", "up"))

    def sever(self, here: int, there: int) -> None:
        """Have whatever one host sends to another be lost, without a word; the other direction is left as it is.

        It must be one of more than two hosts, all of which hear what goes to a machine that nobody is.
        """
        nobody = ["lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"]
        _do("ip", "-n", self.names[here], "neigh", "replace", self.addresses[there], *nobody)

    def mend(self, here: int, there: int) -> None:
        """Have what one host sends to another arrive again."""
        _do("ip", "-n", self.names[here], "neigh", "del", self.addresses[there], "dev", "eth0")

    def tell_middle(self, word: str) -> None:
        """Tell the program in the middle what to do from now on, and wait until it has heard."""
        assert self._relay is not None
        assert self._relay.stdin is not None
        assert self._relay.stdout is not None
        self._relay.stdin.write(f"{word}\n")
        self._relay.stdin.flush()
        self._relay.stdout.readline()

    def close(self) -> None:
        """Take everything away; the interfaces go with their namespaces."""
        if self._relay is not None:
            self._relay.kill()
            self._relay.communicate()
        for name in [*self.names, self._hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=_PATIENCE_S, check=False)

    def _build(self) -> None:
        for name in self.names:
            _do("ip", "netns", "add", name)
        if self._middle is not None or (self._slow and not has_netem()):
            program = self._middle or Path(__file__).with_name("slow_link.py")
            relay = [sys.executable, str(program), *self.names, *self._slow]
            self._relay = subprocess.Popen(relay, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self._relay.stdout is None or not self._relay.stdout.readline():
                raise RuntimeError("the program between the hosts did not come up")
        elif len(self.names) == 2:
            first, second = self.names
            _do(*f"ip -n {first} link add eth0 type veth peer name eth0 netns {second}".split())
        else:
            _do("ip", "netns", "add", self._hub)
            _do(*f"ip -n {self._hub} link add hub type bridge".split())
            _do(*f"ip -n {self._hub} link set hub up".split())
            for index, name in enumerate(self.names):
                _do(*f"ip -n {name} link add eth0 type veth peer name port{index} netns {self._hub}".split())
                _do(*f"ip -n {self._hub} link set port{index} master hub up".split())
        for name, address, address6 in zip(self.names, self.addresses, self.addresses6, strict=True):
            _do(*f"ip -n {name} address add {address}/24 dev eth0".split())
            _do(*f"ip -n {name} address add {address6}/64 dev eth0 nodad".split())
            _do(*f"ip -n {name} link set lo up".split())
            _do(*f"ip -n {name} link set eth0 up".split())
            if self._slow and self._relay is None:
                delay_ms, loss_percent = self._slow
                rules = f"netem delay {delay_ms}ms loss {loss_percent}% limit 100000"
                _do("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", *rules.split())


def _do(*words: str) -> None:
    subprocess.run(words, capture_output=True, text=True, check=True, timeout=_PATIENCE_S)
