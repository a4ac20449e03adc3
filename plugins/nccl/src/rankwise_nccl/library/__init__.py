"""NCCL, CUDA and CuPy as they are found here."""
