"""`help` and the API pages show the same text: that of one docstring, below the same parameters.

The pages are made from the source without running it (see mkdocs.yml), and `help` reads the objects: a decorator, an
alias or a text that is put together at import would make them differ, and a name that a page asks for may be missing.
"""

import ast
import inspect
import pydoc
import re
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import rankwise as dist

ROOT = Path(__file__).parents[2]
#: What a page shows, and the options that may choose members of it.
SHOWN = re.compile(r"^::: (\S+)\n((?: {4}.*\n)*)", re.MULTILINE)


def blocks():
    """Return what the pages show: the page, a module, and the names that are shown of it."""
    for page in sorted((ROOT / "docs/api").glob("*.md")):
        for name, options in SHOWN.findall(page.read_text() + "\n"):
            chosen = re.findall(r"\b[A-Za-z_]\w*\b", options.partition("members:")[2])
            try:
                module = import_module(name)
            except ModuleNotFoundError:  # a class of a module
                path, _, one = name.rpartition(".")
                module, chosen = import_module(path), [one]
            whole = [*getattr(module, "__all__", ()), *source(module), *variables(module)]
            yield page.stem, module, chosen or list(dict.fromkeys(whole))


@cache
def source(module):
    """Return the functions and classes that a module defines under public names, as its source has them."""
    return named(ast.parse(inspect.getsource(module)).body)


def variables(module):
    """Return the names of a module's variables that have docstrings below them."""
    for node, text in pairwise(ast.parse(inspect.getsource(module)).body):
        if isinstance(node, ast.Assign) and isinstance(text, ast.Expr):
            yield node.targets[0].id


def named(body):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name: node for node in body if isinstance(node, kinds) and node.name[0] != "_"}


def texts():
    """Return the functions, classes and methods that the pages show: by name the object, and its node in the source."""
    for _, module, names in BLOCKS.values():
        for name in names:
            one = getattr(module, name)
            if not (inspect.isclass(one) or inspect.isroutine(one)):
                continue
            node = source(import_module(one.__module__)).get(one.__name__)
            if node is None:  # a method by another name, which is shown with its class
                continue
            yield f"{one.__module__}.{name}", one, node
            if inspect.isclass(one):
                for method, inner in named(node.body).items():
                    yield f"{one.__module__}.{name}.{method}", inspect.getattr_static(one, method), inner


BLOCKS = {f"{page}-{module.__name__}-{names[0]}": (page, module, names) for page, module, names in blocks()}
#: A page leaves out what has no docstring of its own, such as a method whose base class describes it.
TEXTS = {name: (one, node) for name, one, node in texts() if ast.get_docstring(node)}


@pytest.mark.parametrize("block", BLOCKS)
def test_what_a_page_asks_for_is_there(block):
    _, module, names = BLOCKS[block]
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("name", TEXTS)
def test_help_shows_the_docstring_of_the_source(name):
    one, node = TEXTS[name]
    assert inspect.getdoc(one) == ast.get_docstring(node)


FUNCTIONS = [name for name, (one, _) in TEXTS.items() if inspect.isfunction(inspect.unwrap(one))]


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if not isinstance(TEXTS[name][0], classmethod)])
def test_help_shows_the_parameters_of_the_source(name):
    one, node = TEXTS[name]
    arguments = node.args
    written = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    assert list(inspect.signature(one).parameters) == [each.arg for each in written if each]


@pytest.mark.parametrize("name", [name for name in dist.__all__ if inspect.isroutine(getattr(dist, name))])
def test_every_public_function_is_on_a_page_with_the_text_of_help(name):
    function = getattr(dist, name)
    _, node = TEXTS[f"{function.__module__}.{function.__qualname__}"]
    shown = pydoc.plain(pydoc.render_doc(function))
    assert squeezed(ast.get_docstring(node)) in squeezed(shown)


def test_every_public_name_is_on_a_page():
    covered = {name for _, _, names in BLOCKS.values() for name in names}
    # A module is documented where its contents are.
    modules = {"group": "GroupMember", "reduce_op": "ReduceOp"}
    assert {modules.get(name, name) for name in dist.__all__} - covered == {"__version__"}
    assert "`dist.__version__`" in (ROOT / "docs/api/index.md").read_text()


def squeezed(text):
    """Return a text without indentation and empty lines."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
