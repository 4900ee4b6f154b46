#!/usr/bin/env python3
"""Saves a scripted torchvision model with random weights, ready to train: make_model.py resnet50 OUT.pt

Needs the Python packages of tools/requirements.txt. The same name gives the same weights on every run.
"""

import sys
import warnings

import torch
import torchvision


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    name, path = arguments
    torch.manual_seed(0)
    try:
        model = torchvision.models.get_model(name, weights=None)
    except ValueError as error:
        sys.exit(f"make_model: {error}")
    # PyTorch announces the end of TorchScript here.
    warnings.simplefilter("ignore", DeprecationWarning)
    torch.jit.script(model.train()).save(path)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{path}: scripted {name}, {parameters / 1e6:.1f} M parameters, random weights, train mode")


if __name__ == "__main__":
    main(sys.argv[1:])
