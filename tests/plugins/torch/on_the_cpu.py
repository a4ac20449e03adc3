"""Have files of torch's tests that ask for GPUs run on the CPU, as those of FSDP do before torch 2.8.

Their text is read with the CPU in place of CUDA, and with the names that torch's helpers for tests have now. What
still needs a GPU, such as a count of its memory, fails on torch's gloo too, and so is not compared.
"""

import functools
import importlib.util
import re
import sys

#: What stands in the files, and what is read instead.
WORDS = (
    (r"\.cuda\((?:[^()]|\([^()]*\))*\)", ".cpu()"),
    (r"torch\.device\(f?\"cuda[^\"]*\"(?:, (?:[^()]|\([^()]*\))*)?\)", 'torch.device("cpu")'),
    (r"f?\"cuda(?::[^\"]*)?\"", '"cpu"'),
    (r"\btorch\.cuda\.manual_seed", "torch.manual_seed"),
    (r"\btorch\.cuda\.", "torch.cpu."),
    (r"\"nccl\"", '"gloo"'),
    (r"\bdevice_ids=\[[^\]]*\]", "device_ids=None"),
    (r"\bCUDAInitMode\b", "DEVICEInitMode"),
    (r"\bCUDA_(BEFORE|AFTER|NEVER)\b", r"DEVICE_\1"),
    (r"\bcuda_init_mode\b", "device_init_mode"),
    (r"\btest_compiled_fsdp\b", "compiled_fsdp_test"),
)
#: How many devices the tests find, and so on how many ranks most of them run.
DEVICES = 4


def pretend():
    """Count devices of the CPU where torch's tests count GPUs; call it before they and their helpers are imported."""
    import torch
    from torch.testing._internal import common_distributed

    torch.accelerator.device_count = torch.cpu.device_count = lambda: DEVICES
    torch.cpu._sleep = lambda cycles: None
    common_distributed.skip_if_lt_x_gpu = lambda *count, **more: lambda function: function
    _shard_on_the_cpu(torch.distributed.fsdp.FullyShardedDataParallel)


def _shard_on_the_cpu(wrapper):
    """Name the CPU to FSDP's wrapper, which works there but looks for a GPU unless it is told the device."""
    import torch

    made = wrapper.__init__

    @functools.wraps(made)
    def make(self, *args, **more):
        if not isinstance(more.get("device_id"), torch.device):
            more["device_id"] = torch.device("cpu")
        made(self, *args, **more)

    wrapper.__init__ = make


def load(path):
    """Return the module of a file, read so."""
    text = path.read_text(encoding="utf-8")
    for word, instead in WORDS:
        text = re.sub(word, instead, text)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(path.stem, path))
    sys.modules[path.stem] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module
