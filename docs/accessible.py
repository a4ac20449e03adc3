"""Ask axe-core, in a browser, whether pages of the built site are accessible: `scripts/accessible`.

The first argument is axe.min.js of the package axe-core, the second the folder of the site. Each page is asked about in
light and in dark.
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path

LOOK = runpy.run_path(str(Path(__file__).parent / "look.py"))
#: One page of each kind.
PAGES = (
    *("index", "install", "first-five-minutes", "cheat-sheet", "troubleshooting", "errors", "differences"),
    *("backends", "performance", "api/collectives"),
)
#: The theme lets the keyboard reach wide programs where there is a pointer, which a browser without a screen lacks.
POINTER = "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
#: Shows one page after the other in a frame, and has axe write down what is wrong with each.
ASKER = """<!DOCTYPE html><body><pre id="found"></pre><script id="axe" type="text/plain">AXE</script><script>
const wrong = [], source = document.getElementById("axe").textContent;
async function ask(page, scheme) {
  const frame = document.createElement("iframe");
  frame.width = 1280; frame.height = 900;
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; frame.src = page; });
  const inside = frame.contentDocument, script = inside.createElement("script");
  const still = inside.createElement("style");
  still.textContent = "* { transition: none !important }";  // else the theme changes its colours little by little
  inside.head.append(still);
  inside.body.setAttribute("data-md-color-scheme", scheme);
  script.textContent = source;
  inside.head.append(script);
  // The theme's script puts a landmark without a name beside each program, for the button that copies it.
  const off = { "landmark-unique": { enabled: false } };
  const rules = { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], rules: off };
  const { violations } = await frame.contentWindow.axe.run(inside, rules);
  for (const { id, nodes } of violations) {
    const first = nodes[0].html.slice(0, 150).replace(/\\s+/g, " ");
    wrong.push(`${page}, ${scheme}: ${id}, ${nodes.length} times: ${first}`);
  }
  frame.remove();
}
(async () => {
  try {
    for (const page of ASKED) for (const scheme of ["default", "slate"]) await ask(page, scheme);
  } catch (error) { wrong.push(`axe-core came to no end: ${error}`); }
  document.getElementById("found").textContent = JSON.stringify({ wrong });
})();
</script></body>"""


def main() -> int:
    """Ask about each page, and return 1 if something is wrong."""
    axe, site = Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "site").absolute()
    browser = next((path for name in LOOK["BROWSERS"] if (path := shutil.which(name))), None)
    if browser is None or not axe.exists():
        print("nobody was asked about accessibility: there is no browser here (Chromium), or no axe-core")
        return 0
    pages = [(site / f"{name}.html").as_uri() for name in PAGES]
    program = ASKER.replace("ASKED", json.dumps(pages))
    LOOK["PLAIN"].append(POINTER)
    found = LOOK["look_with"](browser, program.replace("AXE", axe.read_text().replace("</script", "<\\/script"), 1))
    print("\n".join(found["wrong"]) or f"axe-core finds nothing wrong on {len(pages)} pages, in light and in dark")
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
