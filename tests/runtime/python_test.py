"""Optimised modules in Python: what Python puts in front of the engine works with them."""

import copy
import io
import multiprocessing
import os
import subprocess
import threading

import pytest
import torch
from torch.utils import checkpoint

torch.ops.load_library(os.environ["REMAT_RUNTIME"])
torch._C._set_graph_executor_optimize(False)  # the plain module is then eager bit for bit

HELPER = os.path.abspath("tests/runtime/optimize_sample")


class Sample(torch.nn.Module):
    def __init__(self, p):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.dropout = torch.nn.Dropout(p)
        self.second = torch.nn.Linear(32, 16)

    def forward(self, x):
        h = torch.tanh(self.norm(self.first(x)))
        h = torch.sigmoid(self.dropout(h).t()).t()
        return torch.nn.functional.gelu(torch.tanh(self.second(h)))


def make_pair(tmp_path, p=0.0, keep=()):
    """A plain scripted module and the same one with everything but `keep` recomputed."""
    torch.manual_seed(0)
    plain = torch.jit.script(Sample(p))
    source, target = str(tmp_path / "plain.pt"), str(tmp_path / "remat.pt")
    torch.jit.save(plain, source)
    subprocess.run([HELPER, source, target, *keep], check=True)
    return torch.jit.load(source), torch.jit.load(target)


def copy_of(module):
    """deepcopy of a ScriptModule makes parameters that are no leaves."""
    with torch.no_grad():
        copied = copy.deepcopy(module)
    for parameter in copied.parameters():
        parameter.requires_grad_()
    return copied


def train_step(module, x, seed=1):
    """Output, gradients, buffers and next draw of one step."""
    module.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    torch.manual_seed(seed)
    y = module(x)
    (y * y.detach().cos()).sum().backward()
    grads = [p.grad.clone() for p in module.parameters()] + [x.grad]
    return [y.detach(), *grads, *[b.clone() for b in module.buffers()], torch.rand(4)]


def assert_same(expected, actual, exact=True):
    assert len(expected) == len(actual)
    for i, (a, b) in enumerate(zip(expected, actual)):
        assert torch.equal(a, b) if exact else torch.allclose(a, b), i


def inputs():
    return torch.randn(24, 16, generator=torch.Generator().manual_seed(3))


def test_trains_like_the_plain_module(tmp_path):
    plain, remat = make_pair(tmp_path, p=0.3)
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-2) for m in (plain, remat)]
    for i in range(6):
        plain.train(i % 3 != 2), remat.train(i % 3 != 2)
        assert_same(train_step(plain, inputs(), i), train_step(remat, inputs(), i))
        for optimizer in optimizers:
            optimizer.step()


def test_anomaly_detection(tmp_path):
    plain, remat = make_pair(tmp_path, p=0.3)
    expected = train_step(plain, inputs())
    with torch.autograd.set_detect_anomaly(True):
        assert_same(expected, train_step(remat, inputs()))
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"), pytest.warns(UserWarning):
        remat(torch.full((24, 16), float("nan"), requires_grad=True)).sum().backward()


def test_saved_tensors_hooks_see_what_is_kept(tmp_path):
    plain, remat = make_pair(tmp_path)
    packed, unpacked = [], []

    def pack(tensor):
        packed.append(tensor)
        assert not tensor.requires_grad or tensor.is_leaf
        return len(packed) - 1

    def unpack(index):
        unpacked.append(index)
        return packed[index]

    expected = train_step(plain, inputs())
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        actual = train_step(remat, inputs())
    assert_same(expected, actual)
    assert packed and unpacked
    assert set(unpacked) <= set(range(len(packed)))


@pytest.mark.parametrize("keep", [(), ("aten::t", "aten::linear"), ("aten::batch_norm",)])
def test_save_on_cpu(tmp_path, keep):
    plain, remat = make_pair(tmp_path, keep=keep)
    expected = train_step(plain, inputs())
    with torch.autograd.graph.save_on_cpu():
        actual = train_step(remat, inputs())
    assert_same(expected, actual, exact=False)


def test_hooks_that_raise(tmp_path):
    plain, remat = make_pair(tmp_path)
    for limit in range(8):
        calls = []

        def pack(tensor):
            if len(calls) == limit:
                raise ValueError("the disk is full")
            calls.append(1)
            return tensor

        # TorchScript's interpreter makes a RuntimeError without a message of it, Remat or not.
        with pytest.raises(RuntimeError):
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                remat(inputs().requires_grad_())

    def unpack(tensor):
        raise ValueError("the disk is gone")

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = remat(inputs().requires_grad_())
    with pytest.raises((RuntimeError, ValueError), match="the disk is gone"):
        y.sum().backward()
    plain, remat = make_pair(tmp_path)
    assert_same(train_step(plain, inputs()), train_step(remat, inputs()))


def test_disabled_hooks(tmp_path):
    plain, remat = make_pair(tmp_path)
    expected = train_step(plain, inputs())
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        actual = train_step(remat, inputs())
    assert_same(expected, actual)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_inside_of_torchs_checkpoint(tmp_path, use_reentrant):
    # Without early stop: its exception does not pass TorchScript's interpreter, Remat or not.
    plain, remat = make_pair(tmp_path, p=0.3)

    def step(module):
        module.zero_grad(set_to_none=True)
        x = inputs().requires_grad_()
        torch.manual_seed(2)
        with checkpoint.set_checkpoint_early_stop(False):
            y = checkpoint.checkpoint(module, x, use_reentrant=use_reentrant)
            y = checkpoint.checkpoint(module, y, use_reentrant=use_reentrant)
            y.sum().backward()
        return [y.detach(), x.grad, *[p.grad for p in module.parameters()], torch.rand(3)]

    assert_same(step(plain), step(remat))


def test_freezing_says_what_to_do(tmp_path):
    _, remat = make_pair(tmp_path)
    with pytest.raises(RuntimeError, match="remat-opt strip"):
        torch.jit.freeze(remat.eval())(inputs())


def test_copies_and_files(tmp_path):
    plain, remat = make_pair(tmp_path, p=0.3)
    buffer = io.BytesIO()
    torch.jit.save(remat, buffer)
    buffer.seek(0)
    state = copy.deepcopy(remat.state_dict())
    for other in (copy_of(remat), torch.jit.load(buffer)):
        fresh = copy_of(plain)
        for i in range(3):
            assert_same(train_step(fresh, inputs(), i), train_step(other, inputs(), i))
        other.load_state_dict(state)
    assert_same(train_step(plain, inputs()), train_step(remat, inputs()))


def test_second_derivatives(tmp_path):
    plain, remat = make_pair(tmp_path)

    def derivatives(module):
        x = inputs().requires_grad_()
        leaves = [x, *module.parameters()]
        first = torch.autograd.grad(module(x).pow(2).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), leaves, retain_graph=True)
        return [*[g.detach() for g in first], *second]

    assert_same(derivatives(plain), derivatives(remat))


def test_threads_with_a_module_each(tmp_path):
    plain, remat = make_pair(tmp_path, p=0.3)
    copies = [copy_of(remat) for _ in range(4)]
    failures = []

    def work(module):
        try:
            for _ in range(20):
                module.zero_grad(set_to_none=True)
                x = inputs().requires_grad_()
                y = module(x)
                y.sum().backward()
                assert all(torch.isfinite(p.grad).all() for p in module.parameters())
        except BaseException as error:  # pytest sees only its own thread's
            failures.append(error)

    run_threads([lambda m=m: work(m) for m in copies])
    assert not failures
    for module in copies:
        # 20 steps moved the statistics 20 times.
        assert module.norm.num_batches_tracked.item() == 20
    torch.manual_seed(0)
    assert_same(train_step(plain, inputs()), train_step(remat, inputs()))


def test_threads_that_share_a_module(tmp_path):
    plain, remat = make_pair(tmp_path)
    plain.eval(), remat.eval()  # statistics would race, as they do without Remat
    x = inputs().requires_grad_()
    leaves = [x, *remat.parameters()]
    expected = torch.autograd.grad(plain(x).sum(), [x, *plain.parameters()])
    failures = []

    def work():
        try:
            for _ in range(20):
                assert_same(expected, torch.autograd.grad(remat(x).sum(), leaves))
        except BaseException as error:
            failures.append(error)

    run_threads([work] * 4)
    assert not failures


def test_threads_share_a_module_with_dropout(tmp_path):
    # Masks differ from thread to thread; each backward must use its own forward's: where the output
    # was dropped, the gradient is zero.
    source, target = str(tmp_path / "drop.pt"), str(tmp_path / "drop_remat.pt")

    class Drop(torch.nn.Module):
        def forward(self, x):
            h = torch.dropout(torch.exp(x), 0.5, True)
            return torch.tanh(torch.sin(h) * 0.1) * 1.0

    torch.jit.save(torch.jit.script(Drop()), source)
    subprocess.run([HELPER, source, target], check=True)
    remat = torch.jit.load(target)
    failures = []

    def work():
        try:
            for _ in range(20):
                x = torch.randn(64, 64, requires_grad=True)
                y = remat(x)
                (gradient,) = torch.autograd.grad(y.sum(), [x])
                assert torch.equal(y == 0, gradient == 0)
        except BaseException as error:
            failures.append(error)

    run_threads([work] * 4)
    assert not failures


def run_threads(functions):
    threads = [threading.Thread(target=f) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def child(source, target, queue):
    plain, remat = torch.jit.load(source), torch.jit.load(target)
    torch.set_num_threads(1)
    expected, actual = train_step(plain, inputs()), train_step(remat, inputs())
    queue.put(all(torch.equal(a, b) for a, b in zip(expected, actual)))


def test_a_forked_child_trains(tmp_path):
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    plain, remat = make_pair(tmp_path, p=0.3)
    train_step(remat, inputs())
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(str(tmp_path / "plain.pt"), str(tmp_path / "remat.pt"), queue))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert queue.get()
