"""Train with Lightning by the strategy that is named: DDP, or FSDP2 within its model-parallel strategy."""

import sys

import ending
import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy

import rankwise_torch  # noqa: F401 - registers the name

torch.set_num_threads(1)
STRATEGY = {"ddp": DDPStrategy, "fsdp2": ModelParallelStrategy}[sys.argv[1]]


class _Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def configure_model(self):
        if STRATEGY is ModelParallelStrategy:
            from torch.distributed.fsdp import fully_shard

            fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, index):
        ending.perhaps(index)
        loss = self.layer(batch).square().mean()
        self.log("loss", loss, sync_dist=True)
        self.log("steps", torch.tensor(index), sync_dist=True)  # an average of integers
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=STRATEGY(process_group_backend="rankwise"),
    max_steps=4,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    log_every_n_steps=1,
)
trainer.fit(_Model(), torch.utils.data.DataLoader(torch.ones(32, 8), 4))
assert trainer.global_step == 4
assert trainer.callback_metrics["loss"] < 0.01
ending.well()
