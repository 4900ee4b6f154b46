"""Trains in several processes by one plan: torchrun --nproc-per-node 2 train_ddp.py"""

import remat
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1)) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Linear(256, 10))

    # The first process plans for its inputs; all take its plan. Optimise first, then wrap.
    x = torch.randn(1024, 256)
    model = remat.optimize(model, x, budget="50%", loss="cross_entropy", process_group=dist.group.WORLD)
    if rank == 0:
        print(remat.result_of(model))
    model = DistributedDataParallel(model)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(rank)
    for step in range(4):
        x = torch.randn(1024, 256, generator=data)
        y = x[:, :10].argmax(1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
