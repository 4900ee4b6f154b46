"""Running statistics, caches and counters move once a step, and a replay moves none of them."""

import pytest
import scenarios_a_to_e as scenarios
import torch
import torch.nn.functional as F
from cases import ROWS, case, mlp, of
from harness import BUDGETS, EXECUTORS, check, executor, optimize, optimize_once, testing, train_alike, train_step
from torch import nn


@pytest.mark.parametrize("mode", EXECUTORS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_b1_batch_norms_statistics_move_once(budget, mode):
    given = scenarios.b1()
    remat = optimize_once(scenarios.b1, budget).load()
    with executor(mode):
        train_alike(given.eager, remat, given.inputs, calls=3)
        norms = [name for name, _ in given.eager.named_buffers() if name.endswith("num_batches_tracked")]
        assert len(norms) == 4
        for name in norms:
            assert dict(remat.named_buffers())[name].item() == 3
        given.eager.eval(), remat.eval()
        assert torch.equal(given.eager(*given.inputs), remat(*given.inputs))
        given.eager.train(), remat.train()
        for module in (given.eager, remat):
            module(*given.inputs)  # a forward without backward counts once
        for a, b in zip(given.eager.buffers(), remat.buffers(), strict=True):
            assert torch.equal(a, b)
        assert dict(remat.named_buffers())[norms[0]].item() == 4


@pytest.mark.parametrize("mode", EXECUTORS)
def test_b3_the_cache_grows_once(mode):
    given = scenarios.b3()
    optimized = optimize_once(scenarios.b3)
    assert optimized.reasons("prim::SetAttr") == {"side-effect"}
    remat = optimized.load()
    with executor(mode):
        for steps in range(1, 4):
            train_alike(given.eager, remat, given.inputs, calls=1)
            assert remat.cache.shape == (64 * steps, 8)


class Counter(nn.Module):
    """Attributes that count in different ways."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.body = mlp(16, 4)
        self.register_buffer("count", torch.zeros(1))
        self.calls: int = 0

    def forward(self, x):
        h = self.body(x)
        if self.kind == "buffer":
            self.count += 1
        elif self.kind == "attribute":
            self.calls += 1
            h = h * float(self.calls)
        elif self.kind == "mean":
            self.count.mul_(0.9).add_(0.1 * h.detach().mean())
        elif self.kind == "copy":
            self.count.copy_(h.detach().abs().amax().view(1))
            h = h / self.count
        elif self.kind == "replaced":
            self.count = self.count + h.detach().mean()
            h = h + self.count
        return torch.tanh(h * 1.5) * 2.0


@pytest.mark.parametrize("kind", ["buffer", "attribute", "mean", "copy", "replaced"])
@pytest.mark.parametrize("mode", ["plain", "optimising"])
def test_what_counts_counts_once(kind, mode):
    check(of(Counter, kind), mode=mode, own_formulas=True)


NORMS = {
    "BatchNorm1d": lambda: nn.BatchNorm1d(16),
    "without statistics": lambda: nn.BatchNorm1d(16, track_running_stats=False),
    "cumulative average": lambda: nn.BatchNorm1d(16, momentum=None),
    "without weights": lambda: nn.BatchNorm1d(16, affine=False),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(16, affine=True, track_running_stats=True),
    "GroupNorm": lambda: nn.GroupNorm(4, 16),
    "LayerNorm": lambda: nn.LayerNorm([16, 8]),
}


def normed(kind):
    layers = []
    for _ in range(3):
        layers += [nn.Conv1d(16, 16, 3, padding=1), NORMS[kind](), nn.GELU()]
    return nn.Sequential(*layers)


def signals():
    return (torch.randn(32, 16, 8),)


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("mode", ["plain", "optimising"])
def test_norms(kind, mode):
    check(of(normed, kind, inputs=signals), mode=mode, own_formulas=True)


def test_statistics_between_training_and_evaluation():
    given = scenarios.b1()
    remat = optimize_once(scenarios.b1).load()
    for call in range(1, 6):
        for module in (given.eager, remat):
            module.train(call % 2 == 1)
        train_alike(given.eager, remat, given.inputs, calls=1)
    assert dict(remat.named_buffers())["0.1.num_batches_tracked"].item() == 3


def test_evaluation_between_forward_and_backward():
    given = scenarios.b1()
    remat = optimize_once(scenarios.b1).load()

    def evaluating(module, x):
        y = module(x)
        module.eval()
        with torch.no_grad():
            module(x * 3)
        module.train()
        return y

    train_alike(given.eager, remat, given.inputs, forward=evaluating)


def test_a_training_forward_between_forward_and_backward():
    given = scenarios.b1()
    remat = optimize_once(scenarios.b1).load()

    def training(module, x):
        y = module(x)
        module(x * 3)
        return y

    train_alike(given.eager, remat, given.inputs, forward=training)


def test_planned_in_evaluation_mode_trained_in_training_mode():
    given = scenarios.b1()
    given.script.eval()
    remat = optimize(given.script, given.inputs).load()
    for module in (given.eager, remat):
        module.train()
    train_alike(given.eager, remat, given.inputs)
    for module in (given.eager, remat):
        module.eval()
    train_alike(given.eager, remat, given.inputs)


def test_embedding_with_max_norm_renormalises_once():
    class Embeds(nn.Module):
        """As nn.Embedding(max_norm=1) does it in eager; scripting loses the write."""

        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 16)
            self.body = mlp(16, 4)

        def forward(self, index):
            torch.embedding_renorm_(self.table.weight.detach(), index, 1.0, 2.0)
            return self.body(self.table(index))

    torch.manual_seed(0)
    optimized = check(case(Embeds(), torch.randint(50, (ROWS,))))
    assert "hidden-write" in optimized.reasons("aten::embedding_renorm_")


def test_spectral_norm_iterates_once():
    class Normed(nn.Module):
        """Power iteration on a buffer, as spectral_norm does it."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 16))
            self.register_buffer("u", F.normalize(torch.randn(16), dim=0))
            self.body = mlp(16, 3)

        def forward(self, x):
            if self.training:
                with torch.no_grad():
                    v = F.normalize(torch.mv(self.weight.t(), self.u), dim=0)
                    self.u.copy_(F.normalize(torch.mv(self.weight, v), dim=0))
            v = F.normalize(torch.mv(self.weight.t(), self.u.clone()), dim=0)
            sigma = torch.dot(self.u.clone(), torch.mv(self.weight, v.detach()))
            return self.body(F.linear(x, self.weight / sigma))

    torch.manual_seed(0)
    check(case(Normed(), torch.randn(ROWS, 16)))


def test_evaluation_mode_moves_nothing():
    given = scenarios.b1()
    remat = optimize_once(scenarios.b1).load().eval()
    before = [b.clone() for b in remat.buffers()]
    testing.replayed_nodes()
    train_step(remat, given.inputs)
    assert testing.replayed_nodes() > 0
    for a, b in zip(before, remat.buffers(), strict=True):
        assert torch.equal(a, b)


class NormAsTold(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(16, 3), mlp(16, 3)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("var", torch.ones(16))

    def forward(self, x, train: bool):
        return self.b(F.batch_norm(self.a(x), self.mean, self.var, training=train))


@pytest.mark.parametrize("planned", [True, False])
def test_a_norms_mode_that_is_an_argument(planned):
    torch.manual_seed(0)
    given = case(NormAsTold(), torch.randn(ROWS, 16), planned)
    remat = optimize(given.script, given.inputs).load()
    train_alike(given.eager, remat, lambda call: (given.inputs[0], call % 2 == 0))


class OneNormThrice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = mlp(16, 3), mlp(16, 3), nn.BatchNorm1d(16)

    def forward(self, x):
        return self.b(self.norm(torch.sigmoid(self.norm(torch.tanh(self.norm(self.a(x)))))))


@pytest.mark.parametrize("budget", BUDGETS)
def test_one_norm_used_three_times(budget):
    check(of(OneNormThrice), budget)


def test_evaluation_mode_set_before_the_backward():
    torch.manual_seed(0)
    given = case(nn.Sequential(mlp(16, 2), nn.Dropout(0.5), nn.BatchNorm1d(16), mlp(16, 2)), torch.randn(ROWS, 16))
    remat = optimize(given.script, given.inputs).load()

    def forward(module, x):
        module.train()
        y = module(x)
        module.eval()
        return y

    train_alike(given.eager, remat, given.inputs, forward=forward)
