"""Ask Lighthouse, in a browser, how fast pages of the site are and what practice they follow: `scripts/accessible`.

The first argument is the program lighthouse, the second the folder of a site as it is published (see mkdocs.yml:
`RANKWISE_DOCS_OFFLINE=false`). Pages are served at the loopback address, compressed and to be kept, as web servers do.
On a busy machine every page seems slow, so the best of three tries counts.
"""

from __future__ import annotations

import functools
import gzip
import http.server
import io
import itertools
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

PAGES = runpy.run_path(str(Path(__file__).parent / "accessible.py"))["PAGES"]
LOOK = runpy.run_path(str(Path(__file__).parent / "look.py"))
CATEGORIES = ("performance", "best-practices")
LEAST = 95
#: Lighthouse's own telephone has a processor four times as slow and a slow connection. What pages get there is only
#: printed; docs/developers/aims.md says what bounds it.
FORMS = {"desktop": ("--preset=desktop",), "telephone": ()}
TRIES = 3
TIMEOUT_S = 120


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder, compressed."""

    protocol_version = "HTTP/1.1"

    def send_head(self) -> io.BytesIO | None:  # type: ignore[override]
        """Send the headers of a file, and return what follows them."""
        path = self.translate_path(self.path)
        if not os.path.isfile(path):
            self.send_error(404)
            return None
        data = gzip.compress(Path(path).read_bytes(), 5)
        self.send_response(200)
        headers = {"Content-Type": self.guess_type(path), "Content-Encoding": "gzip", "Content-Length": str(len(data))}
        for name, value in {**headers, "Cache-Control": "max-age=31536000"}.items():
            self.send_header(name, value)
        self.end_headers()
        return io.BytesIO(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def scores(lighthouse: str, browser: str, url: str, form: str) -> dict[str, int]:
    """Return what a page gets in each category, of 100, on a desktop or on a telephone."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "told.json")
        flags = " ".join(LOOK["PLAIN"])
        options = [
            "--quiet",
            *FORMS[form],
            f"--only-categories={','.join(CATEGORIES)}",
            f"--chrome-flags={flags}",
        ]
        command = [lighthouse, url, *options, "--output=json", f"--output-path={told}"]
        environment = {**os.environ, "CHROME_PATH": browser, "CI": "1"}
        subprocess.run(command, check=True, timeout=TIMEOUT_S, env=environment)
        found = json.loads(told.read_text())["categories"]
    return {name: round(100 * (found[name]["score"] or 0)) for name in CATEGORIES}


def best(lighthouse: str, browser: str, url: str, form: str) -> dict[str, int]:
    """Return the best of each category in three tries, or fewer if they are enough."""
    found = dict.fromkeys(CATEGORIES, 0)
    for _ in range(TRIES):
        again = scores(lighthouse, browser, url, form)
        found = {name: max(found[name], again[name]) for name in CATEGORIES}
        if min(found.values()) >= LEAST:
            break
    return found


def main() -> int:
    """Ask about each page, and return 1 if one gets too little."""
    lighthouse, site = sys.argv[1:]
    browser = next((path for name in LOOK["BROWSERS"] if (path := shutil.which(name))), None)
    if browser is None:
        print("nobody was asked how fast pages are: there is no browser here (Chromium)")
        return 0
    handler = functools.partial(Handler, directory=site)
    least = 100
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for form, page in itertools.product(FORMS, PAGES):
            found = best(lighthouse, browser, f"http://127.0.0.1:{server.server_port}/{page}.html", form)
            print(f"{page}, {form}: {', '.join(f'{name} {score}' for name, score in found.items())}", flush=True)
            least = min(least, *found.values()) if form == "desktop" else least
        server.shutdown()
    return least < LEAST


if __name__ == "__main__":
    sys.exit(main())
