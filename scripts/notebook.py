"""Run the cells of docs/notebooks.md in a Jupyter server, as a browser would: `scripts/notebook`.

The server listens at a port of the loopback address that the system chooses, and gets a kernel by HTTP. The cells go to
it over a WebSocket; what they print and show must be what the page has below them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

PAGE = Path(__file__).parents[1] / "docs/notebooks.md"
CELL = re.compile(
    r"^<!-- cell: (?P<how>[^\n]+) -->\n```python\n(?P<code>.*?)^```$(?:\n\n```text\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
TIMEOUT_S = 60
TOKEN = uuid4().hex


class Outcome(NamedTuple):
    """What a cell has printed or shown, and the name of its error."""

    text: str
    error: str


async def main() -> int:
    """Run all cells in one kernel; return 0 if each did what the page says."""
    wrong = []
    cells = list(CELL.finditer(PAGE.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        async with served(folder) as url, kernel(url) as ask:
            for cell in cells:
                outcome = await asyncio.wait_for(ask(cell["code"], cell["how"].partition("told ")[2]), TIMEOUT_S)
                problem = difference(cell, outcome)
                print(f"{'wrong' if problem else 'right'}: {cell['code'].splitlines()[0]}")
                wrong += [problem] if problem else []
    print("\n".join(wrong) or f"{len(cells)} cells did what the page says")
    return bool(wrong)


def difference(cell: re.Match[str], outcome: Outcome) -> str:
    """Return what is wrong with an outcome; "" if nothing is."""
    expected = cell["how"].removeprefix("raises ") if cell["how"].startswith("raises ") else ""
    if outcome.error != expected:
        return f"{cell['code']}raised {outcome.error or 'nothing'}:\n{outcome.text}"
    pattern = re.escape((cell["shown"] or "...").strip()).replace(r"\.\.\.", ".*")
    if not re.fullmatch(pattern, outcome.text.strip(), re.DOTALL):
        return f"{cell['code']}showed:\n{outcome.text}"
    return ""


@asynccontextmanager
async def served(folder: str) -> Any:
    """Start a server in a folder of its own, and yield its address."""
    settings = {"token": TOKEN, "port": 0, "ip": "127.0.0.1", "open_browser": False, "root_dir": folder}
    words = [f"--{'ServerApp' if name != 'token' else 'IdentityProvider'}.{name}={v}" for name, v in settings.items()]
    more = {"JUPYTER_RUNTIME_DIR": folder, "HOME": folder, "IPYTHONDIR": folder}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER_", "RANKWISE_"))}
    where = {**kept, **more, "PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"}
    command = [sys.executable, "-m", "jupyter_server", "--allow-root", *words]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=where, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        port = await asyncio.wait_for(port_of(process.stderr), TIMEOUT_S)
        reading = asyncio.create_task(process.stderr.read())  # or its pipe would fill
        yield f"127.0.0.1:{port}"
        reading.cancel()
    finally:
        process.terminate()
        await process.wait()


async def port_of(told: asyncio.StreamReader) -> str:
    """Return the port that a server says it listens at."""
    lines = ""
    while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/", lines)):
        line = await told.readline()
        if not line:
            raise SystemExit(f"the Jupyter server has not begun:\n{lines}")
        lines += line.decode()
    return found[1]


async def patiently(ask: Any) -> Any:
    """Ask a server that says where it listens a moment before it does."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return await ask()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


@asynccontextmanager
async def kernel(url: str) -> Any:
    """Start a kernel, and yield what runs a cell in it."""
    asked = {"headers": {"Authorization": f"token {TOKEN}"}, "request_timeout": TIMEOUT_S}
    post = {"method": "POST", "body": "{}", **asked}
    answer = await patiently(lambda: AsyncHTTPClient().fetch(f"http://{url}/api/kernels", **post))
    number = json.loads(answer.body)["id"]
    channels = HTTPRequest(f"ws://{url}/api/kernels/{number}/channels", **asked)  # type: ignore[arg-type]
    line = await websocket_connect(channels)

    async def send(channel: str, kind: str, content: dict[str, Any]) -> str:
        header = {"msg_id": uuid4().hex, "msg_type": kind, "session": number, "username": "", "version": "5.3"}
        message = {"channel": channel, "header": header, "parent_header": {}, "metadata": {}, "content": content}
        await line.write_message(json.dumps(message))
        return header["msg_id"]

    async def ask(code: str, told: str) -> Outcome:
        """Run a cell; its debugger is told one line, and then to quit."""
        lines = [told, "quit"]
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True, "stop_on_error": False}
        sent = await send("shell", "execute_request", content)
        text, error = "", ""
        while True:
            message = json.loads(await line.read_message())
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                text += content["text"].replace("\r\n", "\n")
            elif kind in ("execute_result", "display_data"):
                text += content["data"].get("text/plain", "") + content["data"].get("text/html", "")
            elif kind == "error":
                error = content["ename"]
            elif kind == "input_request":
                await send("stdin", "input_reply", {"value": lines.pop(0) if lines else "quit"})
            elif kind == "status" and content["execution_state"] == "idle":
                return Outcome(text, error)

    try:
        yield ask
    finally:
        line.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
