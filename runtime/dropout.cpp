#include "runtime/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace remat::runtime {
namespace {

bool doesNothing(const at::Tensor& x, double p, bool train) {
  return p == 0 || !train || x.numel() == 0;
}

/// What eager dropout multiplies with: 0 or 1 / (1 - p) in x's dtype, divided there as eager
/// divides it.
at::Tensor noiseOf(const at::Tensor& mask, double p, at::ScalarType dtype) {
  at::Tensor noise = mask.to(dtype);
  return p == 1 ? noise : noise.div_(1 - p);
}

struct Dropout : public torch::autograd::Function<Dropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& mask, double p) {
    context->save_for_backward({mask});
    context->saved_data["p"] = p;
    return x * noiseOf(mask, p, x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor mask = context->get_saved_variables()[0];
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) {
      return {at::Tensor(), at::Tensor(), at::Tensor()};
    }
    return {applyDropout(gradient, mask, context->saved_data["p"].toDouble(), true), at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor dropoutMask(const at::Tensor& x, double p, bool train,
                       std::optional<at::Generator> generator) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  at::NoGradGuard no_grad;
  if (doesNothing(x, p, train)) {
    return at::empty({0}, x.options().dtype(at::kBool));
  }
  if (p == 1) {
    return at::zeros_like(x, x.options().dtype(at::kBool));
  }
  at::Tensor noise = at::empty_like(x);
  noise.bernoulli_(1 - p, std::move(generator));
  return noise.to(at::kBool);
}

at::Tensor applyDropout(const at::Tensor& x, const at::Tensor& mask, double p, bool train) {
  if (doesNothing(x, p, train)) {
    return x;
  }
  return Dropout::apply(x, mask, p);
}

}  // namespace remat::runtime
