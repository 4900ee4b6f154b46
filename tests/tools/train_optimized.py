"""Trains a saved model for some steps in a process of its own and writes what it gave:
train_optimized.py MODEL.pt NAME RESULT.pt [RUNTIME.so]"""

import sys

import models
import torch


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for element in value.values() for tensor in tensors(element)]
    if isinstance(value, (list, tuple)):
        return [tensor for element in value for tensor in tensors(element)]
    return []


def train(model, name):
    """Outputs, gradients, buffers and random draws of four steps of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    results = []
    torch.manual_seed(5)
    for _ in range(4):
        optimizer.zero_grad()
        outputs = tensors(model(models.sample(name)))
        sum(output.square().mean() for output in outputs if output.requires_grad).backward()
        optimizer.step()
        results.append(
            {
                "outputs": [output.detach() for output in outputs],
                "gradients": [parameter.grad.clone() for parameter in model.parameters()],
                "parameters": [parameter.detach().clone() for parameter in model.parameters()],
                "buffers": [buffer.clone() for buffer in model.buffers()],
                "draw": [torch.rand(4)],
            }
        )
    return results


def main(path, name, result, runtime=None):
    if runtime:
        torch.ops.load_library(runtime)
    torch._C._set_graph_executor_optimize(False)
    torch.save(train(torch.jit.load(path), name), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
