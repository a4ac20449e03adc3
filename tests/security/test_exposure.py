"""What a running job shows to others: where it listens, and nothing of its secret."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rankwise_network import secret

pytest.importorskip("rankwise_gloo_tcp")

ROOT = Path(__file__).parents[2]
#: 127.0.0.1, as the kernel lists it.
LOOPBACK = "0100007F:"


@pytest.mark.parametrize("transport", ["auto", "tcp", "shm"])
def test_a_job_on_one_host_listens_on_loopback_and_unix_sockets_only(job: Callable[..., Any], transport: str) -> None:
    with job(RANKWISE_GLOO_TRANSPORT=transport) as running:
        places = [place for rank in running.ranks for place in rank["listening"]]
        assert places, "no rank listens anywhere"
        for place in places:
            assert place["address"] in ("127.0.0.1", "::1", "unix"), place
            assert not place["shares_port"], place
            # A name in the file system could be left behind, or taken by somebody else.
            assert place["address"] != "unix" or place["abstract"], place
        launcher = running.processes()[0]
        ports = listening_ports(launcher)
        assert ports, "the store is missing"
        assert all(port.startswith(LOOPBACK) for port in ports), ports


def test_no_line_shares_a_port_or_binds_all_addresses() -> None:
    for path in [*ROOT.glob("core/rankwise/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]:
        text = path.read_text(encoding="utf-8")
        assert "SO_REUSEPORT" not in text, path
        assert "INADDR_ANY" not in text, path
        assert not re.search(r"""bind\(\s*\(?["'](0\.0\.0\.0|::|\*|)["']""", text), path
        assert "tcp://*" not in text, path


@pytest.mark.parametrize("given", [False, True], ids=["made by the launcher", "given in a file"])
def test_the_secret_is_in_no_command_line_and_no_environment(
    job: Callable[..., Any], tmp_path: Path, given: bool
) -> None:
    variables = {}
    if given:
        secret.new_file(tmp_path / "secret")
        variables["RANKWISE_SECRET_FILE"] = str(tmp_path / "secret")
    with job(**variables) as running:
        keys = {rank["secret"] for rank in running.ranks}
        assert len(keys) == 1
        key = bytes.fromhex(keys.pop())
        assert len(key) == secret.SECRET_NBYTES
        assert not given or key.hex() == (tmp_path / "secret").read_text().strip()
        read = 0
        for process in running.processes():
            with suppress(ProcessLookupError, FileNotFoundError):  # it has ended since
                for name in ("cmdline", "environ"):
                    assert_free_of(key, (process / name).read_bytes(), f"{process / name}")
                read += 1
        assert read >= 3, "the launcher and its two ranks"


def test_the_secret_is_in_no_record_and_no_error(job: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    with job("fail", RANKWISE_TRACE_DIR=str(tmp_path / "trace"), RANKWISE_DEBUG="detail") as running:
        key = bytes.fromhex(running.ranks[0]["secret"])
        for process in running.processes()[1:]:
            with suppress(ProcessLookupError, FileNotFoundError):
                os.kill(int(process.name), signal.SIGUSR1) if handles_usr1(process) else None
        out, err = running.end()
    assert "something is wrong with <job secret> and <job secret>" in err
    for text in (out, err):
        assert_free_of(key, text.encode(), "the output")
    records = list((tmp_path / "trace").iterdir())
    assert records
    for record in records:
        assert_free_of(key, record.read_bytes(), record.name)
        assert record.stat().st_mode & 0o077 == 0


def assert_free_of(key: bytes, data: bytes, where: str) -> None:
    import base64

    spellings = [key, key.hex().encode(), key.hex().upper().encode(), base64.b64encode(key), repr(key)[2:-1].encode()]
    assert not any(spelling in data for spelling in spellings), f"the secret is in {where}"


def handles_usr1(process: Path) -> bool:
    """Tell whether a process has a handler for SIGUSR1: another one would be ended by it."""
    caught = re.search(r"SigCgt:\s*([0-9a-f]+)", (process / "status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1)


def listening_ports(process: Path) -> list[str]:
    """Return the local addresses of the TCP sockets on which a process listens."""
    mine = set()
    for link in (process / "fd").iterdir():
        try:
            mine.add(os.readlink(link))
        except OSError:
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for row in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                found.append(fields[1])
    return found
