"""Trains a model in half of the memory that its steps take otherwise: python train.py"""

import remat
import torch
from torch import nn

torch.manual_seed(0)
blocks = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.GELU()) for _ in range(8)]
model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
x, y = torch.randn(8, 3, 64, 64), torch.randint(10, (8,))

model = remat.optimize(model, x, budget="50%", loss="cross_entropy")
print(remat.result_of(model))

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"step {step + 1}: loss {loss.item():.3f}")
