"""Whether NCCL can be used here; if not, which of six reasons it is, and the command that fixes it.

What is asked first is what the later things need: no CuPy helps where there is no driver. CUDA is not initialised,
as a process that has done so can no longer fork; the driver's management library tells enough.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass

from rankwise.backends import Availability

#: From this major version on CuPy hands out NCCL's unique ids as bytes, and takes bfloat16.
OLDEST_CUPY = 14

_OLDEST_CUDA, _NEWEST_CUDA = 12, 13


#: What people call systems that Python calls otherwise.
_NAMES = {"Darwin": "macOS"}


@dataclass(frozen=True)
class Facts:
    """What there is on this machine.

    Attributes:
        driver: Whether the driver's library can be loaded.
        devices: Number of GPUs that this process may see; None if that cannot be told without CUDA.
        driver_cuda: The newest CUDA version that the driver serves, such as (12, 4); None if it cannot be told.
        cupy: Installed distributions of CuPy and their versions.
        nccl_error: Why CuPy cannot load NCCL; empty if it can, or where that was not tried.
    """

    driver: bool
    devices: int | None = None
    driver_cuda: tuple[int, int] | None = None
    cupy: tuple[tuple[str, str], ...] = ()
    nccl_error: str = ""


def availability() -> Availability:
    """Tell whether driver, device, CuPy and NCCL are there and fit together."""
    system = platform.system()
    if system != "Linux":
        return Availability(False, f"NCCL runs on Linux, not on {_NAMES.get(system, system)}")
    return judge(look())


def judge(facts: Facts) -> Availability:
    """Turn facts into an answer."""
    extra = f"pip install 'rankwise-nccl[cuda{_fitting(facts)}]'"
    if not facts.driver:
        return Availability(
            False,
            "there is no NVIDIA driver (libcuda.so.1 cannot be loaded)",
            "install it, for example sudo apt install nvidia-driver-570; in a container: docker run --gpus all",
        )
    if facts.devices == 0:
        return Availability(
            False,
            "the NVIDIA driver shows no device to this process",
            f"see what nvidia-smi -L lists{_visibility()}",
        )
    if not facts.cupy:
        return Availability(False, "CuPy is not installed", extra)
    mismatch = _mismatch(facts)
    if mismatch:
        names = " ".join(name for name, _ in facts.cupy)
        return Availability(False, mismatch, f"pip uninstall -y {names} && {extra}")
    if facts.nccl_error:
        return Availability(False, f"CuPy finds no NCCL library: {facts.nccl_error}", extra)
    return Availability(True)


def look() -> Facts:
    """Gather the facts, each only where those before it allow."""
    if not _loads("libcuda.so.1"):
        return Facts(False)
    devices, cuda = _managed()
    cupy = _distributions()
    facts = Facts(True, 0 if _hidden() else devices, cuda, cupy)
    if not judge(facts):
        return facts
    return Facts(True, facts.devices, cuda, cupy, _nccl_error())


def _fitting(facts: Facts) -> int:
    """Return the CUDA version whose extra fits the driver."""
    if facts.driver_cuda is None:
        return _OLDEST_CUDA
    return min(max(facts.driver_cuda[0], _OLDEST_CUDA), _NEWEST_CUDA)


def _mismatch(facts: Facts) -> str:
    if len(facts.cupy) > 1:
        return f"there is more than one CuPy: {', '.join(f'{name} {version}' for name, version in facts.cupy)}"
    name, version = facts.cupy[0]
    if int(version.partition(".")[0]) < OLDEST_CUPY:
        return f"{name} {version} is too old: CuPy {OLDEST_CUPY} or newer is needed"
    built = _cuda_of(name)
    if built is not None and facts.driver_cuda is not None and built > facts.driver_cuda[0]:
        serves = ".".join(map(str, facts.driver_cuda))
        return f"{name} {version} is for CUDA {built}, but the driver serves CUDA up to {serves}"
    return ""


def _cuda_of(distribution: str) -> int | None:
    """Return the CUDA version that a wheel such as cupy-cuda12x is for."""
    digits = distribution.removeprefix("cupy-cuda").removesuffix("x")
    return int(digits) if digits.isdecimal() else None


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _managed() -> tuple[int | None, tuple[int, int] | None]:
    """Ask the driver's management library for the number of devices and the CUDA version."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None, None
    if nvml.nvmlInit_v2():
        return 0, None
    try:
        count, version = ctypes.c_uint(), ctypes.c_int()
        known = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
        told = nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version)) == 0
    finally:
        nvml.nvmlShutdown()
    cuda = (version.value // 1000, version.value % 1000 // 10) if told else None
    return (count.value if known else None), cuda


def _hidden() -> bool:
    """Tell whether the environment hides all devices: what follows the first invalid one is not seen."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible is not None and visible.split(",")[0].strip() in ("", "-1", "NoDevFiles")


def _visibility() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible is None else f", and run: unset CUDA_VISIBLE_DEVICES (it is {visible!r})"


def _distributions() -> tuple[tuple[str, str], ...]:
    from importlib.metadata import packages_distributions, version

    return tuple((name, version(name)) for name in sorted(set(packages_distributions().get("cupy", ()))))


def _nccl_error() -> str:
    """Import CuPy's binding, which warns where it finds no library, and return what is wrong with it."""
    import warnings

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            from cupy.cuda import nccl
        except (ImportError, RuntimeError, OSError) as error:
            return _first_line(str(error)) or type(error).__name__
    if nccl.available:
        return ""
    reasons = [line for warning in told for line in str(warning.message).splitlines() if line.startswith("Reason")]
    return reasons[0].removeprefix("Reason:").strip() if reasons else "libnccl.so.2 cannot be loaded"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
