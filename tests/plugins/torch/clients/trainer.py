"""Train with the Trainer of transformers, which asks accelerate for the group."""

import math
import tempfile

import ending
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import rankwise_torch

rankwise_torch.install(as_gloo=True)
torch.set_num_threads(1)


class _Steps(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        ending.perhaps(state.global_step)


torch.manual_seed(0)
shape = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
rows = [{name: torch.arange(i, i + 8) % 32 for name in ("input_ids", "labels")} for i in range(64)]
with tempfile.TemporaryDirectory() as folder:
    asked = TrainingArguments(
        folder,
        use_cpu=True,
        max_steps=6,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(GPT2LMHeadModel(shape), asked, train_dataset=rows, eval_dataset=rows[:8], callbacks=[_Steps()])
    trainer.train()
    assert isinstance(trainer.model_wrapped, torch.nn.parallel.DistributedDataParallel)
    assert trainer.evaluate()["eval_loss"] < math.log(shape.vocab_size) - 0.2  # which is what guesses have
ending.well()
