"""The conformance kit on this backend, as far as two minutes go; the whole of it: rankwise conformance wire."""

import pytest

from rankwise_testing import conformance


@pytest.mark.parametrize("variant", ["unix", "tcp"])
def test_it_is_what_it_declares(variant):
    assert conformance("wire", extra_args=["--fast", "--variant", variant]) == 0
