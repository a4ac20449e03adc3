"""The `nccl` backend of rankwise: collectives and messages between GPUs, by way of CuPy's binding of NCCL.

Programs name `Options` alone; `rankwise.init_process_group("nccl")` finds `rankwise_nccl.plugin`. Importing this
package, or the declaration in `plugin`, imports neither CuPy nor NCCL.
"""

from __future__ import annotations

from rankwise_nccl.options import Options

__all__ = ["Options", "__version__"]

__version__ = "0.1.0"
