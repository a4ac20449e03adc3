"""Draw sentences from pages and help texts for a reader who has not written them: python docs/sample.py [SEED]

Each has its place, so that it can be found. What docs/prose.py would have written in other words is marked.
"""

from __future__ import annotations

import ast
import random
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

PROSE = runpy.run_path(str(Path(__file__).parent / "prose.py"))
COUNT, LEAST_WORDS = 200, 6


def main() -> None:
    """Print the seed and the sentences."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(1000)
    everything = sorted(sentences())
    print(f"seed {seed}: {COUNT} of {len(everything)} sentences")
    for place, sentence in random.Random(seed).sample(everything, COUNT):
        mark = "! " if list(PROSE["found_in"](sentence)) else ""
        print(f"{mark}{place}: {sentence}")


def sentences() -> Iterator[tuple[str, str]]:
    """Return all sentences of pages and help texts, each with its place."""
    texts = [(path, 1, path.read_text()) for path in PROSE["pages"]()]
    for path in PROSE["modules"]():
        texts += [(path, line, text) for line, text in PROSE["helps"](ast.parse(path.read_text()))]
    for path, begun, text in texts:
        for line, paragraph in PROSE["paragraphs"](text, code=""):
            if paragraph.startswith(":::"):  # what an API page shows
                continue
            for sentence in re.split(r"(?<=[.!?])\s+|\s*\|\s*", paragraph):
                if len(sentence.split()) >= LEAST_WORDS:
                    yield f"{path.relative_to(PROSE['ROOT'])}:{begun - 1 + line}", sentence


if __name__ == "__main__":
    main()
