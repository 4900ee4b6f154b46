"""What remat.optimize and remat.plan take, give, and refuse; and that the model stays as it was."""

from typing import List, Optional  # as TorchScript knows them

import pytest
import remat
import torch
import training


def test_the_model_stays_as_it_was():
    model = training.net()
    calls = []
    model.head.weight.register_hook(lambda gradient: calls.append("hook"))
    model.head.bias.register_post_accumulate_grad_hook(lambda parameter: calls.append("accumulated"))
    training.train(model, steps=1)  # gradients are there, and statistics
    model.blocks[1].eval()
    x, y = training.batch()
    waiting = torch.nn.functional.cross_entropy(model(x), y)  # its backward needs every version
    script = torch.jit.script(model)
    random_state = torch.get_rng_state()
    given = x.clone()
    for source in (model, script):
        calls.clear()
        before = training.snapshot(source)
        optimized = remat.optimize(source, x, "min")
        remat.plan(source, x, ["min"])
        assert remat.result_of(optimized).recomputed > 0
        training.assert_untouched(source, before)
        optimized.eval()
        training.assert_untouched(source, before)
        assert calls == []
    assert torch.equal(random_state, torch.get_rng_state()) and torch.equal(x, given) and x.grad is None
    waiting.backward()
    assert calls == ["hook", "accumulated"] or calls == ["accumulated", "hook"]


def test_a_module_that_fails_stays_as_it_was():
    class Failing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))
            self.sizes = [torch.zeros(1)]

        def forward(self, x):
            self.calls += 1
            self.sizes[0] += 1
            if int(self.calls) > 6:
                raise RuntimeError("enough")
            return torch.tanh(self.linear(x)).exp().tanh()

    for failing_from in range(7):
        script = torch.jit.script(Failing())
        script.calls += failing_from
        before = training.snapshot(script)
        try:
            remat.optimize(script, torch.randn(256, 64), "min")
        except remat.RematError as error:
            assert "enough" in str(error)
        training.assert_untouched(script, before)
        assert script.sizes[0].item() == 0
    assert failing_from == 6 and int(script.calls) == 6


def test_under_the_callers_own_modes():
    x = training.batch()[0]
    with torch.no_grad():
        remat.optimize(training.net(), x, "min")
    with torch.autocast("cpu", torch.bfloat16):
        result = remat.result_of(remat.optimize(training.net(), x, "min"))
        assert torch.is_autocast_enabled("cpu")
    assert result.loss == "random gradients"
    # Values of half the size would have shown in the peak.
    plain = remat.result_of(remat.optimize(training.net(), x, "min"))
    assert result.original_peak == plain.original_peak


def test_the_result():
    optimized = remat.optimize(training.net(), training.batch()[0], "60%", loss="cross_entropy", reserve="10kB")
    result = remat.result_of(optimized)
    assert isinstance(optimized, torch.jit.ScriptModule) and isinstance(optimized, torch.nn.Module)
    assert result.changed and result.method == "forward" and result.device == "cpu" and result.loss == "cross_entropy"
    assert result.inputs == "Float[64, 3, 8, 8]"
    assert result.budget == int(0.6 * result.original_peak) - 10000
    assert 0 < result.predicted_peak <= result.budget and 0 < result.measured_peak <= result.budget
    assert result.kept > 0 and result.recomputed > 0 and 0 < result.recompute_share
    assert "remat::keep" in result.after_ir and "remat::keep" not in result.before_ir
    text = str(result)
    assert "original peak" in text and "measured peak" in text and "plan=" not in repr(result)
    with pytest.raises(TypeError, match="no module that remat"):
        remat.result_of(training.net())


def test_measuring_can_be_left_out():
    x = training.batch()[0]
    assert remat.result_of(remat.optimize(training.net(), x, "min", measure=False)).measured_peak is None
    measured = remat.result_of(remat.optimize(training.net(), x, "min"))
    assert 0 < measured.measured_peak < measured.original_peak


def test_nothing_to_gain():
    optimized = remat.optimize(training.net(), training.batch()[0], "900GB")
    result = remat.result_of(optimized)
    assert not result.changed and "within the budget" in result.reason_unchanged and result.recomputed == 0
    assert "nothing to gain" in str(result)
    training.assert_same(training.train(training.net()), training.train(optimized))


@pytest.mark.parametrize("budget,share", [(0.6, 0.6), ("60%", 0.6), (None, 0.5)])
def test_budgets_as_shares(budget, share):
    result = remat.result_of(remat.optimize(training.net(), training.batch()[0], budget))
    assert result.budget == pytest.approx(share * result.original_peak, abs=1)


def test_budgets_in_bytes_and_time():
    x = training.batch()[0]
    original = remat.plan(training.net(), x, "min").original_peak
    for budget in (int(0.7 * original), f"{int(0.7 * original)}B"):
        assert remat.result_of(remat.optimize(training.net(), x, budget)).budget == int(0.7 * original)
    result = remat.result_of(remat.optimize(training.net(), x, max_overhead="5%"))
    assert result.extra_time_share <= 0.05
    assert remat.result_of(remat.optimize(training.net(), x, max_overhead=0.0)).extra_time_share == 0


def test_budgets_out_of_reach():
    model, x = training.net(), training.batch()[0]
    with pytest.raises(remat.BudgetError, match=r"the lowest \(min\)") as caught:
        remat.optimize(model, x, "1%")
    curve = remat.plan(model, x, ["1%", "min"])
    assert 0 < curve.lower_bound_peak <= curve.minimum_peak < curve.original_peak
    assert caught.value.minimum_peak == pytest.approx(curve.minimum_peak, rel=0.05)
    assert isinstance(caught.value, remat.RematError)
    assert curve.out_of_reach == (int(0.01 * curve.original_peak),)
    met = remat.optimize(model, x, curve.minimum_peak)
    assert remat.result_of(met).predicted_peak <= curve.minimum_peak


def test_the_curve():
    curve = remat.plan(training.net(), training.batch()[0])
    peaks = [point.budget for point in curve.points]
    assert len(peaks) + len(curve.out_of_reach) >= 10 and peaks == sorted(peaks, reverse=True)
    assert all(point.predicted_peak <= point.budget for point in curve.points)
    assert all(point.gap >= 0 and point.lower_bound_share >= 0 for point in curve.points)
    shares = [point.recompute_share for point in curve.points]
    assert shares == sorted(shares) and shares[-1] > 0
    text, html = repr(curve), curve._repr_html_()
    rows = text.splitlines()[2:]
    assert len(rows) == len(curve.points) + len(curve.out_of_reach) and html.count("<tr>") == len(rows) + 1
    assert "min " in text and ("out of reach" in text) == bool(curve.out_of_reach)
    assert len({len(row) for row in text.splitlines()[1:]}) == 1


def test_modules_are_chosen():
    x = training.batch()[0]
    kept = remat.result_of(remat.optimize(training.net(), x, "min", keep="blocks.*"))
    free = remat.result_of(remat.optimize(training.net(), x, "min"))
    assert kept.predicted_peak > free.predicted_peak
    forced = remat.result_of(remat.optimize(training.net(), x, "900GB", recompute=["blocks.*"]))
    assert forced.changed and forced.recomputed > 0
    with pytest.raises(ValueError, match="keep 'nix' matches no module"):
        remat.optimize(training.net(), x, keep=["nix"])


def test_remarks():
    class Remarkable(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = training.net()
            self.mix = torch.nn.Linear(10, 10)

        def forward(self, x):
            h = self.inner(x)
            return self.mix(h + torch.bernoulli(torch.sigmoid(h))).tanh()

    curve = remat.plan(Remarkable(), training.batch()[0], ["min"])
    sizes = [remark.saved_bytes for remark in curve.remarks]
    assert sizes == sorted(sizes, reverse=True)
    result = remat.result_of(remat.optimize(Remarkable(), training.batch()[0], "min"))
    assert {remark.reason for remark in result.remarks} == {remark.reason for remark in curve.remarks}
    for remark in result.remarks:
        assert remark.text and remark.remedy and f"kept [{remark.reason}]: {remark.text}" in str(remark)
    written = [remark for remark in result.remarks if remark.file]
    assert written and all(remark.line > 0 and remark.file.endswith(".py") for remark in written)


def test_plans_are_kept(tmp_path):
    model, x = training.net(), training.batch()[0]
    first = remat.optimize(model, x, "60%")
    path = tmp_path / "plan.json"
    remat.save_plan(first, path)
    known = remat.result_of(first)
    for plan in (path, str(path), known.plan):
        again = remat.result_of(remat.optimize(model, x, plan=plan))
        assert again.plan_hash == known.plan_hash
        assert again.plan_hash == remat.result_of(remat.optimize(model, x, plan=plan, profile=known.profile)).plan_hash
    with pytest.raises(remat.RematError, match="another model"):
        remat.optimize(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), torch.randn(64, 3, 8, 8), plan=path)
    with pytest.raises(ValueError, match="plan is none"):
        remat.optimize(model, x, plan="{}")
    with pytest.raises(FileNotFoundError):
        remat.optimize(model, x, plan=tmp_path / "none.json")


@pytest.mark.parametrize(
    "options,kind,what",
    [
        ({"budget": "50"}, ValueError, "budget '50' has no unit"),
        ({"budget": " "}, ValueError, "budget is empty"),
        ({"budget": "101%"}, ValueError, "not between 0% and 100%"),
        ({"budget": 1.5}, ValueError, "no share"),
        ({"budget": 0}, ValueError, "no memory at all"),
        ({"budget": True}, TypeError, "budget is a bool"),
        ({"budget": [1]}, TypeError, "budget is a list"),
        ({"budget": "50%", "max_overhead": 0.1}, ValueError, "budget and max_overhead are given"),
        ({"max_overhead": "20"}, ValueError, "no percentage"),
        ({"max_overhead": "nan%"}, ValueError, "no percentage"),
        ({"max_overhead": -0.1}, ValueError, "no share"),
        ({"reserve": "20"}, ValueError, "reserve '20' has no unit"),
        ({"reserve": -1}, ValueError, "negative"),
        ({"reserve": 1.5}, TypeError, "reserve is a float"),
        ({"loss": "mse"}, ValueError, "loss 'mse' is unknown"),
        ({"autocast": torch.float64}, ValueError, "autocast torch.float64 is unknown"),
        ({"method": "loss"}, ValueError, "no method loss; it has forward"),
        ({"allow_ops": "relu"}, ValueError, "no operator's name"),
        ({"allow_ops": [3]}, TypeError, "holds a int"),
        ({"allow_ops": "my::op"}, remat.RematError, "no operator is registered under the name my::op"),
        ({"device": "cuda:0" if not torch.cuda.is_available() else "meta"}, ValueError, "the model is on cpu"),
        ({"plan": ""}, FileNotFoundError, "plan '' is no file"),
        ({"profile": 3}, TypeError, "profile is a int"),
        ({"plan": "{", "keep": "stem"}, ValueError, "leave them out beside plan"),
    ],
)
def test_wrong_arguments(options, kind, what):
    with pytest.raises(kind, match=what):
        remat.optimize(training.net(), training.batch()[0], **options)


def test_inputs():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)

        def forward(
            self,
            x: torch.Tensor,
            y: Optional[torch.Tensor] = None,
            scale: float = 1.0,
            more: Optional[List[torch.Tensor]] = None,
        ):
            h = torch.tanh(self.linear(x)).exp() * scale
            if y is not None:
                h = torch.sigmoid(h + y)
            if more is not None:
                for z in more:
                    h = h + z
            return h.tanh()

    x, y = torch.randn(256, 64), torch.randn(256, 64)

    def inputs_of(example):
        return remat.result_of(remat.optimize(Two(), example, "min")).inputs

    assert inputs_of(x) == "Float[256, 64]"
    assert inputs_of((x,)) == "Float[256, 64]"
    assert inputs_of((x, y)).startswith("Float[256, 64], Float[256, 64]")
    assert inputs_of({"y": y, "x": x}).startswith("Float[256, 64], Float[256, 64]")
    assert inputs_of({"x": x, "scale": 2.0}).startswith("Float[256, 64], None, 2")
    assert inputs_of((x, None, 1.0, [y, y])).startswith("Float[256, 64], None, 1")
    assert inputs_of((x.requires_grad_(),)) == "Float[256, 64]:grad"
    with pytest.raises(TypeError, match="no example input for x"):
        remat.optimize(Two(), {"y": y})
    with pytest.raises(TypeError, match="takes no argument 'z'"):
        remat.optimize(Two(), {"x": x, "z": y})
    with pytest.raises(TypeError, match="takes 4 arguments, 5 example inputs"):
        remat.optimize(Two(), (x, y, 1.0, [], 1))
    with pytest.raises(TypeError, match=r"goes into a tuple of its own"):
        remat.optimize(Two(), tuple(range(5)))
    with pytest.raises(TypeError, match=r"hold a numpy.ndarray: give a tensor"):
        remat.optimize(Two(), {"x": x, "more": [y.numpy()]})
    with pytest.raises(TypeError, match="no values that TorchScript has"):
        remat.optimize(Two(), (x, object()))
    with pytest.raises(remat.RematError, match="shapes cannot be multiplied"):
        remat.optimize(Two(), torch.randn(256, 3))


def test_devices():
    model, x = training.net(), training.batch()[0]
    with pytest.raises(ValueError, match="example input 0 is on meta"):
        remat.optimize(model, x.to("meta"))
    model.head.to("meta")
    with pytest.raises(ValueError, match=r"several devices \(stem.weight on cpu, head.weight on meta\)"):
        remat.optimize(model, x)
    with pytest.raises(ValueError, match="only cpu and cuda"):
        remat.optimize(model.to("meta"), x.to("meta"))
