// Operators that Remat does not know, of the kinds that users bring in a library.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <atomic>

namespace {

/// x * 2 with a derivative of its own, as C++ extensions define it.
class Doubled : public torch::autograd::Function<Doubled> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 2};
  }
};

at::Tensor doubled(const at::Tensor& x) { return Doubled::apply(x); }

std::atomic<int64_t> calls{0};

/// x * 3, and a count that shows whether anybody ran it again.
at::Tensor counted(const at::Tensor& x) {
  ++calls;
  return x * 3;
}

std::atomic<int64_t> calls_until_failure{-1};

/// tanh, which throws once when the count that fail_in set has run down.
at::Tensor failing(const at::Tensor& x) {
  if (calls_until_failure >= 0 && calls_until_failure-- == 0) {
    TORCH_CHECK(false, "semantics: this call fails on demand");
  }
  return at::tanh(x);
}

TORCH_LIBRARY(semantics, library) {
  library.def("doubled(Tensor x) -> Tensor", &doubled);
  library.def("counted(Tensor x) -> Tensor", &counted);
  library.def("calls() -> int", [] { return calls.load(); });
  library.def("failing(Tensor x) -> Tensor", &failing);
  // The call of `failing` after `calls` more fails; -1: none does.
  library.def("fail_in(int calls) -> ()", [](int64_t count) { calls_until_failure = count; });
}

}  // namespace
