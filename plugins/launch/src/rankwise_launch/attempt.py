"""One attempt at a job: all ranks of this node from their start to the end of the last one, in one event loop.

There are no threads here but that of the ranks' store, so nothing is ever half done when a signal comes.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rankwise.launching import DebugLevel, get_debug_level
from rankwise_launch.config import LaunchConfig
from rankwise_launch.dead import Dead
from rankwise_launch.environment import Layout, rank_environment
from rankwise_launch.event_loop import EventLoop
from rankwise_launch.failures import culprit, exit_code, is_consequence, named, summary
from rankwise_launch.guarding import Guard
from rankwise_launch.interrupts import ENDING, SUSPENDING, Interrupts
from rankwise_launch.job_store import JobStore
from rankwise_launch.outcome import Outcome
from rankwise_launch.output import Console
from rankwise_launch.preloading import Preloaded
from rankwise_launch.server_store import ServerStore
from rankwise_launch.verdict import Verdict
from rankwise_launch.verdicts import Verdicts
from rankwise_launch.worker import Worker, command_line, program

#: After a failure the others have so long to fall over that too, and to say so; then they get SIGTERM, later SIGKILL.
_LAST_WORDS_S = 0.5
_STOP_GRACE_S = 0.5
#: A rank that fell over because another was gone may be noticed before that other is.
_ROOT_CAUSE_S = 0.3
#: For so long other ranks can read how one has ended, which they notice when the launcher does.
_READABLE_S = 0.5
#: What ranks have started and left running may end by itself for so long, then gets SIGTERM, then SIGKILL.
_LEFTOVER_S = 0.5
#: If a rank has ended well and others run on for so long, that is told: they may be waiting for it.
_REMARK_S = 5.0
#: If ranks have run for so long, they may be Python programs that load rankwise: then the launcher loads it too.
_LOAD_S = 0.1
#: How often to look where the system cannot tell of a process's end.
_LOOK_S = 0.02


class Attempt:
    """Starts the ranks and sees them through."""

    def __init__(
        self,
        config: LaunchConfig,
        layout: Layout,
        console: Console,
        guard: Guard,
        interrupts: Interrupts,
        verdicts: Verdicts | None,
        log_dir: Path | None,
        preloaded: Preloaded | None = None,
        store: JobStore | ServerStore | None = None,
    ) -> None:
        self._config, self._layout, self._console = config, layout, console
        self._guard, self._interrupts, self._verdicts = guard, interrupts, verdicts
        self._log_dir, self._preloaded, self._store = log_dir, preloaded, store
        self._workers: list[Worker] = []
        #: Ranks that others have replaced, as long as something of them is left.
        self._replaced: list[Worker] = []
        self._secret_fd = -1
        #: The local ranks that are still to be started.
        self._unstarted = range(config.nproc_per_node)
        self._loop = EventLoop()
        self._seen_signals = len(interrupts.received)
        self._failure_seen = self._failure_told = self._winding_down = False
        self._polled = self._one_is_done = self._passed_on = False
        #: What is read again when the reader of our own output has caught up; what waits for that reader.
        self._held: dict[int, Callable[[], None]] = {}
        self._unwritten: set[int] = set()
        self._interrupted: int | None = None
        self._elsewhere: Verdict | None = None
        #: The signal by which this node leaves the job, which goes on.
        self._leaving = ""

    def run(self, secret_fd: int) -> Outcome:
        """Run all ranks to their end; nothing that they have started is left when this returns.

        Raises:
            LaunchError: A rank could not be started; those that had been are gone.
        """
        self._secret_fd = secret_fd
        try:
            self._loop.watch(self._interrupts.fileno(), self._on_signal)
            if self._verdicts is not None:
                self._loop.watch(self._verdicts.fileno(), self._on_word)
            while not self._over():
                if self._unstarted:
                    self._start_next()
                self._step()
        finally:
            self._kill_all()
            self._loop.close()
        return self._outcome()

    def _outcome(self) -> Outcome:
        if self._elsewhere is None and self._verdicts is not None:
            self._elsewhere = self._verdicts.current  # which may be news
        return Outcome(culprit(self._workers), self._elsewhere, self._interrupted, self._workers)

    # ------------------------------------------------------------------ starting

    def _start_next(self) -> None:
        local_rank, self._unstarted = self._unstarted[0], self._unstarted[1:]
        self._start(local_rank, self._layout)
        if isinstance(self._store, JobStore) and self._store.is_awaited():
            self._store.serve()  # forked ranks are so quick that the first would wait for the last
        if isinstance(self._store, JobStore) and not self._unstarted and not self._store.is_served:
            self._loop.watch(self._store.fileno(), partial(self._serve, self._store, self._store.fileno()))
            self._loop.after(_LOAD_S, self._store.load)

    def _start_no_more(self) -> None:
        self._unstarted = range(0)

    def _start(self, local_rank: int, layout: Layout) -> Worker:
        worker = Worker(layout.first_rank + local_rank, local_rank, self._rank_log_dir(local_rank))
        # One reader of the terminal is enough; the others would take the input from each other.
        stdin = None if worker.rank == 0 else subprocess.DEVNULL
        environment = rank_environment(self._config, layout, local_rank, self._secret_fd)
        if self._preloaded is None:
            worker.start(command_line(self._config, local_rank), environment, (self._secret_fd,), stdin)
        else:
            worker.use(self._preloaded.fork(program(self._config, local_rank), environment, stdin))
        self._guard.add(worker.pid)
        self._workers.append(worker)
        worker.attach_output(self._config, self._console)
        for descriptor in list(worker.streams):
            self._loop.watch(descriptor, partial(self._on_output, worker, descriptor))
        self._watch_end(worker)
        return worker

    def _rank_log_dir(self, local_rank: int) -> Path | None:
        if self._log_dir is None:
            return None
        return self._log_dir / f"attempt_{self._layout.attempt}" / str(local_rank)

    def _watch_end(self, worker: Worker) -> None:
        try:
            descriptor = os.pidfd_open(worker.pid)
        except (AttributeError, OSError):
            self._polled = True
            return
        self._loop.watch(descriptor, partial(self._on_end, worker, descriptor))

    def _serve(self, store: JobStore, descriptor: int) -> None:
        self._loop.unwatch(descriptor)
        store.serve()

    # ------------------------------------------------------------------ the loop

    def _step(self) -> None:
        self._watch_readers()
        self._loop.wait(self._patience())
        if self._polled:
            for worker in self._workers:
                self._on_end(worker)
        self._loop.catch_up()
        if not self._winding_down and self._all_ended():
            self._wind_down()

    def _watch_readers(self) -> None:
        """Go on writing when the readers of our own output do; read no more from the ranks than they do."""
        unwritten = self._console.unwritten()
        for descriptor in self._unwritten - unwritten:
            self._loop.unwatch(descriptor)
        for descriptor in unwritten - self._unwritten:
            self._loop.watch(descriptor, self._console.drain, selectors.EVENT_WRITE)
        self._unwritten = unwritten
        if not self._console.full:
            for descriptor, callback in self._held.items():
                self._loop.watch(descriptor, callback)
            self._held.clear()

    def _patience(self) -> float | None:
        """Return how long to wait at most, even if nothing is to be done by then."""
        if self._unstarted:
            return 0.0
        return _LOOK_S if self._polled or (self._winding_down and self._local_rest()) else None

    def _over(self) -> bool:
        # With several nodes, the others' end counts as much as our own.
        decided = self._verdicts is None or self._elsewhere is not None or self._interrupted is not None
        return self._all_ended() and not self._local_rest() and (decided or self._failure_told)

    def _all_ended(self) -> bool:
        return not self._unstarted and all(worker.exit_code is not None for worker in self._workers)

    def _local_rest(self) -> bool:
        """Tell whether output or processes of ranks that have ended are still there."""
        return any(worker.streams or worker.group_is_there() for worker in self._all())

    # ------------------------------------------------------------------ what happens

    def _on_output(self, worker: Worker, descriptor: int) -> None:
        if not worker.read(descriptor):
            self._loop.unwatch(descriptor)
        elif self._console.full and descriptor not in self._held:
            self._loop.unwatch(descriptor)
            self._held[descriptor] = partial(self._on_output, worker, descriptor)

    def _on_end(self, worker: Worker, descriptor: int | None = None) -> None:
        if descriptor is not None:
            self._loop.unwatch(descriptor)
            os.close(descriptor)
        if not worker.poll():
            return
        self._loop.after(_READABLE_S, partial(self._bury, worker))
        if worker.exit_code == 0:
            self._on_success(worker)
        elif worker.failed and not self._failure_seen:
            for stream in list(worker.streams):
                self._on_output(worker, stream)
            self._on_failure(worker)

    def _on_success(self, worker: Worker) -> None:
        if self._interrupted is None:  # else it has only done as it was told
            self._note_success(worker)
        if not self._one_is_done and not self._all_ended():
            self._loop.after(_REMARK_S, self._remark)
        self._one_is_done = True

    def _note_success(self, worker: Worker) -> None:
        """Say that a rank has ended well: the first of this node, as no more nodes are needed then."""
        if self._verdicts is not None and not self._one_is_done:
            self._verdicts.finish(worker.rank)

    def _on_failure(self, worker: Worker) -> None:
        """End the others."""
        self._failure_seen = True
        self._start_no_more()
        if is_consequence(worker):
            self._loop.after(_ROOT_CAUSE_S, self._tell_of_failure)
        else:
            self._loop.after(0.0, self._tell_of_failure)
            self._tell_those_who_meet(worker)
        self._loop.after(self._last_words_s(worker.exit_code), self._stop_survivors)

    def _last_words_s(self, exit_code: int | None) -> float:
        """Return how long the others go on after the failure that ends the job."""
        return _LAST_WORDS_S

    def _bury(self, worker: Worker) -> None:
        """Let go of a rank's process; until then nobody else gets its number."""
        if not worker.group_is_there():
            self._guard.discard(worker.pid)
        worker.bury()

    def _remark(self) -> None:
        running = [w for w in self._workers if w.exit_code is None]
        done = [w for w in self._workers if w.exit_code == 0]
        if running and not self._failure_seen and not self._passed_on:
            self._console.say(
                f"rankwise: {named(done)} ended with exit code 0 some time ago; still running: {named(running)}. "
                "If they wait for those, these have ended too early"
            )

    def _on_signal(self) -> None:
        self._interrupts.clear()
        for number in self._interrupts.received[self._seen_signals :]:
            self._seen_signals += 1
            if number in SUSPENDING:
                self._suspend()
            elif number not in ENDING:
                self._hand_on(number)
            elif self._interrupted is None:
                self._end_by(number)
            else:
                self._signal_all(signal.SIGKILL)
                self._kill_elsewhere()

    def _end_by(self, number: int) -> None:
        self._interrupted = number
        self._start_no_more()
        self._tell_of_signal(number, "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
        self._pass_on(number)

    def _tell_of_signal(self, number: int, name: str) -> None:
        once_more = "(once more kills them at once)"
        if self._config.is_flexible and not self._config.serves and number != signal.SIGINT:
            self._leaving = name
            text = f"stopping the ranks of this node, without which the job goes on {once_more}"
            self._console.say(f"rankwise: {name}: {text}")
            self._leave()
            return
        self._console.say(f"rankwise: {name}: stopping all ranks {once_more}")
        if self._verdicts is not None:
            self._verdicts.stopped(number, name)

    def _leave(self) -> None:
        """Have all ranks of the other nodes start again without those of this one."""
        if self._verdicts is not None:
            self._verdicts.leave(self._leaving)

    def _kill_elsewhere(self) -> None:
        if self._verdicts is not None and not self._leaving:
            self._verdicts.kill()

    def _hand_on(self, number: int) -> None:
        """Give the ranks a signal that is theirs."""
        for worker in self._all():
            worker.send(number)

    def _suspend(self) -> None:
        """Stop the ranks and this process until it is told to go on."""
        self._hand_on(signal.SIGSTOP)  # to a session that no shell looks after, SIGTSTP means nothing
        os.kill(os.getpid(), signal.SIGSTOP)
        self._hand_on(signal.SIGCONT)

    def _pass_on(self, number: int) -> None:
        """Stop the ranks after a signal to a launcher, ours or another node's, and give them all of their time."""
        if self._passed_on:
            return  # often each node's launcher gets it, and no rank is to get it twice
        self._passed_on = True
        if number == signal.SIGINT and get_debug_level() is not DebugLevel.DETAIL:
            self._fold()
        self._stop(signal.SIGTERM if number == signal.SIGHUP else number, self._config.grace_s)

    def _fold(self) -> None:
        """Have each rank say in a line where the interrupt has met it."""
        for worker in self._workers:
            if worker.stderr is not None:
                worker.stderr.fold()

    def _on_word(self) -> None:
        """Look at what other nodes have said, which wakes this loop again from now on."""
        assert self._verdicts is not None
        self._verdicts.clear()  # first, as more may be said meanwhile
        self._on_verdict()

    def _on_verdict(self) -> None:
        assert self._verdicts is not None
        self._elsewhere = self._verdicts.current
        if self._verdicts.killed:  # perhaps before this launcher has seen the verdict
            self._start_no_more()
            self._signal_all(signal.SIGKILL)
            return
        if self._elsewhere is None or self._elsewhere.success:
            return
        self._start_no_more()
        if self._elsewhere.signal or self._elsewhere.is_planned:
            self._pass_on(self._elsewhere.signal or signal.SIGTERM)
        else:
            self._loop.after(self._last_words_s(self._elsewhere.exit_code), self._stop_survivors)

    def _wind_down(self) -> None:
        """Once the ranks themselves have ended, wait a little for what they have left, and then end it."""
        self._winding_down = True
        if self._verdicts is not None and not self._failure_seen and self._interrupted is None:
            self._verdicts.node_is_done()
        if self._local_rest():
            # Those of a rank that was stopped have had their warning with it.
            patience_s = 0.0 if any(worker.stopped for worker in self._workers) else _LEFTOVER_S
            self._loop.after(patience_s, partial(self._signal_all, signal.SIGTERM))
            self._loop.after(2 * patience_s, self._end_leftovers)

    def _end_leftovers(self) -> None:
        self._signal_all(signal.SIGKILL)
        if self._held and self._interrupted is None:
            # The reader of our output is slow, and nothing is to be lost.
            self._loop.after(_LEFTOVER_S, self._end_leftovers)
            return
        # A process that still holds a pipe has left the rank's process group on purpose.
        for worker in self._all():
            for descriptor in list(worker.streams):
                self._loop.unwatch(descriptor)
                self._held.pop(descriptor, None)
                worker.close_stream(descriptor)

    # ------------------------------------------------------------------ stopping

    def _tell_of_failure(self) -> None:
        first = culprit(self._workers)
        if self._verdicts is not None and first is not None and not self._leaving:
            self._verdicts.failed(exit_code(first, self._workers), summary(first, self._workers))
        self._failure_told = True

    def _tell_those_who_meet(self, worker: Worker) -> None:
        """Tell ranks that wait for this one in the store that it does not come."""
        if self._store is not None:
            self._store.tell_of_death(Dead(worker.rank, f"its process {worker.describe_end(True)}"))

    def _stop_survivors(self) -> None:
        # After a signal all have been told already, and have the time that the user gives them.
        if not self._passed_on and not self._all_ended():
            self._stop()

    def _stop(self, number: int = signal.SIGTERM, grace_s: float = _STOP_GRACE_S) -> None:
        self._signal_all(number)
        if number == signal.SIGINT:
            # A rank that is not in Python code does not notice Ctrl-C.
            self._loop.after(grace_s / 2, partial(self._signal_all, signal.SIGTERM))
        self._loop.after(grace_s, partial(self._signal_all, signal.SIGKILL))

    def _signal_all(self, number: int) -> None:
        for worker in self._all():
            worker.signal(number)

    def _kill_all(self) -> None:
        """Leave nothing behind, whatever has happened."""
        self._signal_all(signal.SIGKILL)
        for worker in self._all():
            worker.process.wait()
            self._guard.discard(worker.pid)
            for descriptor in list(worker.streams):
                worker.close_stream(descriptor)

    # ------------------------------------------------------------------ small tools

    def _all(self) -> list[Worker]:
        return [*self._replaced, *self._workers]
