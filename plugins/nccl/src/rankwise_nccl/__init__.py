"""The `nccl` backend of rankwise: collectives and messages between GPUs, by way of CuPy's binding of NCCL.

Nothing here is called by users; `rankwise.init_process_group("nccl")` finds `rankwise_nccl.plugin`. Importing this
package, or the declaration in `plugin`, imports neither CuPy nor NCCL.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
