"""Eager modules are scripted, or traced with a warning; what TorchScript would leave out is refused."""

import warnings
from typing import Tuple

import pytest
import remat
import torch
import training


class Unscriptable(training.Net):
    """Keyword arguments of any name are nothing that TorchScript knows."""

    def forward(self, x, **options):
        return super().forward(x)


def unscriptable():
    torch.manual_seed(7)
    return Unscriptable()


def test_scripted_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        remat.optimize(training.net(), training.batch()[0], "min")


def test_traced_with_a_warning():
    model, x = unscriptable(), training.batch()[0]
    before, random_state = training.snapshot(model), torch.get_rng_state()
    for _ in range(2):  # TorchScript itself says why only the first time
        with pytest.warns(UserWarning, match="was traced.*keyword-only.*training.*don't change") as caught:
            optimized = remat.optimize(model, x, "min")
        assert [warning.filename for warning in caught] == [__file__]
    training.assert_untouched(model, before, versions=False)
    assert torch.equal(random_state, torch.get_rng_state())
    assert remat.result_of(optimized).recomputed > 0
    assert list(optimized.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(model.parameters(), optimized.parameters(), strict=True))
    training.assert_same(training.train(training.net()), training.train(optimized))


def test_traced_by_name():
    with pytest.warns(UserWarning, match="was traced"):
        optimized = remat.optimize(unscriptable(), {"x": training.batch()[0]}, "min")
    training.assert_same(training.train(training.net()), training.train(optimized))


def test_a_trace_replaces_buffers():
    class Replacing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)
            self.register_buffer("mean", torch.zeros(64))

        def forward(self, x, **options):
            h = torch.tanh(self.linear(x)).exp()
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
            return torch.tanh(h - self.mean)

    model = Replacing()
    mean = model.mean
    with pytest.warns(UserWarning, match="was traced"):
        remat.optimize(model, torch.randn(256, 64), "min")
    assert model.mean is mean and not mean.any()


def test_parametrized_modules_are_traced():
    def made():
        torch.manual_seed(5)
        normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(64, 64))
        return torch.nn.Sequential(normed, torch.nn.GELU(), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.GELU())

    model, x = made(), torch.randn(256, 64)
    with pytest.warns(UserWarning, match="module 0 has parametrized parameters"):
        optimized = remat.optimize(model, x, "min")
    assert remat.result_of(optimized).recomputed > 0
    eager = made()
    for _ in range(4):
        for module in (eager, optimized):
            module.zero_grad()
            module(x).square().sum().backward()
        for (name, expected), actual in zip(eager.named_parameters(), model.parameters(), strict=True):
            assert torch.equal(expected.grad, actual.grad), name


def test_neither_scripted_nor_traced():
    class Neither(torch.nn.Module):
        def forward(self, x, **options):
            raise NotImplementedError("nothing here")

    with pytest.raises(remat.RematError, match=r"neither scripted \(.*\) nor traced \(NotImplementedError: nothing"):
        remat.optimize(Neither(), torch.randn(3))
    with pytest.raises(remat.RematError, match="only forward is known"):
        remat.optimize(unscriptable(), training.batch()[0], method="features")


def test_other_methods():
    class Featured(training.Net):
        @torch.jit.export
        def features(self, x):
            return torch.tanh(torch.sigmoid(self.blocks(self.stem(x)).flatten(1)))

    optimized = remat.optimize(Featured(), training.batch()[0], "min", method="features")
    assert remat.result_of(optimized).method == "features" and remat.result_of(optimized).changed


def test_optimized_again():
    # From the original, not from what is optimised already.
    once = remat.optimize(training.net(), training.batch()[0], "80%")
    twice = remat.optimize(once, training.batch()[0], "min")
    assert remat.result_of(twice).predicted_peak < remat.result_of(once).predicted_peak
    training.assert_same(training.train(training.net()), training.train(twice))


def before(self, input: Tuple[torch.Tensor]) -> Tuple[torch.Tensor]:
    return (input[0] + 1,)


def after(self, input: Tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
    return output * 2


def test_hooks_on_a_modules_forward():
    models = [training.net(), training.net()]
    for model in models:
        model.blocks[1].register_forward_hook(after)
        model.register_forward_pre_hook(before)
        model.register_forward_hook(after)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # of a trace
        optimized = remat.optimize(models[1], training.batch()[0], "min")
    assert remat.result_of(optimized).recomputed > 0
    training.assert_same(training.train(models[0]), training.train(optimized))


def test_evaluation_mode():
    with pytest.warns(UserWarning, match="in evaluation mode") as caught:
        optimized = remat.optimize(training.net().eval(), training.batch()[0], "min")
    with pytest.warns(UserWarning, match="in evaluation mode") as also:
        remat.plan(training.net().eval(), training.batch()[0], "min")
    # The line above, not one of the package's.
    assert {warning.filename for warning in (*caught, *also)} == {__file__}
    assert not optimized.training
    training.assert_same(training.train(training.net().eval()), training.train(optimized))


def test_hooks_on_a_modules_backward():
    model = training.net()
    handle = model.blocks[0].register_full_backward_hook(lambda *arguments: None)
    with pytest.raises(remat.RematError, match=r"module blocks\.0 has backward hooks"):
        remat.optimize(model, training.batch()[0])
    handle.remove()
    remat.optimize(model, training.batch()[0], "min")


def double(x):
    return 2 * x


def test_what_is_no_model():
    x = training.batch()[0]
    with pytest.raises(TypeError, match="wrapped by DataParallel"):
        remat.optimize(torch.nn.DataParallel(training.net()), x)
    with pytest.raises(TypeError, match="wrapped by OptimizedModule"):
        remat.optimize(torch.compile(training.net()), x)
    with pytest.raises(TypeError, match="model is a function"):
        remat.optimize(torch.jit.script(double), x)
    with pytest.raises(TypeError, match="model is a str"):
        remat.optimize("model.pt", x)
    with pytest.raises(remat.RematError, match="without a shape"):
        remat.optimize(torch.nn.Sequential(torch.nn.LazyLinear(3)), x)
