"""Write docs/openings.md: whatever rankwise opens that others may reach, as comments beside the code declare it.

    python scripts/openings.py          # write the page
    python scripts/openings.py --check  # say what is not declared, and whether the page is as it would be written

A declaration stands in the function that opens something, or above it:

    # opens: what it is
    # reached by: who can get at it
    # guarded by: what they meet
    # proved by: the test that tries, from the root of the repository

`# opens: nothing, WHY` is of a call that opens nothing that others may reach.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "openings.md"
FIELDS = ("opens", "reached by", "guarded by", "proved by")
#: Calls that make or open something, whatever they are methods of.
CALLS = {
    *("memfd_create", "mkfifo", "create_server", "shm_open", "SharedMemory", "write_text", "write_bytes"),
    *("mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory"),
    *("pidfd_getfd", "process_vm_readv", "process_vm_writev"),
}
#: Those whose descriptors have no name; unless something else is declared, they are what PRIVATE says.
NAMELESS = {"pipe", "pipe2", "eventfd", "socketpair", "TemporaryFile"}
PRIVATE = "pipes, socket pairs and files without a name, within a process or to its children"
#: And those that do where a module has sockets.
OF_SOCKETS = {"bind"}  # what listens has an address before
SERVERS = {"HTTPServer", "TCPServer", "UnixStreamServer", "BaseServer"}
#: What the kernel says, or takes away: nobody else can be there.
KERNELS = re.compile(r"^/(?:proc|sys|dev/null)(?!.*/fd/)")
IN_C = re.compile(
    r"(?<![\w.>])(open|openat|fopen|memfd_create|pipe2?|socket|bind|shm_open|process_vm_readv|process_vm_writev|eventfd)\("
)


class Opening(NamedTuple):
    """One place that opens something."""

    path: str
    line: int
    call: str
    first: int  # of the lines among which its declaration stands
    last: int


class Declared(NamedTuple):
    """What a comment says of one."""

    line: int
    fields: dict[str, str]


def sources() -> Iterator[Path]:
    """Give all that is installed with a job; the kit for tests is no part of one."""
    for pattern in ("core/rankwise/**/*.py", "plugins/*/src/**/*.py", "plugins/native/csrc/*.c"):
        for path in sorted(ROOT.glob(pattern)):
            if "rankwise_testing" not in path.parts:
                yield path


def openings(path: Path) -> list[Opening]:
    """Return the places of a file that open something."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    if path.suffix == ".c":
        return list(_in_c(name, text))
    tree = ast.parse(text)
    found = []
    for outer, node in _with_functions(tree):
        call = _opens(node, text)
        if call:
            begin = min([outer.lineno, *(each.lineno for each in getattr(outer, "decorator_list", []))])
            found.append(Opening(name, node.lineno, call, begin, outer.end_lineno or begin))
    return found


def _with_functions(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.Call | ast.ClassDef]]:
    """Give each call with the innermost function, or else the statement, that it is in; and each class of a server."""

    def walk(node: ast.AST, outer: ast.stmt | None) -> Iterator[tuple[ast.stmt, ast.Call | ast.ClassDef]]:
        for child in ast.iter_child_nodes(node):
            inner = outer
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
                outer is None and isinstance(child, ast.stmt)
            ):
                inner = None if isinstance(child, ast.ClassDef) else child
            if isinstance(child, ast.ClassDef):
                yield child, child
                inner = None
            elif isinstance(child, ast.Call) and inner is not None:
                yield inner, child
            yield from walk(child, inner)

    return walk(tree, None)


def _opens(node: ast.Call | ast.ClassDef, text: str) -> str:
    """Return by which call something is opened that others may reach; nothing if none is."""
    if isinstance(node, ast.ClassDef):
        return next((base.id for base in node.bases if isinstance(base, ast.Name) and base.id in SERVERS), "")
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    has_sockets = re.search(r"^\s*(?:import|from) (?:socket|zmq)\b", text, re.MULTILINE) is not None
    if name in CALLS or name in NAMELESS or (name in OF_SOCKETS and has_sockets):
        return name
    if name != "open" or not node.args or (isinstance(function, ast.Attribute) and not _is(function.value, "os")):
        return ""
    first = node.args[0]
    where = first.value if isinstance(first, ast.Constant) else ""
    if isinstance(first, ast.JoinedStr):
        where = "".join(
            str(getattr(part, "value", "?")) if isinstance(part, ast.Constant) else "?" for part in first.values
        )
    is_null = isinstance(first, ast.Attribute) and first.attr == "devnull"
    is_descriptor = isinstance(where, int)
    return "" if is_null or is_descriptor or KERNELS.match(str(where)) else name


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _in_c(name: str, text: str) -> Iterator[Opening]:
    """Give the calls of a file in C, whose functions have their braces at the beginning of a line."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        call = IN_C.search(re.sub(r"/\*.*?\*/|\"[^\"]*\"", "", line))
        if call and line[:1].isspace() and not line.lstrip().startswith(("*", "//")):
            begin = next((at for at in range(number, 0, -1) if lines[at - 1].startswith("{")), number)
            end = next((at for at in range(number, len(lines)) if lines[at - 1].startswith("}")), number)
            yield Opening(name, number, call.group(1), begin, end)


def declarations(path: Path) -> list[Declared]:
    """Return what the comments of a file declare."""
    found: list[Declared] = []
    fields: dict[str, str] = {}
    last = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        comment = re.match(r"\s*(?:#|/?\*+) ?(.*?)(?: ?\*/)?$", line)
        field = comment and re.match(rf"({'|'.join(FIELDS)}): (.+)", comment.group(1))
        if field:
            if field.group(1) == "opens":
                fields = {}
                found.append(Declared(number, fields))
            last = field.group(1)
            fields[last] = field.group(2)
        elif comment and last and found:
            fields[last] += f" {comment.group(1).strip()}"
        else:
            last = ""
    return found


def of(opening: Opening, declared: list[Declared]) -> Declared | None:
    """Return what is declared of an opening: in its function, or in the comment that ends above it."""
    inside = [each for each in declared if opening.first - 6 <= each.line <= opening.last]
    before = [each for each in inside if each.line <= opening.line]
    if opening.path.endswith(".c"):  # one declaration for all that make the same call
        before = [each for each in declared if f"({opening.call})" in each.fields["opens"]] or before
    if not inside and opening.call in NAMELESS:
        return Declared(opening.line, {"opens": PRIVATE})
    return (before or inside or [None])[-1]


def found() -> Iterator[tuple[Opening, Declared | None]]:
    """Give each opening with what is declared of it."""
    in_c = [each for path in sources() if path.suffix == ".c" for each in declarations(path)]
    for path in sources():
        declared = declarations(path)
        for opening in openings(path):
            yield opening, of(opening, declared) or (of(opening, in_c) if path.suffix == ".c" else None)


def undeclared() -> list[str]:
    """Return what is opened, and declared nowhere."""
    return [f"{opening.path}:{opening.line}: {opening.call}" for opening, declared in found() if declared is None]


def rows() -> dict[str, tuple[dict[str, str], set[str]]]:
    """Return for each thing that is opened what is said of it, and the files that open it."""
    table: dict[str, tuple[dict[str, str], set[str]]] = {}
    for opening, declared in found():
        if declared is not None and not declared.fields["opens"].startswith("nothing, "):
            fields, files = table.setdefault(declared.fields["opens"], ({}, set()))
            fields.update(declared.fields)
            files.add(opening.path)
    return dict(sorted(table.items()))


def page() -> str:
    """Return the page."""
    lines = [
        "| what is opened | who reaches it | what guards it | which test tries it | where |",
        "|---|---|---|---|---|",
    ]
    for what, (fields, files) in rows().items():
        test = fields.get("proved by", "")
        where = ", ".join(f"`{Path(file).name}`" for file in sorted(files))
        lines.append(
            f"| {what} | {fields.get('reached by', '')} | {fields.get('guarded by', '')} | `{test}` | {where} |"
        )
    return INTRODUCTION + "\n".join(lines) + "\n"


INTRODUCTION = """# What others can reach

Each socket, file, memory and descriptor that a job opens and somebody else could get at. `scripts/openings.py` writes
this page from comments beside the code that opens them, and a test fails where something is opened that no comment
tells of. Files that the kernel writes, in `/proc` and `/sys`, are not listed. [Security](security.md) has the model
behind it: who is a stranger, and who is not.

Variables of the environment are those of [settings](settings.md). The user who starts a process sets them, and
processes of the same user, and root, can read them through `/proc`; no secret is ever among them
(`tests/security/test_exposure.py`).

"""


def main(arguments: list[str]) -> int:
    """Write the page, or say what is not in it."""
    missing = undeclared()
    print(*(f"{each} opens something that no comment declares: see scripts/openings.py" for each in missing), sep="\n")
    if "--check" not in arguments:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        print("docs/openings.md is not what scripts/openings.py writes")
        return 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
