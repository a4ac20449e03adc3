"""Where the compiled parts cannot be built they are left out, and the reason is told; nothing fails for their sake."""

import os

import pytest
from tests.packaging.conftest import Scratch, native_source

WAYS = {
    "no compiler": ({"CC": "no-such-compiler"}, "no C compiler: 'no-such-compiler' was not found"),
    "a compiler that gives up": ({"RANKWISE_CFLAGS": "--no-such-flag"}, "it could not be compiled: "),
}


@pytest.fixture(scope="module")
def without(wheel_of, tmp_path_factory):
    """An environment with gloo and with what builds the compiled parts, but without these."""
    scratch = Scratch(tmp_path_factory.mktemp("without"))
    names = ["rankwise", *(f"rankwise_{name}" for name in "network stores launch watch gloo_tcp".split())]
    scratch.pip("setuptools>=64", "wheel", "numpy", *(wheel_of[name] for name in names))
    return scratch


@pytest.mark.parametrize("way", WAYS)
def test_the_installation_succeeds_and_doctor_says_why_it_is_slower(without, tmp_path, way):
    variables, reason = WAYS[way]
    anew = ("--no-build-isolation", "--no-cache-dir", "--force-reinstall", "--no-deps")
    without.pip(*anew, native_source(tmp_path), env={**os.environ, **variables})
    said = without.run(
        """
        import rankwise as dist, subprocess, sys
        from rankwise.basics import native
        dist.init_process_group("gloo", rank=0, world_size=1)
        dist.destroy_process_group()
        print(native.state()[1], native.remedy(), sep="\\n")
        command = [sys.executable, "-m", "rankwise", "doctor", "--quick"]
        print(subprocess.run(command, capture_output=True, text=True).stdout)
        """
    )
    state, remedy, *doctor = said.splitlines()
    assert f"cannot be loaded: it was installed without its compiled parts: {reason}" in state
    assert remedy == "pip install --upgrade --force-reinstall --no-cache-dir rankwise-native"
    assert any(reason in line for line in doctor)


def test_a_build_that_must_have_them_fails_in_words(without, tmp_path):
    variables = {"CC": "no-such-compiler", "RANKWISE_NATIVE_BUILD": "required"}
    with pytest.raises(AssertionError, match="rankwise-native cannot be built here: no C compiler"):
        without.pip(*("--no-build-isolation", "--no-deps", native_source(tmp_path)), env={**os.environ, **variables})
