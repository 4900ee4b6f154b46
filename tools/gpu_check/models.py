"""The models of the check, with fixed random weights: ResNet-50 at batch 256, ViT-S and GPT-2, as eager modules and saved
as TorchScript. Prints, as JSON, what remat-opt's --input takes."""

import argparse
import dataclasses
import json
import os
import pathlib
import warnings

import torch
from torch import nn

os.environ["HF_HUB_OFFLINE"] = "1"


def resnet50(tiny):
    from torchvision.models.resnet import Bottleneck, ResNet

    if tiny:
        return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=8)
    return ResNet(Bottleneck, [3, 4, 6, 3])


def vit_small(tiny):
    import timm

    small = {"img_size": 64, "depth": 3, "embed_dim": 64, "num_heads": 2, "num_classes": 10} if tiny else {}
    return timm.create_model("vit_small_patch16_224", pretrained=False, **small)


class Logits(nn.Module):
    """A transformers model with one input and one output tensor, [N, T, classes]."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False, return_dict=False)[0]


def gpt2(tiny):
    from transformers import GPT2Config, GPT2LMHeadModel

    small = {"n_layer": 3, "n_embd": 64, "n_head": 2, "vocab_size": 512, "n_positions": 64} if tiny else {}
    return Logits(GPT2LMHeadModel(GPT2Config(use_cache=False, attn_implementation="sdpa", **small)))


@dataclasses.dataclass(frozen=True)
class Model:
    build: callable  # (tiny) -> eager module
    shape: tuple  # of the input
    tiny_shape: tuple
    block: str  # class of the modules that torch.utils.checkpoint is put around
    vocabulary: int = 0  # of token ids; 0: the input holds numbers
    tiny_vocabulary: int = 0

    def size(self, tiny):
        return self.tiny_shape if tiny else self.shape

    def tokens(self, tiny):
        return self.tiny_vocabulary if tiny else self.vocabulary

    def inputs(self, tiny, device):
        generator = torch.Generator().manual_seed(1)
        if self.vocabulary:
            values = torch.randint(0, self.tokens(tiny), self.size(tiny), generator=generator)
        else:
            values = torch.randn(self.size(tiny), generator=generator)
        return values.to(device)

    def spec(self, tiny):
        sizes = "x".join(map(str, self.size(tiny)))
        return f"{sizes}:int64:0..{self.tokens(tiny) - 1}" if self.vocabulary else sizes


MODELS = {
    "resnet50": Model(resnet50, (256, 3, 224, 224), (16, 3, 64, 64), "Bottleneck"),
    "vit_small": Model(vit_small, (128, 3, 224, 224), (32, 3, 64, 64), "Block"),
    "gpt2": Model(gpt2, (8, 1024), (4, 64), "GPT2Block", 50257, 512),
}


def eager(name, tiny, device):
    """The same weights on every call."""
    torch.manual_seed(0)
    return MODELS[name].build(tiny).train().to(device)


def save(name, folder, tiny, device):
    # PyTorch announces the end of TorchScript, and tracing warns of every Python number it fixes.
    warnings.simplefilter("ignore")
    module = eager(name, tiny, device)
    if MODELS[name].vocabulary:
        # Traced where it is to run and at its batch: both are constants then. A check would find other dropout masks.
        saved = torch.jit.trace(module, MODELS[name].inputs(tiny, device), check_trace=False)
    else:
        saved = torch.jit.script(module)
    saved.save(str(folder / f"{name}.pt"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(MODELS))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    save(arguments.name, arguments.folder, arguments.tiny, arguments.device)
    print(json.dumps({"spec": MODELS[arguments.name].spec(arguments.tiny)}))


if __name__ == "__main__":
    main()
