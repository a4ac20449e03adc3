"""A declaration is checked completely, once, as it comes in: whatever is wrong with it is told by the field it is in.

What comes out is made again of plain dicts and frozen sets, so that nothing which a plugin keeps can change it later,
and nobody who reads a table has to expect anything else than what the types say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from rankwise.backends.capability import Capabilities
from rankwise.backends.cells import Availability, Cell, Condition, Device, Support
from rankwise.backends.declaration import API_VERSION, OLDEST_API_VERSION, BackendSpec, Runtime
from rankwise.backends.discovery import PluginFault
from rankwise.backends.vocabulary import EVERY_DTYPE, FEATURES, OPS, REDUCTIONS, nearest, not_a_name
from rankwise.basics.arguments import is_integer, with_article
from rankwise.basics.entry_points import one_line
from rankwise.basics.version import require_series
from rankwise.errors import PluginError


def checked(name: str, spec: Any) -> BackendSpec:
    """Return a declaration that has nothing wrong with it, installed or registered under a name.

    Raises:
        PluginFault: Something is wrong; the message names the field.
    """
    if not isinstance(spec, BackendSpec):
        returned = "nothing" if spec is None else with_article(type(spec).__name__)
        raise PluginFault(f"rankwise_backend() has returned {returned}, but must return a BackendSpec")
    _versions(spec)
    if reason := not_a_name(name):
        raise PluginFault(f"{name!r} is no name of a backend: {reason}")
    if spec.name != name:
        raise PluginFault(f"its declaration is of a backend called {spec.name!r}, not {name!r}")
    of_kind("attends", spec.attends, bool)
    for function in ("create", "availability", "checks", "load", "runtime", "explain"):
        if getattr(spec, function) is not None or function not in ("runtime", "explain"):
            _callable(function, getattr(spec, function))
    return BackendSpec(
        name,
        spec.api_version,
        _table(name, spec.capabilities),
        spec.create,
        spec.availability,
        spec.runtime,
        tuple(text_of(f"launch[{i}]", word) for i, word in enumerate(_sequence("launch", spec.launch))),
        {text_of("a name in variants", w): _variables(w, v) for w, v in _mapping("variants", spec.variants).items()},
        spec.explain,
        text_of("core", spec.core),
        spec.checks,
        spec.load,
        text_of("meets", spec.meets),
        spec.attends,
    )


def checked_runtime(answer: Any) -> Runtime:
    """Return what a runtime has told of this process, if it makes sense.

    Raises:
        PluginFault: It does not; the message names the field.
    """
    if not isinstance(answer, Runtime):
        returned = "nothing" if answer is None else with_article(type(answer).__name__)
        raise PluginFault(f"`runtime` has returned {returned}, but must return a Runtime")
    for field in ("rank", "size"):
        if not is_integer(getattr(answer, field)):
            raise PluginFault(f"`runtime` has returned the {field} {getattr(answer, field)!r}, which is no integer")
    if not 0 <= answer.rank < answer.size:
        raise PluginFault(f"`runtime` has returned rank {answer.rank} of {answer.size}")
    if answer.job is not None and not callable(answer.job):
        raise PluginFault(f"`runtime` has returned the job {answer.job!r}, which is no function")
    return answer


def checked_availability(answer: Any) -> Availability:
    """Return what a probe has answered, made of plain values.

    Raises:
        PluginFault: It is something else.
    """
    if not isinstance(answer, Availability):
        raise PluginFault(f"availability() has returned {with_article(type(answer).__name__)}, not an Availability")
    available, reason, remedy = answer
    if not isinstance(available, bool):
        raise PluginFault(f"availability() has returned available={type(available).__name__}, which must be a bool")
    return Availability(available, one_line(text_of("reason", reason)), one_line(text_of("remedy", remedy)))


def _versions(spec: BackendSpec) -> None:
    given = spec.api_version
    first, last = given if isinstance(given, tuple) and len(given) == 2 else (given, given)
    if type(first) is not int or type(last) is not int or first > last:
        raise PluginFault(f"api_version is {given!r}, but must be a version, or (oldest, newest)")
    if last < OLDEST_API_VERSION or first > API_VERSION:
        theirs = f"{first}" if first == last else f"{first} to {last}"
        ours = f"{API_VERSION}" if OLDEST_API_VERSION == API_VERSION else f"{OLDEST_API_VERSION} to {API_VERSION}"
        raise PluginFault(
            f"it is written for API version {theirs}, and this rankwise has {ours}; "
            "install versions of the two that belong together"
        )
    if core := text_of("core", spec.core):
        try:
            require_series("it", core)
        except PluginError as error:
            raise PluginFault(str(error)) from None


def _variables(way: str, variables: Any) -> dict[str, str]:
    where = f"variants[{way!r}]"
    return {
        text_of(f"a name in {where}", name): text_of(f"{where}[{name!r}]", value)
        for name, value in _mapping(where, variables).items()
    }


def _table(name: str, table: Any) -> Capabilities:
    of_kind("capabilities", table, Capabilities)
    if table.backend != name:
        raise PluginFault(f"its capabilities are those of {table.backend!r}, not of {name!r}")
    devices, usual = {}, dict(REDUCTIONS)
    for kind, device in _mapping("capabilities.devices", table.devices).items():
        if not isinstance(kind, str) or not_a_name(kind):
            raise PluginFault(f"capabilities.devices has {kind!r}, which is no kind of device such as 'cpu'")
        where = f"capabilities.devices[{kind!r}]"
        of_kind(where, device, Device)
        devices[kind] = Device(
            _cells(f"{where}.ops", device.ops, OPS, usual),
            _cells(f"{where}.features", device.features, FEATURES, usual),
            here_only=bool(device.here_only),
        )
    if not devices:
        raise PluginFault("capabilities.devices is empty; there must be a Device for one kind, such as 'cpu'")
    return Capabilities(name, devices, _numbers("sizes", table.sizes), _numbers("hosts", table.hosts))


def _numbers(field: str, numbers: Any) -> range:
    of_kind(f"capabilities.{field}", numbers, range)
    if not numbers or min(numbers[0], numbers[-1]) < 1:
        raise PluginFault(f"capabilities.{field} is {numbers!r}, but must be {field} of groups, from 1 on")
    return range(numbers.start, numbers.stop, numbers.step)


def _cells(where: str, cells: Any, known: Iterable[str], usual: Mapping[str, frozenset[str]]) -> dict[str, Cell]:
    found = {}
    for name, cell in _mapping(where, cells).items():
        if name not in known:
            raise PluginFault(f"{where} has {name!r}; {nearest(str(name), known)}")
        found[name] = _cell(f"{where}[{name!r}]", cell, usual)
    return found


def _cell(where: str, cell: Any, usual: Mapping[str, frozenset[str]]) -> Cell:
    of_kind(where, cell, Cell)
    if not isinstance(cell.support, Support) or cell.support is Support.STAGED:
        raise PluginFault(f"{where}.support is {cell.support!r}, but must be a Support that tables declare")
    if cell.support is Support.CONDITIONAL:
        _callable(f"{where}.holds", cell.holds)
        if not cell.reason:
            raise PluginFault(f"{where}.reason is empty; a condition says what it depends on")
    return Cell(
        cell.support,
        one_line(text_of(f"{where}.reason", cell.reason)),
        _dtypes(f"{where}.dtypes", cell.dtypes),
        usual if cell.reduce_ops is REDUCTIONS else _reductions(f"{where}.reduce_ops", cell.reduce_ops),
        cell.holds,
        _way(f"{where}.how", cell.how),
        {d: _condition(f"{where}.only_if[{d!r}]", d, c) for d, c in _mapping(f"{where}.only_if", cell.only_if).items()},
    )


def _reductions(where: str, reduce_ops: Any) -> dict[str, frozenset[str]]:
    found = _mapping(where, reduce_ops)
    for name in found:
        if name not in REDUCTIONS:
            raise PluginFault(f"{where} has {name!r}; {nearest(str(name), REDUCTIONS)}")
    return {name: _dtypes(f"{where}[{name!r}]", dtypes) for name, dtypes in found.items()}


def _condition(where: str, dtype: Any, condition: Any) -> Condition:
    if dtype not in EVERY_DTYPE:
        raise PluginFault(f"{where} is of no dtype; {nearest(str(dtype), sorted(EVERY_DTYPE))}")
    of_kind(where, condition, Condition)
    reason = one_line(text_of(f"{where}.reason", condition.reason))
    if not reason:
        raise PluginFault(f"{where}.reason is empty; a condition says what it depends on")
    _callable(f"{where}.holds", condition.holds)
    return Condition(reason, condition.holds)


def _way(where: str, how: Any) -> Support:
    if how not in (Support.NATIVE, Support.STAGED, Support.DERIVED):
        raise PluginFault(f"{where} is {how!r}, but must be Support.NATIVE, STAGED or DERIVED")
    return Support(how)


def _dtypes(where: str, names: Any) -> frozenset[str]:
    if type(names) is not frozenset and not isinstance(names, Set):  # the second takes ten times as long
        is_what = with_article(type(names).__name__)
        raise PluginFault(f"{where} is {is_what}, but must be a frozenset of names of dtypes")
    found = frozenset(names)
    for name in () if found <= EVERY_DTYPE else found - EVERY_DTYPE:
        raise PluginFault(f"{where} has {name!r}; {nearest(str(name), sorted(EVERY_DTYPE))}")
    return found


def _mapping(where: str, value: Any) -> Mapping[Any, Any]:
    if type(value) is not dict:  # of which there are a hundred in a declaration
        of_kind(where, value, Mapping, "a mapping")
    return dict(value)


def _sequence(where: str, value: Any) -> tuple[Any, ...]:
    of_kind(where, value, tuple)
    return tuple(value)


def text_of(where: str, value: Any) -> str:
    of_kind(where, value, str)
    return str.__str__(value)


def _callable(where: str, value: Callable[..., Any]) -> None:
    if not callable(value):
        raise PluginFault(f"{where} is {value!r}, but must be callable")


def of_kind(where: str, value: Any, kind: type, called: str = "") -> None:
    if not isinstance(value, kind):
        is_what = "None" if value is None else with_article(type(value).__name__)
        raise PluginFault(f"{where} is {is_what}, but must be {called or with_article(kind.__name__)}")
