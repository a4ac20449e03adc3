"""Train with deepspeed's engine, its ranks' states cut up by the stage of ZeRO that is named."""

import sys

import deepspeed
import ending
import torch

import rankwise_torch  # noqa: F401 - registers the name

torch.set_num_threads(1)
torch.manual_seed(0)
deepspeed.init_distributed(dist_backend="rankwise")
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), 0.05),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": int(sys.argv[1])},
    },
)
losses = []
for step in range(20):
    ending.perhaps(step)
    given = torch.ones(4, 8, dtype=torch.bfloat16) * (1 + torch.distributed.get_rank())
    loss = engine(given).float().square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 4, losses
ending.well()
