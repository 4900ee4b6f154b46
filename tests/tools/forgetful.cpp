// An operator that must not be allowed to replays, which run with gradients off: it gives them
// other bytes than it gave the forward; and one that is never the same.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <atomic>

namespace {

at::Tensor forgetful(const at::Tensor& x) { return x * (at::GradMode::is_enabled() ? 1.0 : 2.0); }

/// Other bytes in every call, as kernels that add in no fixed order, and more so.
at::Tensor unsteady(const at::Tensor& x, double by) {
  static std::atomic<int64_t> calls{0};
  return x * (1 + by * static_cast<double>(calls++));
}

}  // namespace

TORCH_LIBRARY(verify_test, library) {
  library.def("forgetful(Tensor x) -> Tensor");
  library.impl("forgetful",
               torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, &forgetful));
  library.def("unsteady(Tensor x, float by) -> Tensor");
  library.impl("unsteady", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, &unsteady));
}
