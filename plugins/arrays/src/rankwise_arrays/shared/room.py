"""How much memory is free: of the machine, and of the control group in which this process is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def check_room(wanted: int, what: str) -> None:
    """See to it that so much memory is free, as the system gives out more than there is, and kills for it later.

    Raises:
        MemoryError: It is not; the error says how much is, and what would help.
    """
    for free, where in _rooms():
        if wanted > free:
            raise MemoryError(
                f"{what} would take {readable(wanted)} of this host, and {readable(free)} are free {where}; "
                f"copies='host' takes one copy instead of one a rank, and fewer or smaller elements take less"
            )


def readable(nbytes: int) -> str:
    """Return a number of bytes as people write it."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def _rooms() -> Iterator[tuple[int, str]]:
    available = _field(Path("/proc/meminfo"), "MemAvailable:")
    if available is not None:
        yield 1024 * available, "on the machine"
    for folder in _control_groups():
        most, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if most is not None and used is not None:
            kept = _field(folder / "memory.stat", "inactive_file") or 0  # files, which go when room is wanted
            yield max(0, most - used + kept), f"in this process's control group (memory.max of {folder})"


def _control_groups() -> Iterator[Path]:
    """Yield the folders of this process's control group and of those around it; nothing where there are none."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::/"):
            folder = _ROOT / line[len("0::/") :]
            yield from (each for each in (folder, *folder.parents) if each == _ROOT or _ROOT in each.parents)


def _field(path: Path, name: str) -> int | None:
    for line in _text(path).splitlines():
        words = line.split()
        if words[0] == name:
            return int(words[1])
    return None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
