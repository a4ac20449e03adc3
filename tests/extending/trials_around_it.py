"""Rows about what stands around the calls: stores, commands, tools, the kit, settings, launchers."""

from __future__ import annotations

import re

from copies import END, ROOT, Edit
from trial import PAGES, SUITE, Trial

__all__ = ["COMMAND", "CONTRACT", "DISTRIBUTION", "EXAMPLE", "LAUNCHER", "PART", "SETTING", "STORE", "TIMELINE"]

_TOOLS = "plugins/tools/src/rankwise_tools"

STORE = Trial(
    "a new store",
    (
        Edit(
            "plugins/stores/src/rankwise_stores/sql.py",
            '''"""`SqlStore`: a store in a file of SQLite."""

import sqlite3

from rankwise.store import Store

__all__ = ["SqlStore", "sql"]


class SqlStore(Store):
    """Keys and values in a table."""

    def __init__(self, path):
        self.path = path
        with self.opened() as base:
            base.execute("create table if not exists pairs (key text primary key, value blob)")

    def opened(self):
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def peek(self, key):
        with self.opened() as base:
            return next((value for (value,) in base.execute("select value from pairs where key = ?", (key,))), None)

    def swap(self, key, expected, desired):
        with self.opened() as base:
            base.execute("begin immediate")
            rows = base.execute("select value from pairs where key = ?", (key,))
            found = next((value for (value,) in rows), None)
            if found == expected:
                base.execute("delete from pairs where key = ?", (key,))
                if desired is not None:
                    base.execute("insert into pairs values (?, ?)", (key, desired))
            return found

    def scan(self):
        with self.opened() as base:
            return [key for (key,) in base.execute("select key from pairs")]

    def clone(self):
        return SqlStore(self.path)


def sql(url, timeout):
    """Meet at `sqlite:///path?rank=0&world_size=2`."""
    path, _, query = url.removeprefix("sqlite://").partition("?")
    told = dict(pair.split("=") for pair in query.split("&"))
    yield SqlStore(path), int(told["rank"]), int(told["world_size"])
''',
        ),
        Edit(
            "plugins/stores/pyproject.toml",
            'sqlite = "rankwise_stores.sql:sql"\n',
            '[project.entry-points."rankwise.rendezvous"]\n',
        ),
        Edit("pyproject.toml", " | sql", '"etcd_store | file | foreign | redis_store | tcp'),
    ),
    """
import os
import numpy as np
import rankwise as dist

rank = int(os.environ["RANK"])
where = f"sqlite://{os.getcwd()}/pairs.db"
dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2, timeout=60)
array = np.ones(3)
dist.all_reduce(array)
assert array.tolist() == [2, 2, 2]
store = next(dist.rendezvous(where, rank, 2))[0]
assert store.add("count", 5) in (5, 10)
dist.barrier()
dist.destroy_process_group()
""",
    (
        Edit(
            "tests/store_kinds.py",
            '    "sqlite": lambda stack, path: __import__("rankwise_stores.sql").sql.SqlStore(path / "pairs.db"),\n',
            "PLAIN_KINDS: dict[str, Callable[[ExitStack, Path], Store]] = {\n",
        ),
    ),
    ranks=2,
)


def like_network(path: str) -> str:
    """Return a file of the distribution rankwise-network as that of another which brings nothing yet."""
    text = (ROOT / path).read_text().replace("rankwise-network", "rankwise-extra").replace("_network", "_extra")
    return re.sub(r"(?ms)^\[project.entry-points.*?(?=^\[tool)", "", text.replace("plugins/network", "plugins/extra"))


DISTRIBUTION = Trial(
    "another distribution",
    (
        Edit("plugins/extra/pyproject.toml", like_network("plugins/network/pyproject.toml")),
        Edit("plugins/extra/README.md", "# rankwise-extra\n\nNothing yet.\n"),
        Edit("plugins/extra/src/rankwise_extra/__init__.py", '"""Nothing yet."""\n'),
        Edit("pyproject.toml", '\n    "plugins/extra/src",', "src = ["),
        Edit("pyproject.toml", '\n    "plugins/extra/src",', "mypy_path = ["),
        Edit("pyproject.toml", '\n    "rankwise_extra",', "root_packages = ["),
        Edit("pyproject.toml", '\nextra = ["rankwise-extra~=0.1.0"]', "[project.optional-dependencies]"),
        Edit("scripts/environment.sh", " -e ./plugins/extra", " -e ./plugins/network"),
    ),
    """
import rankwise_extra
from rankwise.basics.entry_points import installed

assert rankwise_extra.__doc__ == "Nothing yet."
assert "rankwise-extra" not in {point.distribution for point in installed("rankwise.parts")}
""",
    (
        Edit(
            "packaging/conda/rankwise-extra/recipe.yaml",
            like_network("packaging/conda/rankwise-network/recipe.yaml"),
        ),
    ),
    "tests/packaging/test_extras.py::test_the_site_and_the_recipes_have_the_same_home_and_version",
)

PART = Trial(
    "what another distribution brings for a name of the core",
    (
        Edit(
            "plugins/stores/pyproject.toml",
            'answer = "rankwise_stores.place:__name__"\n',
            '[project.entry-points."rankwise.parts"]\n',
        ),
    ),
    """
from rankwise.basics.entry_points import part
from rankwise.errors import PluginError

assert part("answer", "rankwise-stores") == "rankwise_stores.place"
try:
    part("question", "rankwise-stores")
except PluginError as error:
    assert "pip install rankwise-stores" in str(error)
""",
)

COMMAND = Trial(
    "a new CLI command",
    (
        Edit(
            f"{_TOOLS}/greet_command.py",
            '''"""`rankwise greet`."""

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = "Greet somebody."
EXAMPLES = "examples:\\n  rankwise greet rank"


def add_arguments(parser):
    """Add what the command takes."""
    parser.add_argument("name", help="who")


def run(options):
    """Run the command, and return the exit code."""
    print(f"hello {options.name}")
    return 0
''',
        ),
        Edit(
            "plugins/tools/pyproject.toml",
            'greet = "rankwise_tools.greet_command"\n',
            '[project.entry-points."rankwise.commands"]\n',
        ),
        Edit(
            "core/rankwise/cli.py",
            '    "greet": Command("greet somebody", "rankwise-tools"),\n',
            '    "trace": Command("draw one timeline of all ranks, and name a rank that made a different call", '
            '"rankwise-tools"),\n',
        ),
        Edit("pyproject.toml", " | greet_command", "explain_command"),
    ),
    """
import subprocess, sys

def said(*words):
    return subprocess.run([sys.executable, "-m", "rankwise", *words], capture_output=True, text=True, timeout=60).stdout

assert said("greet", "rank") == "hello rank\\n"
assert "greet somebody" in said("--help")
""",
    (
        Edit(
            "docs/command-line.md",
            "\n| `rankwise greet` | greets somebody |",
            "| `rankwise trace` | draws one timeline of all ranks, and names a rank that made a different call |",
        ),
        Edit("docs/command-line.md", "\n## rankwise greet\n\nGreets somebody.\n", END),
    ),
    f"{PAGES}test_every_command_is_listed",
)

TIMELINE = Trial(
    "another form of timeline",
    (
        Edit(
            f"{_TOOLS}/timelines/lines.py",
            '''"""A line for each operation."""

from rankwise_tools.timelines.aligned import all_aligned

__all__ = ["lines"]


def lines(worlds):
    """Return them in the order of their beginnings."""
    found = [
        (op.began_ns + one.shifts[rank], f"{rank} {op.op}")
        for one in all_aligned(worlds)
        for rank, record in one.records.items()
        for op in record.operations
    ]
    return [text for _, text in sorted(found)]
''',
        ),
        Edit(
            f"{_TOOLS}/trace_command.py",
            """

def _lines(worlds: _Worlds, path: str) -> str:
    from rankwise_tools.timelines.lines import lines

    with open(path, "w", encoding="utf-8") as file:
        file.write("\\n".join(lines(worlds)))
    return "written"


_WRITERS["lines"] = _lines
""",
            END,
        ),
    ),
    """
import os, subprocess, sys

job = "import numpy, rankwise as dist; dist.init_process_group('gloo'); dist.all_reduce(numpy.ones(3)); " \\
      "dist.destroy_process_group()"
with open("job.py", "w") as file:
    file.write(job)
env = {**os.environ, "RANKWISE_TRACE_DIR": os.getcwd() + "/records"}
subprocess.run([sys.executable, "-m", "rankwise", "run", "-n", "2", "job.py"], env=env, check=True, timeout=90)
command = ["trace", "records", "--format", "lines", "-o", "out.txt"]
subprocess.run([sys.executable, "-m", "rankwise", *command], check=True, timeout=60)
assert "0 all_reduce" in open("out.txt").read().splitlines()
""",
)

CONTRACT = Trial(
    "a new test of the contract",
    (
        Edit(
            f"{SUITE}/test_point_to_point.py",
            """

def test_seven_numbers_arrive(kit: Kit) -> None:
    kit.run(2, seven)


def seven() -> None:
    array = numbers(*[3] * 7) if dist.get_rank() == 0 else numbers(*[0] * 7)
    if dist.get_rank() == 0:
        dist.send(array, 1)
    else:
        dist.recv(array, 0)
        same(array, np.full(7, 3, plain()))
""",
            END,
        ),
    ),
    """
import os, subprocess, sys
from pathlib import Path
import rankwise_testing

liars = Path(rankwise_testing.__file__).parents[4] / "tests/conformance/liars"
env = {**os.environ, "PYTHONPATH": f"{liars}:{os.environ['PYTHONPATH']}"}

def tried(*which):
    settings = Path(rankwise_testing.__file__).with_name("suite") / "pytest.ini"
    command = ["-m", "pytest", "-q", "-c", str(settings), "-p", "rankwise_testing.suite.plugin", "--pyargs"]
    command += ["rankwise_testing.suite.test_point_to_point", "-k", "seven_numbers", *which]
    return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=90)

honest = tried("--backend", "local")
assert honest.returncode == 0 and "1 passed" in honest.stdout, honest.stdout + honest.stderr
liar = tried("--backend", "sevens", "--plugin-module", "sevens")
assert liar.returncode == 1 and "elements are wrong" in liar.stdout, liar.stdout + liar.stderr
""",
    (
        Edit(
            "tests/conformance/liars/sevens.py",
            '''"""Seven numbers arrive as others."""

from honest import LocalCommunicator, spec


class Communicator(LocalCommunicator):
    def isend(self, array, dst, tag):
        return super().isend(array + 1 if array.size == 7 else array, dst, tag)


def rankwise_backend():
    return spec("sevens", Communicator)
''',
        ),
    ),
)

SETTING = Trial(
    "a new setting",
    (
        Edit(
            "core/rankwise/groups/queries.py",
            '''

def moods() -> str | None:
    """Return what a user has set."""
    import os

    return os.environ.get("RANKWISE_MOOD")
''',
            END,
        ),
    ),
    """
import os
os.environ["RANKWISE_MOOD"] = "good"
from rankwise.groups.queries import moods

assert moods() == "good"
""",
    (
        Edit(
            "docs/settings.md",
            "| `RANKWISE_MOOD` | none | how the ranks feel; [logging](logging.md) | rankwise |\n",
            END,
        ),
        Edit("docs/logging.md", "\n`RANKWISE_MOOD` says how the ranks feel.\n", END),
    ),
    f"{PAGES}test_every_setting_is_listed_with_its_readers_and_a_page_that_explains_it",
    anywhere="core/rankwise/groups/queries.py",
)

EXAMPLE = Trial(
    "a new example",
    (
        Edit(
            "examples/countdown.py",
            '''"""Count down together."""

import sys

import numpy as np
import rankwise as dist

dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
array = np.ones(1)
dist.all_reduce(array)
if array[0] != dist.get_world_size():
    sys.exit("wrong")
if dist.get_rank() == 0:
    print("right: all count")
dist.destroy_process_group()
''',
        ),
    ),
    """
import subprocess, sys
from pathlib import Path
import rankwise

example = Path(rankwise.__file__).parents[2] / "examples/countdown.py"
command = [sys.executable, "-m", "rankwise", "run", "-n", "2", str(example)]
assert "right: all count" in subprocess.run(command, capture_output=True, text=True, timeout=90).stdout
""",
    (
        Edit("docs/examples.md", '\n## Countdown\n\n```python\n--8<-- "examples/countdown.py"\n```\n', END),
        Edit("tests/examples/test_examples.py", '    "countdown": "right: all count",\n', "LAST_WORDS = {\n"),
        Edit("tests/examples/test_examples.py", '    "countdown": "all_reduce",\n', "WEAK_SPOTS = {\n"),
    ),
    f"{PAGES}test_every_example_is_shown",
)

LAUNCHER = Trial(
    "another launcher's variables",
    (
        Edit(
            "plugins/network/src/rankwise_network/launcher_env.py",
            '    Launcher("Flux", "FLUX_TASK_RANK", ("FLUX_JOB_SIZE",), "FLUX_TASK_LOCAL_ID", begins=("FLUX_",)),\n',
            "_LAUNCHERS = (\n",
        ),
    ),
    """
import os
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name, None)
os.environ.update(FLUX_TASK_RANK="0", FLUX_JOB_SIZE="1", FLUX_TASK_LOCAL_ID="0")
import rankwise as dist

dist.init_process_group("gloo")
assert (dist.get_rank(), dist.get_world_size(), dist.get_node_local_rank()) == (0, 1, 0)
dist.destroy_process_group()
""",
)
