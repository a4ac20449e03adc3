"""Where the communicators of the double meet: in the memory of a process, or in a folder between processes."""

from __future__ import annotations

import hashlib
import pickle
import random
import threading
import time
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 20.0


class Fabric:
    """Places that ranks know by name, where each leaves one thing that all may see."""

    def __init__(self) -> None:
        #: An interrupt leaves it, which it might not leave a condition that it meets at the door.
        self.mutex = threading.RLock()
        self._changed = threading.Condition(self.mutex)
        self._places: dict[Any, dict[Any, Any]] = defaultdict(dict)
        self.refuse_shared_gpus = False
        #: Whether calls block, and not only say that they are not done.
        self.blocking = False
        #: What no program may do, and some rank has done.
        self.crimes: list[str] = []
        self.late = random.Random(0)

    def put(self, place: Any, who: Any, what: Any = None) -> None:
        """Leave something at a place."""
        with self.mutex:
            self._places[place][who] = what
            self.tell()

    def come(self, place: Any) -> set[Any]:
        """Return who has left something there."""
        with self.mutex:
            return set(self._places[place])

    def get(self, place: Any, who: Any) -> Any:
        """Return what somebody has left there."""
        return self._places[place][who]

    def tell(self) -> None:
        """Have conditions looked at again, with the mutex held."""
        self._changed.notify_all()

    def wait_for(self, condition: Callable[[], Any]) -> bool:
        """Wait, without holding the lock, until a condition holds; tell whether it does."""
        with self._changed:
            return bool(self._changed.wait_for(condition, PATIENCE_S))


class Folder(Fabric):
    """The same for processes, in files of a folder."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def put(self, place: Any, who: Any, what: Any = None) -> None:
        """Write a file, which is there with all its content or not at all."""
        folder = self._of(place)
        folder.mkdir(parents=True, exist_ok=True)
        new = folder.with_name(f"{folder.name}.{threading.get_native_id()}")
        new.write_bytes(pickle.dumps(what))
        new.rename(folder / repr(who))

    def come(self, place: Any) -> set[Any]:
        """List the files."""
        folder = self._of(place)
        return {literal_eval(file.name) for file in folder.iterdir()} if folder.is_dir() else set()

    def get(self, place: Any, who: Any) -> Any:
        """Read a file."""
        return pickle.loads((self._of(place) / repr(who)).read_bytes())

    def wait_for(self, condition: Callable[[], Any]) -> bool:
        """Look again and again, as other processes cannot notify this one."""
        end = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < end:
            time.sleep(0.001)
        return bool(condition())

    def _of(self, place: Any) -> Path:
        return self._path / hashlib.sha1(repr(place).encode()).hexdigest()
