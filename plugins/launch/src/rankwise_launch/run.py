"""`rankwise run`: one node's part of a job, from the port to the exit code."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import sys
import tempfile
import uuid
from contextlib import ExitStack, closing
from pathlib import Path

from rankwise.errors import DistError
from rankwise.launching import keep_standard
from rankwise_launch.attempt import Attempt
from rankwise_launch.config import ExitCode, LaunchConfig, LaunchError, few_ranks
from rankwise_launch.elastic import ElasticAttempt
from rankwise_launch.environment import Layout, job_environment
from rankwise_launch.failures import OutOfMemoryWatch, exit_code, report, told_deaths
from rankwise_launch.guarding import Guard
from rankwise_launch.interrupts import Interrupts, without_ranks
from rankwise_launch.job_log import JobLog
from rankwise_launch.job_store import JobStore
from rankwise_launch.nodes import Nodes, terms_of
from rankwise_launch.outcome import Outcome
from rankwise_launch.output import Console
from rankwise_launch.port import reserve_port
from rankwise_launch.preloading import Preloaded
from rankwise_launch.processes import hand_down, require_processes
from rankwise_launch.server_store import ServerStore
from rankwise_launch.tally import Tally
from rankwise_launch.verdicts import Verdicts
from rankwise_network import secret

#: After an interrupt, a reader who takes nothing for so long is not waited for.
_PATIENCE_S = 0.5


def run(config: LaunchConfig) -> int:
    """Run this node's ranks, and return the exit code that tells how it went.

    That is 0 if all ranks ended well, the code of the rank that failed first (128 and the signal's number if a signal
    ended it), 130 after Ctrl-C, 143 after SIGTERM, or an `ExitCode` if the launcher itself could not go on.
    """
    keep_standard()
    console = Console(1)
    try:
        _check_system()
        check_command(config)
        with ExitStack() as stack:
            stack.enter_context(without_ranks())
            code = _Job(config, stack, console).run()
        console.finish()
        return code
    except LaunchError as error:
        console.say(f"rankwise run: {error}")
        console.finish(_PATIENCE_S)
        return int(error.exit_code)
    except KeyboardInterrupt:
        # While ranks are running this is no exception but an `Outcome`.
        return 130
    except BrokenPipeError:
        # The reader of our output is gone. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141


def _check_system() -> None:
    try:
        require_processes()
    except DistError as error:
        raise LaunchError(ExitCode.CANNOT_START, str(error)) from error


class _Job:
    """What stays the same over all attempts."""

    def __init__(self, config: LaunchConfig, stack: ExitStack, console: Console) -> None:
        self._config, self._stack, self._console = config, stack, console
        self._run_id = config.run_id or uuid.uuid4().hex[:12]
        self._secret = _job_secret(config)
        self._secret_fd = hand_down(self._secret)
        stack.callback(os.close, self._secret_fd)
        nodes = Nodes(config) if config.nnodes > 1 else None
        if nodes is not None:
            config = self._config = nodes.config
        self._log_dir = _log_dir(config, self._run_id)
        self._guard = stack.enter_context(Guard(self._secret_fd))
        if nodes is not None:
            self._guard.end_with(nodes.last_word())
        self._preloaded = stack.enter_context(self._preload()) if config.preload else None
        #: Those that this launcher serves: with several nodes the last attempt's until no other launcher is in it.
        self._stores: list[JobStore] = []
        stack.callback(self._close_stores)
        self._nodes = None if nodes is None else stack.enter_context(nodes)
        #: How many ranks the last attempt had.
        self._size = 0

    def _preload(self) -> Preloaded:
        config, secret = self._config, self._secret_fd
        program = "" if config.module else config.command[0]
        folder = str(Path(program).resolve().parent) if program else os.getcwd()
        preloaded = Preloaded(config.preload, job_environment(config, secret), folder, program, [secret])
        if preloaded.said():
            self._console.say(preloaded.said())
        return preloaded

    def run(self) -> int:
        """Try until all ranks end well or there are no restarts left; an elastic job tries once."""
        most = self._config.max_restarts
        for attempt in itertools.count():
            memory = OutOfMemoryWatch()
            outcome = self._attempt(attempt)
            code = self._judge(outcome, memory)
            left = self._restarts_left(attempt, code) if outcome.interrupted is None else None
            if left is None:
                break
            self._console.say(f"rankwise: starting all ranks again ({left} of {most} restarts left)")
        return code

    def _restarts_left(self, attempt: int, code: int) -> int | None:
        """Return how many restarts are left if all ranks are to be started again; else None."""
        if self._nodes is not None:
            return self._nodes.restarts_left()
        left = self._config.max_restarts - attempt - 1
        return None if code == 0 or left < 0 or self._config.elastic else left

    def _attempt(self, attempt: int) -> Outcome:
        config = self._config
        with ExitStack() as stack:
            port = config.master_port or 0
            if config.serves:
                # Held while the ranks run, so that nobody else is given the port before rank 0 serves it.
                port = stack.enter_context(reserve_port(config.master_addr, config.master_port, config.join_timeout_s))
            served = self._open_store(port)
            own, here = str(served.port) if served else "", config.nproc_per_node
            layout = Layout(0, here, config.master_addr, port, attempt, self._run_id, own)
            if self._nodes is not None:
                layout = self._join(self._nodes, layout)
            self._close_stores(but=served)
            store: JobStore | ServerStore | None = served
            if config.meeting:
                store = stack.enter_context(closing(ServerStore(layout.store)))
            if layout.world_size < (config.min_ranks or 1):
                raise LaunchError(ExitCode.USAGE, few_ranks(config.min_ranks or 1, layout.world_size))
            verdicts = None
            if self._nodes is not None:
                verdicts = self._nodes.verdicts()
                stack.callback(verdicts.close)
            self._console.resize(layout.world_size)
            if self._log_dir is not None and attempt == 0:
                self._console.say(f"rankwise: logs in {self._log_dir}")
            interrupts = stack.enter_context(Interrupts())
            ranks = self._ranks(layout, interrupts, verdicts, store)
            try:
                return ranks.run(self._secret_fd)
            except LaunchError as error:
                if verdicts is not None:
                    verdicts.failed(error.exit_code, str(error))
                raise

    def _join(self, nodes: Nodes, layout: Layout) -> Layout:
        """Wait for the launchers of the other nodes, and tell of those that have come or gone meanwhile."""
        layout = nodes.join(layout)
        if not self._config.elastic:
            for node in nodes.take_losses():
                self._console.say(f"rankwise: node {node.number} ({node.host}) is lost: {node.text}")
        if self._size not in (0, layout.world_size):
            nodes_now = f"{layout.nodes} node{'s' * (layout.nodes != 1)}"
            self._console.say(f"rankwise: the job goes on with {layout.world_size} ranks on {nodes_now}")
        self._size = layout.world_size
        return layout

    def _ranks(
        self,
        layout: Layout,
        interrupts: Interrupts,
        verdicts: Verdicts | None,
        store: JobStore | ServerStore | None,
    ) -> Attempt:
        config, place = self._config, (self._log_dir, self._preloaded, store)
        if not config.elastic:
            return Attempt(config, layout, self._console, self._guard, interrupts, verdicts, *place)
        if self._nodes is not None:
            tally = self._nodes.tally()
        else:
            tally = Tally(JobLog.of_one_node(config.nproc_per_node, terms_of(config)))
        means = self._guard, interrupts, verdicts, *place
        return ElasticAttempt(tally, self._secret, config, layout, self._console, *means)

    def _open_store(self, port: int) -> JobStore | None:
        """Listen for the ranks, if there are several. Where that cannot be, rank 0 will serve, or say what is wrong."""
        config = self._config
        if self._nodes is None:
            self._close_stores()
        with contextlib.suppress(DistError, OSError, ValueError):
            if config.serves and config.nnodes * config.nproc_per_node > 1:
                self._stores.append(JobStore(config.master_addr, port, self._secret))
                return self._stores[-1]
        return None

    def _close_stores(self, but: JobStore | None = None) -> None:
        while self._stores[: -1 if but else None]:
            self._stores.pop(0).close()

    def _judge(self, outcome: Outcome, memory: OutOfMemoryWatch) -> int:
        """Tell of what went wrong, and return the exit code."""
        if outcome.interrupted is not None:
            self._console.finish(_PATIENCE_S)
            self._console.forget()
            return 128 + outcome.interrupted
        elsewhere = outcome.elsewhere
        # A report of the job's failure tells of all ranks but those that were replaced.
        if elsewhere is not None and elsewhere.is_planned:
            self._console.say(f"rankwise: {elsewhere.told()}")
            return 0
        deaths = [death for death in outcome.deaths if death.replaced or outcome.failed is None]
        if deaths:
            self._console.say(told_deaths(deaths))
        if outcome.failed is not None:
            assert outcome.failed.exit_code is not None
            killed = outcome.failed.exit_code == -9 and memory.struck()
            self._console.say(report(outcome.failed, outcome.workers, killed))
            if elsewhere is None or elsewhere.node_rank == self._config.node_rank:
                return exit_code(outcome.failed, outcome.workers)
        if elsewhere is None or elsewhere.success:
            return 0
        self._console.say(f"rankwise: {elsewhere.told()}")
        return elsewhere.exit_code


def check_command(config: LaunchConfig) -> None:
    """Find out what can be found out before any process is started.

    Raises:
        LaunchError: There is no such script, module or program.
    """
    name = config.command[0]
    if config.no_python:
        _check_program(name)
    elif config.module:
        if not _module_exists(name.partition(".")[0]):
            raise LaunchError(ExitCode.NOT_FOUND, f"there is no Python module {name!r} for {sys.executable}")
    elif config.preload and os.path.exists(name) and not _is_script(name):
        raise LaunchError(ExitCode.USAGE, f"--preload: {name!r} is no Python file; leave --preload out to run it")
    elif not os.path.exists(name):
        hint = "; for a program that is not Python, add --no-python" if shutil.which(name) else ""
        raise LaunchError(ExitCode.NOT_FOUND, f"there is no script {name!r} in {os.getcwd()}{hint}")


def _check_program(name: str) -> None:
    if shutil.which(name) is not None:
        return
    if os.path.isfile(name):
        text = f"{name!r} cannot be executed; run `chmod +x {name}`, or leave out --no-python"
        raise LaunchError(ExitCode.NOT_EXECUTABLE, text)
    raise LaunchError(ExitCode.NOT_FOUND, f"there is no program {name!r}, neither here nor on the PATH")


def _is_script(name: str) -> bool:
    """Tell whether it is a file that holds Python's text, and not a folder, an archive or compiled code."""
    if not os.path.isfile(name):
        return False
    # opens: files that a command line, or a launcher's variable, names
    with open(name, "rb") as file:
        return b"\0" not in file.read(1 << 12)


def _module_exists(name: str) -> bool:
    # The ranks look in their working directory first, as `python -m` does.
    here = Path.cwd() / name
    return here.is_dir() or here.with_suffix(".py").is_file() or importlib.util.find_spec(name) is not None


def _job_secret(config: LaunchConfig) -> secret.Secret:
    try:
        given = secret.load()
    except ValueError as error:
        raise LaunchError(ExitCode.SECRET, str(error)) from error
    if given is None and config.nnodes > 1:
        raise LaunchError(ExitCode.SECRET, f"several nodes must share a job secret: {secret.ADVICE}, on every node")
    return given or secret.new()


def _log_dir(config: LaunchConfig, run_id: str) -> Path | None:
    """Make the folder for the log files, if there is anything to log."""
    streams = (config.tee, config.redirects)
    if config.log_dir is None and not any(s.default or any(s.by_local_rank.values()) for s in streams):
        return None
    if run_id in (".", "..") or set(run_id) & {"/", os.sep, "\0"}:
        raise LaunchError(ExitCode.USAGE, f"--run-id {run_id}: it names a folder in --log-dir, so it can be no path")
    try:
        if config.log_dir is None:
            # opens: the log files of `rankwise run`
            # reached by: users who may read the folder
            # guarded by: a folder that rankwise chooses has mode 0700; one that `--log-dir` names is as private as
            # it is
            # proved by: tests/core/test_launch_output.py
            return Path(tempfile.mkdtemp(prefix=f"rankwise-{run_id}-"))
        return _new_folder(config.log_dir.absolute() / run_id, f"node_{config.node_rank}" * (config.nnodes > 1))
    except OSError as error:
        raise LaunchError(ExitCode.USAGE, f"cannot write logs: {error}") from error


def _new_folder(run: Path, node: str) -> Path:
    """Make a folder that no other run or node writes to: of the run's name, with a number if that is taken."""
    for number in itertools.count(1):
        folder = run.with_name(run.name if number == 1 else f"{run.name}.{number}") / node
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError
