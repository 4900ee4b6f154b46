"""What remat.optimize gives trains as the eager original does, bit for bit, with what Python users train with."""

import copy
import io
import resource

import pytest
import remat
import torch
import training


def make_pair(budget="min", **options):
    """An eager module and an optimised one with the same weights, in other tensors."""
    optimized = remat.optimize(training.net(), training.batch()[0], budget, **options)
    assert remat.result_of(optimized).recomputed > 0
    return training.net(), optimized


@pytest.mark.parametrize("budget", ["min", "60%"])
@pytest.mark.parametrize(
    "make_optimizer",
    [
        training.adam,
        lambda module: torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda module: torch.optim.Adam(module.parameters(), lr=1e-2, foreach=True),
    ],
    ids=["AdamW", "SGD", "Adam foreach"],
)
def test_optimizers(make_optimizer, budget):
    eager, optimized = make_pair(budget=budget)
    training.assert_same(
        training.train(eager, make_optimizer=make_optimizer), training.train(optimized, make_optimizer=make_optimizer)
    )


def test_training_the_result_trains_the_model():
    model = training.net()
    optimized = remat.optimize(model, training.batch()[0], "min")
    training.assert_same(training.train(training.net()), training.train(optimized))
    for left, right in zip(model.parameters(), optimized.parameters(), strict=True):
        assert left is right
    expected = training.net()
    training.train(expected)
    training.assert_same(training.train(expected), training.train(model))


def test_state_dicts_both_ways():
    eager, optimized = make_pair()
    training.train(optimized)
    saved = io.BytesIO()
    torch.save(optimized.state_dict(), saved)
    saved.seek(0)
    state = torch.load(saved)
    assert list(state) == list(eager.state_dict())  # in this order, without the buffer that isn't persistent
    assert eager.load_state_dict(state, strict=True).missing_keys == []
    training.assert_same(training.train(eager), training.train(optimized))

    other = training.net()
    training.train(other)
    optimized.load_state_dict(other.state_dict(), strict=True)
    training.assert_same(training.train(other), training.train(optimized))


def test_optimizer_state_is_resumed():
    eager, optimized = make_pair()
    left, right = training.adam(eager), training.adam(optimized)
    expected = [training.step(eager, left, call) for call in range(4)]
    actual = [training.step(optimized, right, call) for call in range(2)]
    saved = io.BytesIO()
    torch.save({"model": optimized.state_dict(), "optimizer": right.state_dict()}, saved)
    saved.seek(0)
    state = torch.load(saved)
    _, resumed = make_pair()
    resumed.load_state_dict(state["model"])
    optimizer = training.adam(resumed)
    optimizer.load_state_dict(state["optimizer"])
    actual += [training.step(resumed, optimizer, call) for call in (2, 3)]
    training.assert_same(expected, actual)


def test_deepcopy():
    eager, optimized = make_pair()
    twin = copy.deepcopy(optimized)
    assert type(twin) is remat.OptimizedModule and remat.result_of(twin) == remat.result_of(optimized)
    assert list(twin.state_dict()) == list(optimized.state_dict())
    mine = {id(tensor) for tensor in (*optimized.parameters(), *optimized.buffers())}
    for parameter in twin.parameters():
        assert isinstance(parameter, torch.nn.Parameter) and parameter.is_leaf and id(parameter) not in mine
    assert not mine & {id(buffer) for buffer in twin.buffers()}
    assert twin.second.weight is twin.third.weight
    before = training.snapshot(optimized)
    expected = training.train(eager)
    training.assert_same(expected, training.train(twin))
    training.assert_untouched(optimized, before)
    training.assert_same(expected, training.train(optimized))


def test_averaged_model():
    # torch.optim's moving averages copy the model and call the copy.
    eager, optimized = make_pair()
    averages = [torch.optim.swa_utils.AveragedModel(module) for module in (eager, optimized)]
    training.train(eager), training.train(optimized)
    for average, module in zip(averages, (eager, optimized), strict=True):
        average.update_parameters(module)
    x = training.batch()[0]
    left, right = (average.eval()(x) for average in averages)
    assert torch.equal(left, right)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_with_a_grad_scaler(dtype):
    eager, optimized = make_pair(autocast=dtype, loss="cross_entropy")
    options = {
        "make_scaler": lambda: torch.amp.GradScaler("cpu", init_scale=1024.0),
        "context": lambda: torch.autocast("cpu", dtype),
    }
    training.assert_same(training.train(eager, **options), training.train(optimized, **options))


def test_save_on_cpu():
    eager, optimized = make_pair()
    expected = training.train(eager)
    training.assert_same(expected, training.train(optimized, context=torch.autograd.graph.save_on_cpu))


def test_train_and_eval():
    eager, optimized = make_pair()
    for mode in (False, True, False, True):
        assert eager.train(mode).training == optimized.train(mode).training
        assert all(part.training == mode for part in optimized.modules())
        training.assert_same(training.train(eager, steps=2), training.train(optimized, steps=2))
    with torch.no_grad():
        assert torch.equal(eager.eval()(training.batch()[0]), optimized.eval()(training.batch()[0]))


def test_other_dtypes():
    eager, optimized = make_pair()
    eager.to(torch.float64), optimized.to(torch.float64)
    assert {tensor.dtype for tensor in optimized.parameters()} == {torch.float64}
    training.assert_same(
        training.train(eager, dtype=torch.float64), training.train(optimized, dtype=torch.float64)
    )


def test_frozen_parameters():
    models = [training.net(), training.net()]
    for model in models:
        model.stem.requires_grad_(False)
    optimized = remat.optimize(models[1], training.batch()[0], "min")
    x, y = training.batch()
    for module in (models[0], optimized):
        torch.manual_seed(0)
        torch.nn.functional.cross_entropy(module(x), y).backward()
    for left, right in zip(models[0].parameters(), optimized.parameters(), strict=True):
        assert (left.grad is None) == (right.grad is None)
        assert left.grad is None or torch.equal(left.grad, right.grad)
    assert optimized.stem.weight.grad is None


def test_files(tmp_path):
    eager, optimized = make_pair()
    path = tmp_path / "model.pt"
    remat.save(optimized, path)
    loaded = remat.load(path)
    known, found = remat.result_of(optimized), remat.result_of(loaded)
    assert (found.plan_hash, found.predicted_peak) == (known.plan_hash, known.predicted_peak)
    assert found.measured_peak is None
    torch.jit.save(optimized, tmp_path / "plain.pt")
    expected = training.train(eager)
    for module in (loaded, remat.load(tmp_path / "plain.pt"), torch.jit.load(tmp_path / "plain.pt")):
        training.assert_same(expected, training.train(module))
    with pytest.raises(TypeError, match="no module that remat"):
        remat.result_of(torch.jit.load(path))
    with pytest.raises(FileNotFoundError):
        remat.load(tmp_path / "none.pt")
    whole = path.read_bytes()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))  # as on a full disk
    try:
        with pytest.raises(OSError, match="File too large"):
            remat.save(optimized, path)
        with pytest.raises(OSError, match="File too large"):
            remat.save_plan(optimized, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert path.read_bytes() == whole
    assert {file.name for file in tmp_path.iterdir()} == {"model.pt", "plain.pt"}
    (tmp_path / "text.pt").write_text("no model")
    with pytest.raises(remat.RematError, match=r"text\.pt: can't be loaded"):
        remat.load(tmp_path / "text.pt")
