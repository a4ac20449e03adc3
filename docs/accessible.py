"""Ask axe-core, in a browser, whether pages of the built site are accessible: `scripts/accessible`.

The first argument is axe.min.js of the package axe-core, the second the folder of the site. Each page is asked about in
light and in dark, on a wide and on a narrow screen; no rule is left out.
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
#: Each page is asked about in light and in dark, and once more when its window has become narrow.
SHOWN = (("default", 1280), ("slate", 1280), ("default", 375))
#: Shows one page after the other in a frame, and has axe write down what is wrong with each.
ASKER = """<script id="axe" type="text/plain">AXE</script><script>
const wrong = [], source = document.getElementById("axe").textContent;
// Return when the page has been drawn at its width, and observers of sizes have been told.
const drawn = (view) => new Promise((done) => view.requestAnimationFrame(() => view.requestAnimationFrame(done)));
async function ask(page) {
  const frame = document.createElement("iframe");
  frame.height = 900;
  frame.width = SHOWN[0][1];
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; frame.src = page; });
  const inside = frame.contentDocument, script = inside.createElement("script");
  const still = inside.createElement("style");
  still.textContent = "* { transition: none !important }";  // else the theme changes its colours little by little
  inside.head.append(still);
  script.textContent = source;
  inside.head.append(script);
  const runOnly = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
  for (const [scheme, width] of SHOWN) {
    inside.body.setAttribute("data-md-color-scheme", scheme);
    frame.width = width;
    await drawn(frame.contentWindow);
    const { violations } = await frame.contentWindow.axe.run(inside, { runOnly });
    for (const { id, nodes } of violations) {
      const first = nodes[0].html.slice(0, 150).replace(/\\s+/g, " ");
      wrong.push(`${page} at ${width}, ${scheme}: ${id}, ${nodes.length} times: ${first}`);
    }
  }
  frame.remove();
}
(async () => {
  try {
    for (const page of ASKED) await ask(page);
  } catch (error) { wrong.push(`axe-core came to no end: ${error}`); }
  tell({ wrong });
})();
</script>"""


def main() -> int:
    """Ask about each page, and return 1 if something is wrong."""
    axe, site = Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "site").absolute()
    browser = next((path for name in LOOK["BROWSERS"] if (path := shutil.which(name))), None)
    if browser is None or not axe.exists():
        print("nobody was asked about accessibility: there is no browser here (Chromium), or no axe-core")
        return 0
    pages = [(site / f"{name}.html").as_uri() for name in PAGES]
    program = ASKER.replace("ASKED", json.dumps(pages)).replace("SHOWN", json.dumps(SHOWN))
    found = LOOK["look_with"](browser, program.replace("AXE", axe.read_text().replace("</script", "<\\/script"), 1))
    well = f"axe-core finds nothing wrong on {len(pages)} pages, in light, in dark and narrow"
    print("\n".join(found["wrong"]) or well)
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
