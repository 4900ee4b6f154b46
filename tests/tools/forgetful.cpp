// An operator that must not be allowed to replays, which run with gradients off: it gives them
// other bytes than it gave the forward.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

namespace {

at::Tensor forgetful(const at::Tensor& x) { return x * (at::GradMode::is_enabled() ? 1.0 : 2.0); }

}  // namespace

TORCH_LIBRARY(verify_test, library) {
  library.def("forgetful(Tensor x) -> Tensor");
  library.impl("forgetful",
               torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, &forgetful));
}
