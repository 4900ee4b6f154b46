// The operators that saved models call.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/serialization/import.h>

#include <sstream>
#include <thread>

#include "ir/outline.h"
#include "runtime/memory_statistics.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class OpsTest : public RuntimeTest {};

const char* const kModel = R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.dropout(torch.tanh(x @ self.w), 0.3, True)
    return torch.sigmoid(torch.gelu(h) @ self.w)
)";

Module model() { return makeModule(kModel, {{"w", randomTensor({4, 4})}}); }

Module saveAndLoad(const Module& module) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

/// What remat::checkpoint has to say to these arguments.
std::string errorOfCheckpoint(const IValue& self, const std::string& region,
                              const std::vector<IValue>& arguments, int64_t version) {
  const auto op = torch::jit::findOperatorFor({"remat::checkpoint", ""});
  torch::jit::Stack stack{self, region, c10::ivalue::Tuple::create(arguments), version};
  return errorOf([&] { op->getOperation()(stack); });
}

TEST_F(OpsTest, WrongCallsAreRefused) {
  const Module remat = optimized(model());
  const std::string region = ir::regionMethod(remat, "forward");
  const IValue self = remat._ivalue();
  const IValue x = at::ones({4, 4});
  EXPECT_EQ(errorOfCheckpoint(self, region, {x}, 1), "");
  const auto expectError = [](const std::string& error, const std::string& expected) {
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  };
  expectError(errorOfCheckpoint(self, region, {x}, 2),
              "the model was written in format version 2, this runtime knows version 1");
  expectError(errorOfCheckpoint(self, "remat_region_gone", {x}, 1), "no method remat_region_gone");
  expectError(errorOfCheckpoint(self, "remat_region_gone", {x}, 1), "remat-opt strip");
  expectError(errorOfCheckpoint(x, region, {x}, 1), "is no module");
  expectError(errorOfCheckpoint(self, region, {x, x}, 1),
              "the region takes 2 arguments but was given 3");
}

TEST_F(OpsTest, FreezingAnOptimisedModuleGivesTheSameError) {
  Module remat = optimized(model());
  remat.eval();
  const std::string error = errorOf([&] {
    Module frozen = torch::jit::freeze_module(remat);
    frozen.forward({at::ones({4, 4})});
  });
  EXPECT_NE(error.find("remat-opt strip"), std::string::npos) << error;
}

TEST_F(OpsTest, WithGradientsOffTheRegionRunsPlainly) {
  Module plain = model();
  Module remat = optimized(plain);
  const at::NoGradGuard no_grad;
  const at::Tensor x = randomTensor({4, 4});
  expectSame(step(plain, {x}), step(remat, {x}));
  const int64_t before = liveBytes();
  const at::Tensor y = remat.forward({x}).toTensor();
  EXPECT_EQ(liveBytes() - before, 64);
  EXPECT_FALSE(y.requires_grad());
}

TEST_F(OpsTest, SurvivesSavingLoadingCloningAndCopying) {
  const Module plain = model();
  const Module remat = optimized(plain);
  const at::Tensor x = randomTensor({4, 4}, true);
  const auto cloned = [](const Module& module) {
    const at::NoGradGuard no_grad;
    Module clone = module.clone();
    for (at::Tensor parameter : clone.parameters()) {
      parameter.set_requires_grad(true);
    }
    return clone;
  };
  for (Module other : {saveAndLoad(remat), cloned(remat), copyOf(remat), remat.copy(),
                       saveAndLoad(saveAndLoad(cloned(remat)))}) {
    Module expected = copyOf(plain);
    for (int i = 0; i < 4; ++i) {
      expectSame(step(expected, {x}, i), step(other, {x}, i));
    }
    EXPECT_TRUE(ir::isOptimized(other, "forward"));
  }
}

TEST_F(OpsTest, OptimisationOnAndOffInBothExecutorsInCallsOneToFour) {
  // relu, matmul and dropout have no formula in TorchScript that rounds differently.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    self.calls.add_(1)
    h = torch.dropout(torch.relu(x @ self.w), 0.3, True)
    return (torch.relu(h @ self.w) * h).sum(1)
)",
                                   {{"w", randomTensor({4, 4})}}, {{"calls", at::zeros({1})}});
  const bool executor = torch::jit::getExecutorMode();
  const bool profiling = torch::jit::getProfilingMode();
  for (const bool optimize : {false, true}) {
    for (const bool profile : {false, true}) {
      torch::jit::setGraphExecutorOptimize(optimize);
      torch::jit::getExecutorMode() = profile;
      torch::jit::getProfilingMode() = profile;
      expectTrainsAlike(module, {randomTensor({4, 4}, true)});
      expectTrainsAlike(module, {randomTensor({4, 4}, true)}, {"aten::matmul"});
    }
  }
  torch::jit::getExecutorMode() = executor;
  torch::jit::getProfilingMode() = profiling;
}

TEST_F(OpsTest, ResultsOfEveryKind) {
  const std::vector<const char*> sources = {
      R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
    h = torch.tanh(x)
    return torch.sigmoid(h), h
)",
      R"(
def forward(self, x: Tensor) -> List[Tensor]:
    h = torch.tanh(x)
    return [torch.sigmoid(h), torch.exp(h * 2.0)]
)",
      R"(
def forward(self, x: Tensor) -> Dict[str, Tensor]:
    h = torch.tanh(x)
    return {"a": torch.sigmoid(h), "b": torch.exp(h * 2.0)}
)",
      R"(
def forward(self, x: Tensor) -> Optional[Tensor]:
    return torch.sigmoid(torch.tanh(x))
)",
      R"(
def forward(self, x: Tensor) -> Tuple[Tensor, List[Tuple[Tensor, int]], float]:
    h = torch.tanh(x)
    s = torch.sigmoid(h)
    return s, [(torch.exp(h), 3), (s, 4)], 0.5
)",
      R"(
def forward(self, x: Tensor) -> Tensor:
    return x
)",
      R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
    h = torch.tanh(torch.exp(x))
    return h, h.view(-1)
)"};
  for (const char* source : sources) {
    expectTrainsAlike(makeModule(source), {randomTensor({4, 4}, true)});
  }
}

TEST_F(OpsTest, ResultsWithoutTensors) {
  const Module scalar = makeModule(R"(
def forward(self, x: Tensor) -> int:
    self.calls.add_(1)
    return x.size(0)
)",
                                   {}, {{"calls", at::zeros({1})}});
  Module remat = optimized(scalar);
  EXPECT_EQ(remat.forward({at::ones({3})}).toInt(), 3);
  // Nobody uses the call's result here: it must run all the same.
  const Module none = makeModule(R"(
def forward(self, x: Tensor) -> None:
    self.calls.add_(1)
)",
                                 {}, {{"calls", at::zeros({1})}});
  for (const bool optimize : {false, true}) {
    torch::jit::setGraphExecutorOptimize(optimize);
    Module remat_none = optimized(none);
    for (int i = 1; i < 5; ++i) {
      EXPECT_TRUE(remat_none.forward({at::ones({3})}).isNone());
      EXPECT_EQ(remat_none.attr("calls").toTensor().item<float>(), i);
    }
  }
}

TEST_F(OpsTest, AnArgumentIsFreedAfterItsFirstUse) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    y = x + 1.0
    z = y + 1.0
    return z + 1.0
)");
  const auto peak = [&](Module remat) {
    remat.forward({at::ones({1000})});
    const int64_t before = liveBytes();
    std::vector<IValue> inputs{at::ones({1000})};
    resetPeak();
    remat.forward(std::move(inputs));
    return peakBytes() - before;
  };
  // Never three of them at once; a number takes a few bytes. What may be recomputed holds x.
  EXPECT_LT(peak(optimized(module, {"aten::add"})), 2 * 4000 + 100);
  EXPECT_GT(peak(optimized(module)), 3 * 4000);
  const at::NoGradGuard no_grad;
  EXPECT_LT(peak(optimized(module)), 2 * 4000 + 100);
}

TEST_F(OpsTest, ARegionCanBeANodeInMemory) {
  const Module module = model();
  for (const auto& keep : std::vector<std::vector<std::string>>{{}, {"aten::tanh"}}) {
    const auto graph = ir::regionNodeGraph(*regionOf(module, keep));
    const torch::jit::Code code(graph, "region");
    Module plain = copyOf(module);
    Module remat = copyOf(module);
    for (int i = 0; i < 4; ++i) {
      const at::Tensor x = randomTensor({4, 4}, true);
      const StepResult expected = step(plain, {x}, i);
      const StepResult actual = step(remat, {x}, i, [&](std::vector<IValue> inputs) {
        torch::jit::Stack stack{remat._ivalue()};
        stack.insert(stack.end(), inputs.begin(), inputs.end());
        torch::jit::InterpreterState(code).run(stack);
        return stack.at(0);
      });
      expectSame(expected, actual);
    }
  }
}

TEST_F(OpsTest, ARegionInsideARegion) {
  Module inner = optimized(model());
  Module outer("Outer");
  outer.register_parameter("v", randomTensor({4, 4}).set_requires_grad(true), false);
  outer.register_module("inner", inner);
  outer.define(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x @ self.v)
    return torch.sigmoid(self.inner.forward(h) @ self.v)
)");
  Module plain = copyOf(outer);
  Module remat = ir::cloneForRewrite(copyOf(outer));
  ir::outlineRegion(remat, "forward", regionOf(outer));
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = randomTensor({4, 4}, true);
    expectSame(step(plain, {x}, i), step(remat, {x}, i));
  }
}

TEST_F(OpsTest, StatementsThatOnlyTheInterpreterKnows) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor, y: Optional[Tensor], any: Any) -> Tensor:
    h = torch.tanh(x)
    if y is not None:
        h = h * y
    if isinstance(any, int):
        h = h * any
    elif isinstance(any, List[int]):
        h = h * len(any)
    torch.warn("a warning")
    d: Dict[str, Tensor] = {}
    d["h"] = torch.sigmoid(h)
    s = "{}".format(h.dim())
    n: List[float] = torch.ones([2]).tolist()
    return torch.sigmoid(d["h"] * float(len(s)) * n[1]).to(h.dtype)
)");
  expectTrainsAlike(module, {randomTensor({4, 4}, true), IValue(), 3}, {}, 2);
  expectTrainsAlike(module, {randomTensor({4, 4}, true), randomTensor({4, 4}, true), 2.5}, {}, 2);
}

}  // namespace
}  // namespace remat::runtime::test
