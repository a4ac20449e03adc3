"""Render the conda recipes, as a build does before it looks for packages: python packaging/render.py

It needs `pip install py-rattler-build`, and asks no channel.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rattler_build import Stage0Recipe, VariantConfig


def main() -> int:
    for path in sorted(Path(__file__).parent.glob("conda/*/recipe.yaml")):
        rendered = Stage0Recipe.from_file(path).render(VariantConfig({"python": ["3.12"], "c_compiler": ["gcc"]}))
        for variant in rendered:
            package = variant.recipe.package
            print(f"{package.name} {package.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
