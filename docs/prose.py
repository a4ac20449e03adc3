"""Read pages and docstrings for sentences that strangers stumble over: python docs/prose.py [PAGE...]

A page is cut into paragraphs without its code. The vocabulary says what to write instead; a sentence may have so many
words. `tests/docs/test_prose.py` holds all pages to it, and `scripts/docs` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 60
#: What not to write, and what to write instead.
VOCABULARY = {
    r"whoever|whomever": "name the subject: the rank, the process, the user who",
    r"those who|he who": "name them: the ranks that, users who",
    r"at once": "immediately, in one call, or at the same time: say which",
    r"mourn\w*|heed\w*|waver\w*|lest": "a plainer word",
    r"for the sake of": "for, or because",
    r"hears? (?:of|that)|hear of": "learn, or notice: rank 1 learns that",
    r"gives? (?:it|them) up for": "abort",
    r"makes? no call of": "does not call",
    r"utili[sz]e\w*|leverag\w*": "use",
    r"simply|obviously|of course|easily": "nothing: what is easy needs no word for it",
    r"in order to": "to",
    r"mend(?:s|ed|ing)?": "fix, or repair",
    r"anew|oftener|thereof|whereby|therein": "again, more often, or the noun",
    r"and (?:its|their) kin": "and the other calls of this kind: name them",
    r"good-?byes?": "close, end, or GOODBYE, the frame",
    r"(?:to|from|by|for|of) who(?:ever)?": "name the subject: the rank, the process, the user",
    r"anybody's guess|last words|in the midst": "undefined, the end of its output, in the middle",
    r"stands? still|stood still": "hang, or wait for ever",
    r"(?:the|each) rooms|household|the house": "package: a part of the sources",
    r"and/or": "or",
    r"common path|paths? parts?": "the same calls, made another call",
    r"signs? of life": "heartbeat",
    r"broken off": "interrupted",
    r"do(?:es)? the like": "likewise",
    r"comes along|comes? to a rest": "is installed too, stops",
    r"tells? about": "explain, show",
    r"one click away": "see [the page] for it",
    r"may run (?:it|them) again(?: and again)?": "safe to rerun",
    r"needs? nothing but": "need only",
    r"default what": "defaults to",
    r"healthy, or what is not": "or lists the problems",
    r"whatever leaves": "any work that does not touch",
    r"takes? the place of \w+'s": "replace",
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
PATTERNS = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): instead for words, instead in VOCABULARY.items()}


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Return the paragraphs, items and cells of a page with the line where each begins, without code and comments."""
    blank = lambda found: "\n" * found[0].count("\n")  # noqa: E731
    text = re.sub(r"^([ ]*)(```+).*?^\1\2$|<!--.*?-->", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*(?:\n[^`\n]*)?`", lambda found: "code" + blank(found), text)
    begun, lines = 1, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if not line.strip() or re.match(r"\s*(?:[-*+] |\d+\. |\||#)", line):
            if lines:
                yield begun, " ".join(lines)
            begun, lines = number, []
        if line.strip():
            begun, lines = begun if lines else number, [*lines, line.strip()]


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Return what a page should say in other words: the line, and why."""
    for line, paragraph in paragraphs(text):
        for pattern, instead in PATTERNS.items():
            for found in pattern.finditer(paragraph):
                yield line, f"{found[0]!r}: write {instead}"
        for sentence in re.split(r"[.!?:;]\s+|\s\|\s", paragraph):
            if (words := len(sentence.split())) > MOST_WORDS:
                yield line, f"a sentence of {words} words: {' '.join(sentence.split()[:6])} ..."


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Return what the docstrings of a module should say in other words: about where, and why."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            prose = re.sub(r"^.*[├└│].*$", "", text.partition("\nExamples:")[0], flags=re.MULTILINE)  # no trees
            yield from ((node.body[0].lineno - 1 + line, why) for line, why in found_in(prose))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DESCRIPTION":  # of a command
            yield from ((node.lineno - 1 + line, why) for line, why in found_in(ast.literal_eval(node.value)))


def modules() -> list[Path]:
    """Return the sources of the core and of the plugins, whose docstrings the API pages show or developers read."""
    return sorted({*ROOT.glob("core/rankwise/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")})


def pages() -> list[Path]:
    """Return the pages that strangers read."""
    return sorted({*ROOT.glob("*.md"), *ROOT.glob("plugins/*/README.md"), *ROOT.glob("docs/**/*.md")})


def main() -> int:
    """Print what was found, and return 1 if there was something."""
    chosen = [Path(name).absolute() for name in sys.argv[1:]] or [*pages(), *modules()]
    readers = {".py": docstrings, ".md": found_in}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {why}"
        for path in chosen
        for line, why in readers[path.suffix](path.read_text())
    ]
    print("\n".join(found) or f"{len(chosen)} pages and modules read well")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
