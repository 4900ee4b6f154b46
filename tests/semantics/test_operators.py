"""Operators of many kinds between recomputed ones: losses, convolutions, activations, indexing, linear algebra."""

from typing import List

import pytest
import torch
import torch.nn.functional as F
from cases import ROWS, case, mlp
from harness import check
from torch import Tensor, nn


class Bodies(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 3), mlp(16, 2)


class Reductions(Bodies):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4, 16) / 8)

    def forward(self, x):
        h = self.a(x).view(-1, 16, 16)
        h = torch.einsum("bnd,hed->bnhe", h, self.w).flatten(2)
        h = torch.cumsum(h, 1).log_softmax(-1)
        h = F.normalize(h, dim=-1)
        h = torch.roll(h, 1, 1).flip(1)
        return self.b(torch.logsumexp(h, 1) + h.std(1) + h.sort(1)[0].prod(1))


class Losses(Bodies):
    def forward(self, x, target):
        h = self.a(x)
        loss = F.cross_entropy(h, target, label_smoothing=0.1) + F.mse_loss(h, torch.sigmoid(h).detach())
        loss = loss + F.kl_div(h.log_softmax(1), x.softmax(1), reduction="batchmean") + F.smooth_l1_loss(h, x)
        return loss + F.binary_cross_entropy_with_logits(h, torch.sigmoid(x)) + F.huber_loss(h, x)


class Ctc(Bodies):
    def forward(self, x, target):
        logits = self.a(x).view(16, 16, 16).log_softmax(2)
        lengths = torch.full([16], 16, dtype=torch.long), torch.full([16], 5, dtype=torch.long)
        return F.ctc_loss(logits, target, lengths[0], lengths[1])


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(4, 8, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, output_padding=1)
        self.wide = nn.Conv2d(8, 8, 3, dilation=2, padding=2)
        self.norm, self.shuffle, self.prelu = nn.GroupNorm(2, 8), nn.PixelShuffle(2), nn.PReLU()

    def forward(self, x):
        h = self.prelu(self.norm(self.a(x)))
        h = F.mish(self.wide(F.hardswish(self.up(h))))
        h = F.leaky_relu(self.shuffle(F.avg_pool2d(h, 2)), 0.1)
        h, index = F.max_pool2d(h, 2, return_indices=True)
        return F.max_unpool2d(h, index, 2)


class Activations(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 32), nn.Linear(16, 16), nn.Bilinear(16, 16, 16)

    def forward(self, x):
        h = F.glu(self.a(x))
        h = F.softplus(h) + F.elu(h) + F.selu(h) + F.celu(h) + F.hardtanh(h) + F.relu6(h) + F.logsigmoid(h)
        h = h + F.softsign(h) + F.tanhshrink(h) + F.hardsigmoid(h)
        h = self.c(h, self.b(h))
        return F.rms_norm(h, [16]) * torch.erf(h) * torch.clamp(h, -1.0, 1.0)


class Bags(Bodies):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(30, 16, mode="mean")

    def forward(self, index, offsets):
        h = self.bag(index, offsets)
        g = torch.gather(h, 1, (h.detach() * 3).long().abs() % 16)
        s = torch.scatter_add(torch.zeros_like(h), 1, torch.arange(16).expand(h.size(0), 16), g)
        return self.b(h + s)


class Indexing(Bodies):
    def forward(self, x, index):
        h = self.a(x)
        z = torch.zeros(64, 16).index_put([index], h, accumulate=True)
        z = z.index_add(0, index, torch.sigmoid(h))
        return self.b(z.index_select(0, index))


class LinearAlgebra(Bodies):
    def forward(self, x):
        h = self.a(x).view(16, 16, 16)
        s = h @ h.transpose(1, 2) + torch.eye(16)
        z = torch.linalg.solve_triangular(torch.linalg.cholesky(s), h, upper=False)
        return self.b(z.reshape(-1, 16)) * torch.logdet(s).mean()


class Sampling(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.grid = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x):
        h = F.gelu(self.a(x))
        grid = torch.tanh(self.grid(h)).permute(0, 2, 3, 1)
        patches = F.unfold(F.grid_sample(h, grid, align_corners=False), 3, padding=1)
        return F.fold(torch.sigmoid(patches), [16, 16], 3, padding=1)


class Cells(Bodies):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(16, 16)

    def forward(self, x):
        h, c = torch.zeros(16, 16), torch.zeros(16, 16)
        outs: List[Tensor] = []
        for t in x.view(-1, 16, 16).unbind(0):
            h, c = self.cell(t, (h, c))
            outs.append(h)
        return self.b(torch.stack(outs))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)

    def forward(self, x):
        return self.layer(x)


class ComplexViews(Bodies):
    def forward(self, x):
        h = torch.view_as_complex(self.a(x).view(-1, 8, 2))
        h = h * h.conj() * torch.exp(-h.abs())
        return self.b(torch.view_as_real(torch.tanh(h)).reshape(-1, 16))


class FakeQuantised(Bodies):
    """Observers move their statistics in the operator itself."""

    def __init__(self):
        super().__init__()
        self.register_buffer("on", torch.tensor([1]))
        self.register_buffer("low", torch.tensor(float("inf")))
        self.register_buffer("high", torch.tensor(float("-inf")))
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("zero", torch.zeros(1, dtype=torch.int32))

    def forward(self, x):
        h = torch.fused_moving_avg_obs_fake_quant(
            self.a(x), self.on, self.on, self.low, self.high, self.scale, self.zero, 0.01, 0, 255, -1
        )
        return self.b(torch.fake_quantize_per_tensor_affine(h, 0.1, 0, -128, 127))


class SparseProduct(Bodies):
    def forward(self, x, index, values):
        adjacency = torch.sparse_coo_tensor(index, values, [x.size(0), x.size(0)])
        return self.b(torch.sparse.mm(adjacency, torch.tanh(self.a(x))))


def rows():
    return torch.randn(ROWS, 16)


def images():
    return torch.randn(4, 4, 16, 16)


MODELS = {
    Reductions: lambda: (rows(),),
    Losses: lambda: (rows(), torch.randint(16, (ROWS,))),
    Ctc: lambda: (rows(), torch.randint(1, 16, (16, 5))),
    Convolutions: lambda: (images(),),
    Activations: lambda: (rows(),),
    Bags: lambda: (torch.randint(30, (4 * ROWS,)), torch.arange(0, 4 * ROWS, 4)),
    Indexing: lambda: (rows(), torch.randint(64, (ROWS,))),
    LinearAlgebra: lambda: (rows(),),
    Sampling: lambda: (images(),),
    Cells: lambda: (rows(),),
    Encoder: lambda: (torch.randn(8, 32, 16),),
    ComplexViews: lambda: (rows(),),
    FakeQuantised: lambda: (rows(),),
    SparseProduct: lambda: (rows(), torch.randint(ROWS, (2, 800)), torch.rand(800)),
}


@pytest.mark.parametrize("budget", ["min", "midway"])
@pytest.mark.parametrize("model", MODELS)
def test_equal_to_eager(model, budget):
    torch.manual_seed(0)
    check(case(model(), *MODELS[model]()), budget)
