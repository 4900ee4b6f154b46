"""Small models for the end-to-end tests, each with activations large enough to be worth recomputing."""

import warnings
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

warnings.simplefilter("ignore", DeprecationWarning)


class Block(nn.Module):
    """A residual block with in-place ops."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.Sequential(*[Block(16) for _ in range(4)])
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean([2, 3]))


def conv_net() -> nn.Module:
    layers: List[nn.Module] = []
    for channels in (3, 16, 16, 16):
        layers += [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def mlp() -> nn.Module:
    layers: List[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(128, 10))


class Trunk(nn.Module):
    """What the models below wrap: their outputs differ in structure only."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(4)])
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        hidden = self.layers(x)
        return hidden, self.head(hidden)


class DictOutput(Trunk):
    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        hidden = self.layers(x)
        return {"hidden": hidden, "logits": self.head(hidden)}


class TupleOutput(Trunk):
    def forward(self, x: Tensor) -> Tuple[Tensor, Tuple[Tensor, int]]:
        hidden = self.layers(x)
        logits = self.head(hidden)
        return logits, (torch.argmax(logits, 1), 3)


class ListOutput(Trunk):
    def forward(self, x: Tensor) -> List[Tensor]:
        hidden = self.layers(x)
        return [hidden, self.head(hidden)]


class Result(NamedTuple):
    logits: Tensor
    hidden: Tensor


class NamedTupleOutput(Trunk):
    def forward(self, x: Tensor) -> Result:
        hidden = self.layers(x)
        return Result(self.head(hidden), hidden)


class ListInput(Trunk):
    def forward(self, parts: List[Tensor], scales: Dict[str, Tensor], rest: Optional[List[int]]) -> Tensor:
        hidden = self.layers(torch.cat(parts)) * scales["a"]
        return self.head(hidden)


class TwoMethods(Trunk):
    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))


class Printing(Trunk):
    def forward(self, x: Tensor) -> Tensor:
        print("hello from the model")
        return self.head(self.layers(x))


class Looping(Trunk):
    """A loop, which is run whole and keeps what it saved."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(6):
            x = torch.tanh(x) * 1.5
        return self.head(self.layers(x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(128, 4, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.attention(x, x, x, need_weights=False)
        return self.head(x)


class TransformerBlock(nn.Module):
    """Pre-norm, with eager attention over four-dimensional heads."""

    def __init__(self, width: int = 64, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-2, -1) * 0.2, -1)
        x = x + self.dropout(self.out((scores @ v).transpose(1, 2).reshape(batch, tokens, width)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class DroppingAttention(nn.Module):
    """Attention whose probabilities hold most of the memory, with dropout on them."""

    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(128, 3 * 128)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        for _ in (0, 1):
            q, k, v = self.inputs(x).view(4, 256, 4, 96).transpose(1, 2).chunk(3, -1)
            p = 0.1 if self.training else 0.0
            y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
            x = x + y.transpose(1, 2).reshape(1024, 128)
        return self.head(x)


class Scalar(Trunk):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)).square().mean()


ROWS = "1024x128"
IMAGES = "8x3x32x32"
TOKENS = "8x64x64"


def build(name: str) -> nn.Module:
    """The eager model in training mode with the same weights every time."""
    torch.manual_seed(0)
    makers = {
        "mlp": mlp,
        "conv_net": conv_net,
        "residual": Residual,
        "dict": DictOutput,
        "tuple": TupleOutput,
        "list": ListOutput,
        "named_tuple": NamedTupleOutput,
        "two_methods": TwoMethods,
        "list_input": ListInput,
        "printing": Printing,
        "attention": Attention,
        "transformer": lambda: nn.Sequential(TransformerBlock(), TransformerBlock(), nn.Linear(64, 32)),
        "dropping_attention": DroppingAttention,
        "scalar": Scalar,
        "looping": Looping,
        "linear": lambda: nn.Linear(128, 10),
    }
    return makers[name]().train()


def spec(name: str) -> str:
    """The --input that fits."""
    return {"conv_net": IMAGES, "residual": IMAGES, "transformer": TOKENS}.get(name, ROWS)


def sample(name: str) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn([int(size) for size in spec(name).split("x")], generator=generator)


def save(name: str, path, how: str = "script") -> str:
    model = build(name)
    if how == "trace":
        state = {key: value.clone() for key, value in model.state_dict().items()}
        traced = torch.jit.trace(model, sample(name), check_trace=False)
        traced.load_state_dict(state)  # tracing trains: norms have moved their statistics
        traced.save(str(path))
    else:
        torch.jit.script(model).save(str(path))
    return str(path)
