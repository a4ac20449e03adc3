"""The five reasons as a process finds them, with libraries in the place of the driver's and packages in CuPy's."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests import fresh
from tests.by_reference import call
from tests.processes import environment

PATIENCE_S = 60.0

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to make libraries with"),
    pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed here, and would be found"),
]

DRIVER = "int cuInit(unsigned flags) { return 0; }\n"
MANAGEMENT = """
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = DEVICES; return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return 0; }
"""

#: What CuPy's binding says on import where it finds no library; on success it says nothing.
BINDING = """
import warnings
available = {available}
if not available:
    warnings.warn("CuPy failed to load libnccl.so.2\\n\\nReason: ImportError (libnccl.so.2: cannot open)\\n")
"""


class Machine:
    """A folder of libraries and packages that a process takes for its machine's."""

    def __init__(self, folder: Path) -> None:
        self.libraries, self.packages = folder / "lib", folder / "site"
        self.libraries.mkdir()
        self.packages.mkdir()

    def driver(self, devices: int = 1) -> None:
        """Install a driver for CUDA 12.4 that shows some devices."""
        for name, code in (("libcuda.so.1", DRIVER), ("libnvidia-ml.so.1", MANAGEMENT)):
            source = self.libraries / "library.c"
            source.write_text(code)
            made = ["-shared", "-fPIC", f"-DDEVICES={devices}", "-o", str(self.libraries / name), str(source)]
            subprocess.run([str(COMPILER), *made], check=True, timeout=PATIENCE_S)

    def cupy(self, name: str = "cupy-cuda12x", version: str = "14.2.0", available: bool = True) -> None:
        """Install a CuPy with a binding of NCCL."""
        cuda = self.packages / "cupy" / "cuda"
        cuda.mkdir(parents=True)
        (self.packages / "cupy" / "__init__.py").touch()
        (cuda / "__init__.py").touch()
        (cuda / "nccl.py").write_text(BINDING.format(available=available))
        info = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("cupy/__init__.py,,\ncupy/cuda/__init__.py,,\ncupy/cuda/nccl.py,,\n")

    def answer(self) -> tuple[bool, str, str]:
        """Return what a new process is told: whether there is NCCL, why not, and what to do."""
        env = {**environment(self.packages), "LD_LIBRARY_PATH": str(self.libraries)}
        env.pop("CUDA_VISIBLE_DEVICES", None)
        return call(fresh.available, "nccl", timeout_s=PATIENCE_S, env=env)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_driver_without_devices(machine: Machine) -> None:
    machine.driver(devices=0)
    available, reason, remedy = machine.answer()
    assert not available
    assert "shows no device" in reason
    assert "nvidia-smi -L" in remedy


def test_a_device_without_cupy(machine: Machine) -> None:
    machine.driver()
    assert machine.answer() == (False, "CuPy is not installed", "pip install 'rankwise-nccl[cuda12]'")


def test_a_cupy_that_is_newer_than_the_driver(machine: Machine) -> None:
    machine.driver()
    machine.cupy("cupy-cuda13x")
    _, reason, remedy = machine.answer()
    assert reason == "cupy-cuda13x 14.2.0 is for CUDA 13, but the driver serves CUDA up to 12.4"
    assert remedy == "pip uninstall -y cupy-cuda13x && pip install 'rankwise-nccl[cuda12]'"


def test_a_cupy_that_finds_no_nccl(machine: Machine) -> None:
    machine.driver()
    machine.cupy(available=False)
    _, reason, remedy = machine.answer()
    assert reason == "CuPy finds no NCCL library: ImportError (libnccl.so.2: cannot open)"
    assert remedy == "pip install 'rankwise-nccl[cuda12]'"


def test_all_that_is_needed(machine: Machine) -> None:
    machine.driver()
    machine.cupy()
    assert machine.answer() == (True, "", "")
