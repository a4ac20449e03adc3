"""Read pages and docstrings for sentences that strangers stumble over: python docs/prose.py [PAGE...]

A page is cut into paragraphs without its code. The vocabulary says what to write instead; a sentence may have so many
words. `tests/docs/test_prose.py` holds all pages to it, and `scripts/docs` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
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
#: What nobody who writes for a living leaves in a page or a help text; docstrings may be terser.
STILTED = {
    r"by way of": "through",
    r"at the (?:most|least)": "at most, at least",
    r"nothing but": "only",
    r"some \d[\d,.]*": "about",
    r"(?:an?|one|each) [\w'-]+ of (?:its|their|your) own": "its own thread, or a separate thread",
    r"tells? that": "say that",
    r"in the place of": "instead of, or replaces",
    r"takes? the place of": "replace",
    r"hands? (?:it|them) on": "pass on",
    r"(?:the|its|their) group goes on|a group goes on": "the group stays usable",
    r"(?<=[.:;] )Of (?:an?|the|these|those|this|that|several|such|all|two|both|its|their|each)": "the subject first",
    r"(?<!there )(?:is|are|was|were) no (?:rank|backend|bug|error|dependency|call|object|part)": "is not a",
    r"what (?:of (?:it|that|them|these)) is": "name it",
    r"(?:who|which|what) (?:is|was) waited for": "the rank that the others wait for",
    r"(?:was|is|were|are) (?:heard|asked|told) (?:of|about)": "name the subject: rank 1 learns, the launcher asks",
    r"be it": "even if it is",
    r"such as those? of": "such as",
    r"as (?:it|they) (?:stands?|was|were)": "unchanged",
    r"and no(?:body| one) else": "only",
    r"what was (?:seen|aimed at)": "result, aim",
    r"the own": "its own",
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Patterns = dict[re.Pattern[str], str]


def compiled(vocabulary: dict[str, str]) -> Patterns:
    """Return what finds the words of a vocabulary, as whole words and in capitals or not."""
    return {re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE): instead for words, instead in vocabulary.items()}


PATTERNS = compiled(VOCABULARY)
OF_PAGES = {**PATTERNS, **compiled(STILTED)}


def paragraphs(text: str, code: str = "code") -> Iterator[tuple[int, str]]:
    """Return the paragraphs, items and cells of a page with the line where each begins, without blocks and comments.

    Code within a line is replaced by a word, or stays if the word is empty.
    """
    blank = lambda found: "\n" * found[0].count("\n")  # noqa: E731
    text = re.sub(r"^([ ]*)(```+).*?^\1\2$|<!--.*?-->", blank, text, flags=re.MULTILINE | re.DOTALL)
    if code:
        text = re.sub(r"`[^`\n]*(?:\n[^`\n]*)?`", lambda found: code + blank(found), text)
    begun, lines = 1, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if not line.strip() or re.match(r"\s*(?:[-*+] |\d+\. |\||#)", line):
            if lines:
                yield begun, " ".join(lines)
            begun, lines = number, []
        if line.strip():
            begun, lines = begun if lines else number, [*lines, line.strip()]


def found_in(text: str, patterns: Patterns = OF_PAGES) -> Iterator[tuple[int, str]]:
    """Return what a page should say in other words: the line, and why."""
    for line, paragraph in paragraphs(text):
        for pattern, instead in patterns.items():
            for found in pattern.finditer(paragraph):
                yield line, f"{found[0]!r}: write {instead}"
        for sentence in re.split(r"[.!?:;]\s+|\s\|\s", paragraph):
            if (words := len(sentence.split())) > MOST_WORDS:
                yield line, f"a sentence of {words} words: {' '.join(sentence.split()[:6])} ..."


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Return what the docstrings and help texts of a module should say in other words: about where, and why."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            prose = re.sub(r"^.*[├└│].*$", "", text.partition("\nExamples:")[0], flags=re.MULTILINE)  # no trees
            yield from ((node.body[0].lineno - 1 + line, why) for line, why in found_in(prose, PATTERNS))
    for begun, text in helps(tree):
        yield from ((begun - 1 + line, why) for line, why in found_in(text))


def helps(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return the help texts of a module, each with its line: a command's description, and what explains its options."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DESCRIPTION":
            yield node.lineno, ast.literal_eval(node.value)
        elif isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant):
            yield node.value.lineno, str(node.value.value)


def modules() -> list[Path]:
    """Return the sources of the core and of the plugins, whose docstrings the API pages show or developers read."""
    return sorted({*ROOT.glob("core/rankwise/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")})


def pages() -> list[Path]:
    """Return the pages that strangers read."""
    return sorted({*ROOT.glob("*.md"), *ROOT.glob("plugins/*/README.md"), *ROOT.glob("docs/**/*.md")})


def main() -> int:
    """Print what was found, and return 1 if there was something."""
    chosen = [Path(name).absolute() for name in sys.argv[1:]] or [*pages(), *modules()]
    readers: dict[str, Callable[[str], Iterator[tuple[int, str]]]] = {".py": docstrings, ".md": found_in}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {why}"
        for path in chosen
        for line, why in readers[path.suffix](path.read_text())
    ]
    print("\n".join(found) or f"{len(chosen)} pages and modules read well")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
