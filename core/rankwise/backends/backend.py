"""`Backend`, the names of backends, and `BackendConfig`, which backend serves which device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rankwise.backends.capability import Capabilities
from rankwise.backends.cells import Device, derived, native
from rankwise.backends.declaration import API_VERSION, Availability, BackendSpec
from rankwise.backends.registry import KNOWN, registry
from rankwise.backends.vocabulary import COLLECTIVES, UNDEFINED, device_kind, not_a_name
from rankwise.basics import entry_points
from rankwise.basics.arguments import shown
from rankwise.basics.tracebacks import shortened
from rankwise.errors import BackendUnavailableError, DistError

if TYPE_CHECKING:
    from rankwise.backends.communicator import Communicator
    from rankwise.backends.contract import Context


class _BackendNames(type):
    """Makes the class look like an enum of all names that are known now."""

    def __getattr__(cls, attribute: str) -> Backend:
        name = attribute.lower()
        if attribute.isupper() and (name in registry.names() or name in KNOWN):
            return str.__new__(Backend, name)
        raise AttributeError(f"no backend is called {name!r}; known: {', '.join(Backend)}")

    def __contains__(cls, name: object) -> bool:
        return isinstance(name, str) and (name.lower() in KNOWN or name.lower() in registry.names())

    def __iter__(cls) -> Iterator[Backend]:
        return (str.__new__(Backend, name) for name in sorted({*KNOWN, *registry.names()}))

    def __len__(cls) -> int:
        return sum(1 for _ in cls)

    @property
    def backend_list(cls) -> list[str]:
        """The names of all known backends."""
        return [str(name) for name in cls]

    @property
    def backend_capability(cls) -> dict[str, list[str]]:
        """The kinds of devices of every installed backend that loads."""
        return {table.backend: list(table.devices) for table in registry.tables()}


class Backend(str, metaclass=_BackendNames):
    """The name of a backend: a lower-case string, checked against what is known.

    `Backend("GLOO") == "gloo"`. `Backend.GLOO`, `Backend.NCCL`, `Backend.MPI` and `Backend.UNDEFINED` are always
    there, and so is an attribute for each registered or installed backend. The class iterates over the known names.

    Args:
        name: The name, in capitals or not.

    Raises:
        ValueError: It is not a string, or not the name of a backend (a `BackendNotFoundError`).

    Examples:
        >>> dist.Backend("GLOO")
        <Backend 'gloo'>
        >>> dist.Backend.GLOO in dist.Backend
        True
    """

    GLOO: ClassVar[Backend]
    NCCL: ClassVar[Backend]
    MPI: ClassVar[Backend]
    UNDEFINED: ClassVar[Backend]

    #: The backend that serves a kind of device where the program does not say.
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": "gloo", "cuda": "nccl"}

    def __new__(cls, name: Any) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"a backend's name is a string, not {name!r}")
        lower = name.lower()
        if lower == "tcp":
            raise ValueError("there is no backend 'tcp'; use 'gloo' or 'mpi' for CPU arrays")
        if lower != UNDEFINED and lower not in cls:
            registry.get(lower)  # raises the error that says what is installed
        return str.__new__(cls, lower)

    def __repr__(self) -> str:
        return f"<Backend {str(self)!r}>"

    @classmethod
    def register_backend(
        cls,
        name: Any,
        func: Callable[..., Communicator],
        extended_api: bool = False,
        devices: str | Sequence[str] | None = None,
        *,
        capabilities: Capabilities | None = None,
        replace: bool = False,
    ) -> None:
        """Register a backend in this process.

        Args:
            name: Its name; lower case is enforced.
            func: Makes a group's communicator: `func(store, rank, size, timeout)` with a `timedelta`, or
                `func(context)` with everything the core knows if `extended_api` is true.
            extended_api: Which of the two signatures `func` has.
            devices: One kind of device or several; "cpu" if None.
            capabilities: What it can do; by default every collective, derived from its send and receive.
            replace: Replace a backend of the same name.

        Raises:
            ValueError: The name is taken, or not valid.

        Examples:
            >>> def create(context):
            ...     raise NotImplementedError("return a rankwise.Communicator")
            >>> dist.register_backend("mine", create, extended_api=True)
            >>> dist.Backend.MINE
            <Backend 'mine'>
        """
        with shortened:
            lower = name.lower() if isinstance(name, str) else name
            if reason := not_a_name(lower):
                raise ValueError(f"{name!r} cannot be the name of a backend: {reason}")
            kinds = [devices] if isinstance(devices, str) else list(devices or ["cpu"])
            create = func if extended_api else _plain_creator(func)
            table = capabilities or _all_derived(lower, kinds)
            registry.register(BackendSpec(lower, API_VERSION, table, create), replace)


for _name in ("gloo", "nccl", "mpi", UNDEFINED):
    setattr(Backend, _name.upper(), str.__new__(Backend, _name))

register_backend = Backend.register_backend
"""The same as `Backend.register_backend`."""


class BackendConfig:
    """Which backend serves which kind of device: from "gloo", or "cpu:gloo,cuda:nccl".

    A single name serves all the devices it declares. None takes the default backend of each kind of device, as far
    as it is installed and can run here.

    Args:
        backend: A name, one for each kind of device, or None.

    Raises:
        ValueError: The text cannot be read, or a backend does not serve the device.
        BackendNotFoundError: A backend is not installed.
        BackendUnavailableError: None is given, and no default backend can run here.

    Examples:
        >>> dist.BackendConfig("cpu:gloo").get_device_backend_map()
        {'cpu': 'gloo'}
    """

    def __init__(self, backend: str | None = None) -> None:
        with shortened:
            if backend is None or backend == UNDEFINED:
                self.device_backend_map = _chosen(Backend.default_device_backend_map)
            elif ":" in str(backend):
                self.device_backend_map = _parse(str(backend))
            else:
                name = Backend(backend)
                self.device_backend_map = {device: str(name) for device in registry.get(name).capabilities.devices}

    #: Why the program's wish cannot be fulfilled on this rank, which all are told as they meet.
    refusal: DistError | None = None

    @classmethod
    def refused(cls, error: DistError) -> BackendConfig:
        """Return what stands for a wish that cannot be fulfilled here; it names no backend."""
        config = cls.__new__(cls)
        config.device_backend_map, config.refusal = {}, error
        return config

    def get_device_backend_map(self) -> dict[str, str]:
        """Return the backend's name for each kind of device."""
        return dict(self.device_backend_map)

    def listed(self) -> str:
        """Return which backend serves what, for messages."""
        return ", ".join(f"{name} for {device}" for device, name in self.device_backend_map.items())

    def backends(self) -> list[str]:
        """Return the names in use, each once."""
        return list(dict.fromkeys(self.device_backend_map.values()))

    def __str__(self) -> str:
        names = self.backends()
        single = len(names) == 1 and set(self.device_backend_map) == set(registry.get(names[0]).capabilities.devices)
        return names[0] if single else repr(self)

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())


def get_default_backend_for_device(device: str) -> str:
    """Return the default backend for a kind of device.

    Args:
        device: The kind of device, which may have an index ("cuda:1").

    Returns:
        The backend's name.

    Raises:
        ValueError: There is no default for it.

    Examples:
        >>> dist.get_default_backend_for_device("cuda:1")
        'nccl'
    """
    with shortened:
        usual = _usual_backends(Backend.default_device_backend_map)
        if (kind := device_kind(device, usual)) not in usual:
            raise ValueError(f"there is no default backend for device {device!r} (there is for: {', '.join(usual)})")
        return usual[kind]


def availability(name: str) -> Availability:
    """Return whether a backend can run on this machine, and if not, why and how to fix it.

    Args:
        name: A name, or a composite such as "cpu:gloo,cuda:nccl", of which all parts must be available.

    Returns:
        An `Availability`, which is true or false, and has a `reason` and a `remedy`.

    Examples:
        >>> answer = dist.availability("carrier_pigeon")
        >>> bool(answer), answer.reason
        (False, "no backend 'carrier_pigeon' is installed (installed: ...)")
    """
    with shortened:
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, not {shown(name)}")
        for part in name.split(","):
            answer = registry.availability(part.rpartition(":")[2].strip().lower())
            if not answer:
                return answer
        return Availability(True)


def is_available() -> bool:
    """Return whether the package can be used: always true, at least in a world of one.

    Returns:
        True.

    Examples:
        >>> dist.is_available()
        True
    """
    return True


def is_backend_available(backend: str) -> bool:
    """Return whether a backend, or every part of a composite, is installed and can run here.

    Args:
        backend: A name, or a composite such as "cpu:gloo,cuda:nccl".

    Returns:
        Whether it can; `availability` gives the reason if not.

    Examples:
        >>> dist.is_backend_available("gloo")
        True
    """
    with shortened:
        return bool(availability(backend))


def is_gloo_available() -> bool:
    """Return whether the gloo backend can run here.

    Returns:
        Whether it can; `availability` gives the reason if not.

    Examples:
        >>> dist.is_gloo_available()
        True
    """
    return is_backend_available("gloo")


def is_mpi_available() -> bool:
    """Return whether the mpi backend can run here.

    Returns:
        Whether it can; `availability` gives the reason if not.

    Examples:
        >>> backend = "mpi" if dist.is_mpi_available() else "gloo"
    """
    return is_backend_available("mpi")


def is_nccl_available() -> bool:
    """Return whether the nccl backend can run here.

    Returns:
        Whether it can; `availability` gives the reason if not.

    Examples:
        >>> backend = "nccl" if dist.is_nccl_available() else "gloo"
    """
    return is_backend_available("nccl")


def _plain_creator(func: Callable[..., Communicator]) -> Callable[[Context], Communicator]:
    def create(context: Context) -> Communicator:
        from datetime import timedelta

        from rankwise.backends.communicator import Communicator

        communicator = func(context.store, context.rank, context.size, timedelta(seconds=context.timeout_s))
        if isinstance(communicator, Communicator):  # else it is told what was expected
            communicator.context = context
        return communicator

    return create


def _all_derived(name: str, devices: Sequence[str]) -> Capabilities:
    ops = {**native("send", "recv"), **derived(*COLLECTIVES)}
    features = {**native("tags"), **derived("async", "uneven", "timeout", "abort", "mismatch", "sparse")}
    return Capabilities(name, {device: Device(ops, features) for device in devices})


def _parse(text: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for part in text.split(","):
        device, colon, name = part.strip().partition(":")
        if not (device and colon and name):
            raise ValueError(f"backend {text!r} must read like 'cpu:gloo,cuda:nccl'")
        if device in chosen:
            raise ValueError(f"backend {text!r} names device {device!r} twice")
        spec = registry.get(Backend(name))
        if device not in spec.capabilities.devices:
            serves = ", ".join(spec.capabilities.devices)
            raise ValueError(f"backend {name!r} does not serve device {device!r}; it serves {serves}")
        chosen[device] = spec.name
    return chosen


#: Entry points whose names are kinds of devices, and whose values are backends; nothing is imported for them.
_GROUP = "rankwise.defaults"


def _usual_backends(usual: Mapping[str, str]) -> dict[str, str]:
    """Return the usual backend of each kind of device, and that of others which one installed distribution names."""
    named: dict[str, list[str]] = {}
    for device, backend in entry_points.declared(_GROUP):
        named.setdefault(device, []).append(backend)
    return {**usual, **{d: names[0] for d, names in named.items() if len(names) == 1 and d not in usual}}


def _chosen(usual: Mapping[str, str]) -> dict[str, str]:
    """Return the default backend of each kind of device, as far as it can run here.

    Raises:
        BackendUnavailableError: None can.
    """
    found = {device: name for device, name in _usual_backends(usual).items() if registry.availability(name)}
    found = {device: name for device, name in found.items() if device in registry.get(name).capabilities.devices}
    if found:
        return found
    others = [table.backend for table in registry.tables() if table.backend not in usual.values() and table.here()]
    if len(others) == 1:  # what is all there is must be meant
        return dict.fromkeys(registry.get(others[0]).capabilities.devices, others[0])
    reasons = [f"{device}: {registry.availability(name).reason}" for device, name in usual.items()]
    named = "".join(f"; {name!r} can, if init_process_group names it" for name in others)
    raise BackendUnavailableError(f"no default backend can run here: {'; '.join(reasons)}{named}")
