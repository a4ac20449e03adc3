from collections.abc import Callable, Iterator
from typing import Any

class FlightRecorder:
    on_failure: Callable[[Any], object] | None
    def __init__(self, make_entry: type, skipped: list[str], capacity: int, /) -> None: ...
    def trail(self, name: str, description: str, ranks: tuple[int, ...], /) -> Trail: ...
    def trails(self) -> list[Any]: ...
    def entries(self) -> list[Any]: ...
    def count(self) -> None: ...
    def clear(self) -> None: ...

class Trail: ...

class Turns:
    _turn: int
    _parity: int
    waited_ns: int
    def attach(
        self,
        memory: memoryview,
        rank: int,
        size: int,
        control: int,
        control_stride: int,
        records: int,
        data: int,
        area_nbytes: int,
        most_nbytes: int,
        may_spin: bool,
        /,
    ) -> None: ...
    def detach(self) -> None: ...
    def arrive(self) -> bool: ...
    def doze(self, longest_s: float, /) -> bool: ...
    def wake(self) -> None: ...

class Calls:
    def __init__(
        self,
        board: Turns,
        trail: Trail,
        comm: object,
        order: object,
        acquire: Callable[[bool], bool],
        release: Callable[[], None],
        waiting: Any,
        sequence: Iterator[int],
        collected: Any,
        ops: tuple[Any, ...],
        wait: Callable[[Any], Any],
        broken: Callable[[Any, int, BaseException | None], None],
        learn: Callable[[str, Any, int, tuple[int, ...]], tuple[Any, ...] | None],
        /,
    ) -> None: ...
