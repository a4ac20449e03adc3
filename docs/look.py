"""Look at the built site in a browser, opened from the disk: python docs/look.py [SITE]

Each page is shown on a narrow and on a wide screen, in light and in dark. Nothing may stick out, no picture may be
missing, no program beside another may be cut off, nor a table on the wide screen, no name in a table be broken, nothing
may be fetched from elsewhere, and the search must find something: if the site has the page docs/developers/stranger.md,
the answer to each of its questions, among the first five pages. The first screen of a page with a part of class `front`
must answer what, how and how fast.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PLAIN = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"),
    # A browser of its own asks for nothing on the network.
    *("--no-first-run", "--disable-quic", "--disable-sync", "--disable-background-networking"),
    "--disable-component-update",
]
WIDTHS = (375, 1280)
#: What a stranger searches for, and so many pages from the top among which the answer must be.
STRANGER = Path(__file__).parent / "developers/stranger.md"
MOST = 5
TIMEOUT_S = 900
#: The first screens of a desktop and of a telephone, and what a stranger must see there without moving anything.
SCREENS = ((1280, 720), (375, 812))
FIRST = {
    "what it is": "arrays.*torch\\.distributed",
    "how it is installed": "pip install",
    "how it is used": "init_process_group.*all_reduce.*destroy_process_group",
    "how it is started": "rankwise run -n",
    "how fast it is": "rankwise 1 .*Open MPI [\\d.]+x .*torch's gloo [\\d.]+x",
    "what an error says": "Error: .*rank \\d called .* at \\w+\\.py:\\d",
}

#: Around a program: the page counts as loading, so that the browser waits, until the program tells what it has found.
FRAME = """<!DOCTYPE html><body><pre id="found"></pre><iframe id="busy" hidden></iframe><script>
const busy = document.getElementById("busy").contentDocument;
busy.open();
function tell(found) {
  document.getElementById("found").textContent = JSON.stringify(found);
  busy.close();
}
</script>PROGRAM</body>"""
#: Shows one page after the other in a frame, and writes down what is wrong with each.
LOOKER = """<script>
const pages = PAGES, widths = WIDTHS, wrong = [];
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function show(url, width, height = 900) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = height;
  frame.style.border = 0;
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; frame.src = url; });
  const images = [...frame.contentDocument.images];
  for (const image of images) image.loading = "eager";  // else those further down come when somebody scrolls there
  await Promise.all(images.map((image) => image.decode().catch(() => {})));
  await pause(50);
  return frame;
}
function look(page, width, scheme, inside) {
  const tell = (what) => wrong.push(`${page} at ${width}, ${scheme}: ${what}`), view = inside.defaultView;
  inside.body.setAttribute("data-md-color-scheme", scheme);
  if (inside.documentElement.scrollWidth > view.innerWidth) tell("it is wider than the screen");
  for (const image of inside.images)
    if (view.getComputedStyle(image).display !== "none" && !image.naturalWidth) tell(`no picture: ${image.src}`);
  if (width === WIDE) for (const place of inside.querySelectorAll(".md-typeset__scrollwrap"))
    if (place.scrollWidth > place.clientWidth + 1) tell(`a table is cut off: ${place.innerText.slice(0, 30)}`);
  for (const code of inside.querySelectorAll(".beside code"))
    if (code.scrollWidth > code.clientWidth + 1) tell(`cut off: ${code.innerText.slice(0, 30)}`);
  for (const code of inside.querySelectorAll("table:not([class]) code"))
    if (!/[ -]/.test(code.textContent) && !code.querySelector("wbr") && code.getClientRects().length > 1)
      tell(`broken: ${code.textContent}`);
  for (const one of view.performance.getEntriesByType("resource"))
    if (!one.name.startsWith("file:")) tell(`fetched from elsewhere: ${one.name}`);
}
// Return the words that are on the screen: not below it, beside it, hidden, or under something else.
function seen(inside, width, height) {
  const words = [], walker = inside.createTreeWalker(inside.body, NodeFilter.SHOW_TEXT), range = inside.createRange();
  while (walker.nextNode()) {
    range.selectNodeContents(walker.currentNode);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 1 && box.height > 1);
    const shown = ({ left, top, right, bottom }) => left >= 0 && top >= 0 && right <= width && bottom <= height
      && walker.currentNode.parentElement.contains(inside.elementFromPoint((left + right) / 2, (top + bottom) / 2));
    if (boxes.length && boxes.every(shown)) words.push(walker.currentNode.textContent);
  }
  return words.join(" ").replace(/\\s+/g, " ");
}
async function lookFirst(page) {
  for (const [width, height] of SCREENS) {
    const frame = await show(page, width, height), inside = frame.contentDocument;
    if (inside.querySelector(".front")) for (const scheme of ["default", "slate"]) {
      inside.body.setAttribute("data-md-color-scheme", scheme);
      const words = seen(inside, width, height);
      for (const [what, pattern] of Object.entries(FIRST)) if (!new RegExp(pattern).test(words))
        wrong.push(`${page} on the first screen at ${width}, ${scheme}: it does not say ${what}`);
    }
    frame.remove();
  }
}
// Type words into the search, and return the pages that it finds.
async function search(inside, words) {
  const field = inside.querySelector("[data-md-component=search-query]");
  const type = (text) => { field.value = text; field.dispatchEvent(new inside.defaultView.KeyboardEvent("keyup")); };
  const links = () => [...inside.querySelectorAll(".md-search-result__item > a")];
  const found = () => links().map((link) => link.href.replace(/[?#].*/, ""));
  const until = async (done) => { for (let tries = 0; tries < 1000 && !done(); ++tries) await pause(20); };
  type("");
  await until(() => !found().length);
  type(words);
  await until(() => found().length);
  return found();
}
(async () => {
  for (const page of pages) for (const width of widths) {
    const frame = await show(page, width);
    for (const scheme of ["default", "slate"]) look(page, width, scheme, frame.contentDocument);
    frame.remove();
  }
  await lookFirst(INDEX);
  const frame = await show(INDEX + "?q=PeerDiedError", 1400);
  let hits = 0;
  for (let tries = 0; tries < 300 && !hits; ++tries) {
    await pause(100);
    hits = frame.contentDocument.querySelectorAll(".md-search-result__item").length;
  }
  if (!hits) wrong.push("the search finds nothing");
  else for (const [task, words, answer] of TASKS) {
    const first = (await search(frame.contentDocument, words)).slice(0, MOST);
    if (!first.includes(new URL(answer, INDEX).href)) wrong.push(`"${words}" does not find ${answer}: ${task}`);
  }
  tell({ pages: pages.length, hits, wrong });
})();
</script>"""


def main() -> int:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "site").absolute()
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print("the site was not looked at: there is no browser here (Chromium)")
        return 0
    pages = sorted(path.as_uri() for path in site.glob("**/*.html") if path.name != "404.html")
    tasks = searches() if (site / "developers/stranger.html").exists() else []
    values = {"PAGES": pages, "WIDTHS": WIDTHS, "WIDE": WIDTHS[-1], "INDEX": (site / "index.html").as_uri()}
    values |= {"TASKS": tasks, "MOST": MOST, "SCREENS": SCREENS, "FIRST": FIRST}
    program = LOOKER
    for name, value in values.items():
        program = re.sub(rf"\b{name}\b", lambda _, value=value: json.dumps(value), program)  # type: ignore[misc]
    found = look_with(browser, program)
    print("\n".join(found["wrong"]) or f"{found['pages']} pages look well, and the search finds something")
    return bool(found["wrong"])


def searches() -> list[tuple[str, str, str]]:
    """Return what a stranger looks for: the task, the words, and the page of the site."""
    row = r"^\| ([^|]+) \| ([^|]+) \| \[[^]]+\]\(\.\./([^)#]+)\.md[^)]*\) \|$"
    rows = re.findall(row, STRANGER.read_text(), re.MULTILINE)
    return [(task, words, f"{page}.html") for task, words, page in rows]


def look_with(browser: str, program: str) -> dict[str, list[str]]:
    """Return what the program has found, once it is done."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "look.html")
        page.write_text(FRAME.replace("PROGRAM", program))
        command = [browser, *PLAIN, f"--user-data-dir={folder}/profile", "--dump-dom"]
        done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    told = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    if told is None:
        raise SystemExit(f"the browser has not come to the end of the pages:\n{done.stderr[-2000:]}")
    return json.loads(unescape(told[1]))  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
