# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A LightningModule whose training_step() calls its parts: accumulation, bfloat16."""
import lightning
import torch
import zoo
from torch import nn


class Coder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 32))
        self.decoder = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 128))

    def training_step(self, batch, _):
        return nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def on_train_batch_end(self, *_):
        if self.trainer.global_step > self.seen:
            self.seen = self.trainer.global_step
            self.trainer.should_stop = not zoo.step()


coder = Coder()
coder.seen = 0
zoo.name(coder)
data = torch.utils.data.DataLoader(torch.randn(1024, 128), batch_size=32)
lightning.Trainer(accelerator="gpu", devices=1, max_epochs=-1, accumulate_grad_batches=2, precision="bf16-mixed", logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False).fit(coder, data)
zoo.end()
