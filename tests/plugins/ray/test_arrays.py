"""Arrays as Ray hands them out: private, read-only, shared, strided and empty ones; and a Ray that is too old."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

from rankwise_ray import arrays

PATIENCE_S = 60.0


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array", [np.arange(6.0), np.arange(12).reshape(3, 4)[:, ::2], np.arange(5)[::-1], np.ones(())]
)
def test_a_private_array_is_written_to_without_a_word(array):
    whole = array.base if array.base is not None else array
    view = read_only(array)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = arrays.to_array(view, written=True)
    assert out.flags.writeable
    assert out.shape == view.shape
    assert out.strides == view.strides
    out[...] = 7
    assert (view == 7).all()
    assert whole is not None
    assert arrays.to_array(view) is view


def test_nothing_in_an_array_is_no_trouble():
    assert arrays.to_array(read_only(np.empty((0, 3))), written=True).shape == (0, 3)


def test_it_can_be_refused(monkeypatch):
    monkeypatch.setenv("RANKWISE_RAY_READONLY", "refuse")
    with pytest.raises(ValueError, match="read-only"):
        arrays.to_array(read_only(np.ones(3)), written=True)
    arrays.to_array(read_only(np.ones(3)))
    monkeypatch.setenv("RANKWISE_RAY_READONLY", "maybe")
    with pytest.raises(ValueError, match="expected one of write, refuse"):
        arrays.to_array(read_only(np.ones(3)), written=True)


@pytest.mark.parametrize("part", [slice(None), slice(None, None, -2), slice(-1, None)])
def test_memory_that_is_mapped_read_only_is_to_be_copied(tmp_path, part):
    np.save(tmp_path / "mapped.npy", np.ones(100_000))
    mapped = np.load(tmp_path / "mapped.npy", mmap_mode="r")[part]
    with pytest.raises(ValueError, match=r"mapped read-only.*copy"):
        arrays.to_array(mapped, written=True)
    assert arrays.to_array(mapped) is mapped
    private = np.load(tmp_path / "mapped.npy", mmap_mode="c")[part]
    arrays.to_array(read_only(private), written=True)[...] = 7
    assert (private == 7).all()


def test_a_write_into_the_object_store_is_told(cluster):
    shared = cluster.get(cluster.put(np.ones(100_000)))
    with pytest.warns(UserWarning, match="object store"):
        arrays.to_array(shared, written=True)


def test_a_ray_that_takes_no_backends_from_outside_is_told():
    code = "import sys; sys.modules['ray.util.collective.backend_registry'] = None; import rankwise_ray"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "ImportError: rankwise-ray needs a Ray whose ray.util.collective takes backends" in done.stderr
    assert "2.60 or later; this is " in done.stderr
