#!/usr/bin/env python3
"""The models that benchmarks train: eager modules with fixed random weights, their inputs, and the same saved as
TorchScript. `models.py NAME BATCH MODEL.pt INPUTS.pt` saves one."""

import dataclasses
import os
import sys
import warnings

import torch
from torch import nn

# Models are made from their configurations; no hub is asked.
os.environ["HF_HUB_OFFLINE"] = "1"

VOCABULARY = 8192
CONTEXT = 512


@dataclasses.dataclass(frozen=True)
class Model:
    build: callable  # () -> eager module in training mode
    shape: tuple  # of the input, without the batch
    batch: int  # of a full run
    traced: bool = False
    tokens: bool = False  # the input holds token ids, not numbers

    def inputs(self, batch):
        generator = torch.Generator().manual_seed(1)
        size = (batch, *self.shape)
        if self.tokens:
            return torch.randint(0, VOCABULARY, size, generator=generator)
        return torch.randn(size, generator=generator)

    def spec(self, batch):
        """What remat-opt's --input takes."""
        sizes = "x".join(map(str, (batch, *self.shape)))
        return f"{sizes}:int64:0..{VOCABULARY - 1}" if self.tokens else sizes


def torchvision_model(name):
    import torchvision

    return torchvision.models.get_model(name, weights=None).train()


def vit_small():
    import timm

    return timm.create_model("vit_small_patch16_224", pretrained=False).train()


class Logits(nn.Module):
    """A transformers model with one input and one output tensor, [N, T, classes]."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False, return_dict=False)[0]


def gpt2(attention):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=8,
        n_embd=384,
        n_head=6,
        vocab_size=VOCABULARY,
        n_positions=CONTEXT,
        use_cache=False,
        attn_implementation=attention,
    )
    return Logits(GPT2LMHeadModel(config)).train()


IMAGE = (3, 224, 224)
MODELS = {
    "resnet50_scripted": Model(lambda: torchvision_model("resnet50"), IMAGE, 16),
    "resnet50_traced": Model(lambda: torchvision_model("resnet50"), IMAGE, 16, traced=True),
    "vit_small_patch16_224": Model(vit_small, IMAGE, 16),
    "gpt2_eager_attention": Model(lambda: gpt2("eager"), (CONTEXT,), 4, traced=True, tokens=True),
    "gpt2_sdpa": Model(lambda: gpt2("sdpa"), (CONTEXT,), 4, traced=True, tokens=True),
    "mobilenet_v2": Model(lambda: torchvision_model("mobilenet_v2"), IMAGE, 16),
    "densenet121": Model(lambda: torchvision_model("densenet121"), IMAGE, 8),
}


def eager(name):
    """The same weights on every call."""
    torch.manual_seed(0)
    return MODELS[name].build()


def save(name, batch, model_path, inputs_path):
    # PyTorch announces the end of TorchScript, and tracing warns of every Python number it fixes.
    warnings.simplefilter("ignore")
    model, inputs = eager(name), MODELS[name].inputs(batch)
    if MODELS[name].traced:
        # The check would trace a second time and find other dropout masks.
        saved = torch.jit.trace(model, inputs, check_trace=False)
    else:
        saved = torch.jit.script(model)
    saved.save(model_path)
    torch.save(inputs, inputs_path)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    save(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
