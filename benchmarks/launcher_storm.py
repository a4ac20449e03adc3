"""Kill, stop, end and start the launchers of jobs at random moments, and see that each job goes on and ends well.

    python benchmarks/launcher_storm.py --events 200                             # all ranks start again
    python benchmarks/launcher_storm.py --events 200 --elastic                   # the others go on
    python benchmarks/launcher_storm.py --events 200 --elastic --meeting redis   # no node is needed, not even the first
    python benchmarks/launcher_storm.py --seed 17 --events 20                    # one job again
    python benchmarks/launcher_storm.py --times 20                               # how long until it is said who is lost

Each job begins with 2 to 4 launchers of one or two ranks, and meets with 20 events: a launcher is killed, or it and all
its processes, or it is stopped for up to 3 s or told to leave; a rank is killed; a launcher comes; and where launchers
meet on a server, that is killed and started again. Two fifths of the events follow the one before within a moment.
Then all launchers that are left must end well within a minute, with no wrong sum and no step lost. A seed stands for
what happens and when; to whom, depends on who is there by then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from elastic_company import PATIENCE_S
from elastic_storm import AT_ONCE, MOMENT_S, STOP_S, carry_out, look_through

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.core.node_launchers import free_pair
from tests.servers import EtcdServer, RedisServer, Server

HERE = Path(__file__).parent
#: How long after the event before each comes, in the mean; how many nodes there may be; and of how many ranks.
PAUSE_S, MOST, RANKS = 1.0, 5, (1, 1, 2)
KINDS = {"kill": 3, "kill all": 2, "stop": 2, "leave": 2, "kill a rank": 2, "join": 8}
SERVERS = {"redis": RedisServer, "etcd": EtcdServer}


class Node:
    """One launcher, and what it and its ranks have said.

    Attributes:
        said: Of its ranks, each a line of JSON.
        told: Its own lines, and when it has said each.
    """

    def __init__(self, name: str, command: list[str], env: dict[str, str]) -> None:
        self.name, self.said, self.told = name, list[dict[str, Any]](), list[tuple[float, str]]()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self._ears = [Thread(target=ear, daemon=True) for ear in (self._hear_ranks, self._hear_launcher)]
        for ear in self._ears:
            ear.start()

    def _hear_ranks(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):
                self.said.append(json.loads(line[line.index("{") :]))

    def _hear_launcher(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append((time.monotonic(), line.rstrip()))

    def is_there(self) -> bool:
        """Tell whether it has not ended."""
        return self.process.poll() is None

    def processes(self) -> list[int]:
        """Return the ids of its processes, the launcher's last."""
        found, unseen = [self.process.pid], [self.process.pid]
        while unseen:
            for path in Path(f"/proc/{unseen.pop()}/task").glob("*/children"):
                with suppress(OSError):
                    below = [int(pid) for pid in path.read_text().split()]
                    found += below
                    unseen += below
        return found[::-1]

    def ranks(self) -> list[int]:
        """Return the ids of the processes that are ranks."""
        found = []
        for pid in self.processes():
            with suppress(OSError):
                if b"\0RANK=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found

    def end(self) -> int:
        """Return how it ends, and when all of it has been heard."""
        code = self.process.wait(PATIENCE_S)
        for ear in self._ears:
            ear.join(PATIENCE_S)
        return code


class Storm:
    """One job in a storm.

    Args:
        seed: What happens.
        events: How many events there are.
        elastic: Whether ranks go on when a node is lost.
        meeting: Where launchers meet: at the `host` that is node 0, or on a server.
    """

    def __init__(self, seed: int, events: int, elastic: bool, meeting: str) -> None:
        self._seed, self._events, self._elastic, self._meeting = seed, events, elastic, meeting
        self._draw = random.Random(seed)
        self._all: list[Node] = []
        self._server: Server | None = None
        #: Launchers that are to go on again, and when.
        self._stopped: dict[Node, float] = {}
        self.happened: Counter[str] = Counter()

    def run(self) -> None:
        """Carry it out."""
        with self._job():
            self._meet_with_events()
            self._finish()

    def time(self, times: int) -> list[float]:
        """Return how long after a launcher is killed another one has named it, in a job that has time to recover."""
        with self._job():
            return [self._time_one() for _ in range(times)]

    @contextmanager
    def _job(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            self._folder = Path(folder)
            try:
                self._begin()
                yield
            except BaseException:
                self._print_all()
                raise
            finally:
                for node in self._all:
                    for pid in node.processes() if node.is_there() else ():
                        _kill(pid)
                if self._server is not None:
                    self._server.stop()

    # ------------------------------------------------------------------ the job

    def _begin(self) -> None:
        self._env = {**os.environ, "RANKWISE_SECRET_FILE": str(self._folder / "secret")}
        subprocess.run(
            [sys.executable, "-m", "rankwise", "secret", "new", str(self._folder / "secret")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if self._meeting == "host":
            self._endpoint = f"127.0.0.1:{free_pair()}"
        else:
            (self._folder / "server").mkdir()
            self._server = SERVERS[self._meeting](self._folder / "server")
            self._server.start()
            self._endpoint = self._server.url("storm")
        self._program = [str(HERE / "restarted_program.py"), str(self._folder)]
        if self._elastic:
            terms = {"finish": str(self._folder / "finish"), "tells": True, "wait_s": 20, "notice": 10}
            self._program = [str(HERE / "elastic_program.py"), json.dumps(terms)]
        count = self._draw.randint(2, 4)
        for _ in range(count):
            self._start()
        self._await(lambda: self._at_work(self._all[0]), "the first node works")

    def _start(self) -> None:
        words = [sys.executable, "-m", "rankwise", "run", "-n", str(self._draw.choice(RANKS)), "--nnodes", f"1:{MOST}"]
        words += ["--rdzv-endpoint", self._endpoint, "--max-restarts", "1000", "--join-timeout", str(int(PATIENCE_S))]
        words += ["--last-call", "0.3", "--grace", "10", *(["--elastic"] if self._elastic else [])]
        node = Node(f"launcher {len(self._all)}", [*words, *self._program], self._env)
        self._all.append(node)
        if len(self._all) == 1 and self._meeting == "host":  # so that it is node 0
            self._await(lambda: bool(node.processes()[1:]) or bool(node.told), "node 0 is there", must=False)

    def _time_one(self) -> float:
        while sum(node.is_there() for node in self._all) < 3:
            self._start()
        self._await(self._all_work, "all that have a place work")
        self._wait(2.0)
        node = [node for node in self._all if node.is_there()][-1]
        began, named = time.monotonic(), "its launcher was killed"
        node.process.kill()

        def said() -> list[float]:
            lines = [line for other in self._all for line in list(other.told)]
            return [at for at, line in lines if named in line and at >= began]

        self._await(said, "somebody names a launcher that was killed")
        return min(said()) - began

    def _at_work(self, node: Node) -> bool:
        return bool(node.said) if self._elastic else (self._folder / "saved").exists() and node.is_there()

    def _all_work(self) -> bool:
        there = [node for node in self._all if node.is_there()]
        return sum(bool(node.ranks()) for node in there) == min(len(there), MOST)

    def _finish(self) -> None:
        for node in list(self._stopped):
            self._go_on(node)
        self._await(self._all_work, "all that have a place work")
        left = [node for node in self._all if node.is_there()]
        (self._folder / "finish").touch()
        codes = {node.name: node.end() for node in left}
        assert {*codes.values()} <= {0, 128 + signal.SIGTERM}, f"launchers ended with {codes}"
        assert 0 in codes.values(), "no launcher has ended well"
        steps = {word["steps"] for node in left for word in node.said if "steps" in word}
        assert len(steps) == 1, f"ranks ended at the steps {steps}"
        if self._elastic:
            look_through(self._all)

    # ------------------------------------------------------------------ events

    def _meet_with_events(self) -> None:
        for number in range(self._events):
            self._draw = random.Random(f"event {number} of {self._seed}")
            at_once = self._draw.random() < AT_ONCE
            pause_s = self._draw.uniform(0.0, MOMENT_S) if at_once else self._draw.expovariate(1 / PAUSE_S)
            self._happen()
            self._wait(pause_s)

    def _happen(self) -> None:
        kinds = KINDS | ({"kill the server": 2} if self._server is not None else {})
        what = self._draw.choices([*kinds], [*kinds.values()])[0]
        there = [node for node in self._all if node.is_there() and node not in self._stopped]
        mortal = [node for node in there if node is not self._spared(there)]
        if what == "join" and len(there) < MOST + 1:
            self._start()
        elif what == "kill the server" and self._server is not None:
            self._server.stop()
            self._wait(self._draw.uniform(0.0, STOP_S))
            self._server.start()
        elif what in ("kill", "kill all", "stop", "leave", "kill a rank") and mortal:
            self._hit(self._draw.choice(mortal), what)
        else:
            return
        self.happened[what] += 1

    def _spared(self, there: list[Node]) -> Node | None:
        """Return a launcher that must live, as its ranks have the job's state, or it serves the store."""
        if self._meeting == "host":
            return self._all[0]
        at_work = [node for node in there if self._at_work(node)]
        newest = max((_last_epoch(node) for node in at_work), default=0)
        return next((node for node in reversed(at_work) if _last_epoch(node) == newest), there[0] if there else None)

    def _hit(self, node: Node, what: str) -> None:
        if what == "kill":
            node.process.kill()
        elif what == "kill all":
            for pid in node.processes():
                _kill(pid)
        elif what == "kill a rank":
            for pid in node.ranks()[:1]:
                _kill(pid)
        elif what == "leave":
            node.process.terminate()
        else:
            node.process.send_signal(signal.SIGSTOP)
            self._stopped[node] = time.monotonic() + self._draw.uniform(0.0, STOP_S)

    def _go_on(self, node: Node) -> None:
        del self._stopped[node]
        node.process.send_signal(signal.SIGCONT)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for node in [node for node, at in self._stopped.items() if at <= now]:
                self._go_on(node)
            time.sleep(min(0.01, until - now))

    def _await(self, condition: Any, text: str, must: bool = True) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until:
                assert not must, f"it never happened that {text}"
                return
            time.sleep(0.01)

    def _print_all(self) -> None:
        for node in self._all:
            print(f"\n{node.name}: {node.process.poll()}, its last word {node.said[-1:]}")
            for word in node.said:
                if "committed" not in word:
                    print(f"  {json.dumps(word)}")
            for at, line in node.told[-40:]:
                print(f"  {at:.2f} {line}")


def _last_epoch(node: Node) -> int:
    return next((word["summed_in"] for word in reversed(node.said) if "summed_in" in word), 0)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Carry out jobs until there were so many events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first job; each further one has the next")
    parser.add_argument("--elastic", action="store_true", help="the others go on when a node is lost")
    parser.add_argument("--meeting", choices=("host", *SERVERS), default="host", help="where launchers meet")
    parser.add_argument("--times", type=int, default=0, help="kill so many launchers, and time when they are named")
    options = parser.parse_args()
    os.environ.setdefault("RANKWISE_OUTAGE_LIMIT_S", "8")  # the servers do not tell when a launcher's connection ends
    if options.times:
        took = Storm(options.seed, 0, options.elastic, options.meeting).time(options.times)
        print(f"a launcher that was killed is named after {statistics.median(took):.2f} s, at most {max(took):.2f} s")
        return
    carry_out(options.events, options.seed, lambda seed, events: Storm(seed, events, options.elastic, options.meeting))


if __name__ == "__main__":
    main()
