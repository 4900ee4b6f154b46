#!/usr/bin/env python3
"""Trains one saved model for four steps in a process that loads nothing but torch and, for an optimised model, the
runtime library, and saves what each step gave.

With TorchScript's optimisation off every step is followed by an SGD update. With it on parameters stay: there the
original rounds differently from step to step, and an update would carry one step's rounding into the next."""

import argparse

import torch
import torch.nn.functional as F

STEPS = 4
LEARNING_RATE = 0.01


def loss_of(logits):
    """Cross-entropy with fixed targets, of [N, classes] or [N, T, classes]."""
    rows = logits.reshape(-1, logits.shape[-1])
    targets = torch.randint(0, rows.shape[1], (rows.shape[0],), generator=torch.Generator().manual_seed(2))
    return F.cross_entropy(rows, targets)


def train(model, inputs, learning_rate):
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        outputs = model(inputs)
        loss_of(outputs).backward()
        steps.append(
            {
                "outputs": {"logits": outputs.detach().clone()},
                # No gradient at all is not the same as a gradient of zeros.
                "gradients": {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
                "buffers": {name: buffer.clone() for name, buffer in model.named_buffers()},
                "next_draw": {"rand": torch.rand(8)},
            }
        )
        del outputs
        if learning_rate > 0:
            optimizer.step()
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("inputs")
    parser.add_argument("result")
    parser.add_argument("--runtime", help="libremat_runtime.so")
    parser.add_argument("--optimisation", choices=("on", "off"), required=True, help="TorchScript's own")
    arguments = parser.parse_args()
    if arguments.runtime:
        torch.ops.load_library(arguments.runtime)
    torch._C._set_graph_executor_optimize(arguments.optimisation == "on")
    learning_rate = LEARNING_RATE if arguments.optimisation == "off" else 0.0
    model = torch.jit.load(arguments.model)
    torch.save(train(model, torch.load(arguments.inputs), learning_rate), arguments.result)


if __name__ == "__main__":
    main()
