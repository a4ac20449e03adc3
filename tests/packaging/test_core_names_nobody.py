"""The core names no library whose arrays it takes: devices and what shares memory come by protocols alone."""

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "core" / "rankwise"
LIBRARIES = {"cupy", "torch", "jax", "jaxlib", "dpnp", "tensorflow", "paddle"}


def named(tree):
    """Yield the modules that are imported, and the words of texts that are no documentation."""
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield from (word.strip("`'\"()[],;:").partition(".")[0] for word in node.value.split())


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_no_module_of_the_core_imports_or_spells_a_library_with_arrays(path):
    assert not LIBRARIES & set(named(ast.parse(path.read_text())))


def test_this_would_be_noticed():
    source = '"""As torch has it."""\nimport cupy.cuda\nif kind == "torch":\n    raise TypeError("use `jax.numpy`")\n'
    assert LIBRARIES & set(named(ast.parse(source))) == {"cupy", "torch", "jax"}
