"""Where the compiled parts cannot be built they are left out, and the reason is told; nothing fails for their sake."""

import os

import pytest
from tests.packaging.conftest import ROOT, native_source

WAYS = {
    "no compiler": ({"CC": "no-such-compiler"}, "no C compiler: 'no-such-compiler' was not found"),
    "a compiler that gives up": ({"RANKWISE_CFLAGS": "--no-such-flag"}, "it could not be compiled: "),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_installation_succeeds_and_doctor_says_why_it_is_slower(scratch, tmp_path, way):
    variables, reason = WAYS[way]
    scratch.pip("hatchling>=1.21", "setuptools>=64", "wheel", "numpy")
    plugins = [str(ROOT / "plugins" / name) for name in ("codec", "launch", "watch", "gloo_tcp")]
    parts = [str(ROOT), native_source(tmp_path), *plugins]
    scratch.pip("--no-build-isolation", "--no-cache-dir", *parts, env={**os.environ, **variables})
    said = scratch.run(
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


def test_a_build_that_must_have_them_fails_in_words(scratch, tmp_path):
    scratch.pip("setuptools>=64", "wheel", "numpy")
    variables = {"CC": "no-such-compiler", "RANKWISE_NATIVE_BUILD": "required"}
    with pytest.raises(AssertionError, match="rankwise-native cannot be built here: no C compiler"):
        scratch.pip(*("--no-build-isolation", "--no-deps", native_source(tmp_path)), env={**os.environ, **variables})
