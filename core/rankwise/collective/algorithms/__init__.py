"""Collectives as data: pure functions from (rank, size) to rounds of transfers, which know no transport.

A buffer is cut into `size` numbered blocks. An algorithm yields rounds, each a tuple of steps that run together. A send
reads the buffer as it was when the round began, and no round replaces a block that it sends. What arrives is combined
when the round ends, in the order of the steps, so the result does not depend on timing.

The same rounds are proved by `proof`, run in virtual time by `simulator`, and executed by `collective.derived` over any
backend's `isend` and `irecv`.
"""
