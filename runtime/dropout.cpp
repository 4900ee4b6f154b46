#include "runtime/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace remat::runtime {
namespace {

bool doesNothing(const at::Tensor& x, double p, bool train) {
  return p == 0 || !train || x.numel() == 0;
}

/// Whether eager dropout runs CUDA's fused kernel. It draws other numbers than bernoulli_, and
/// rounds otherwise than a product with what is divided by 1 - p.
bool isFused(const at::Tensor& x, double p) { return x.is_cuda() && p < 1; }

/// What the fused kernel scales by: it computes in float, unless for doubles. Its backward takes
/// 1 / (1 - p) as it is.
double fusedScale(at::ScalarType dtype, double p) {
  const double kept = 1 - p;
  return 1.0 / (dtype == at::kDouble ? kept : static_cast<double>(static_cast<float>(kept)));
}

/// What the fused kernel makes of x and a mask: the kernel of the backward computes the same. Its
/// result is contiguous (or channels last), the fused one's laid out as x.
at::Tensor fusedForward(const at::Tensor& x, const at::Tensor& mask, double p) {
  at::Tensor result = at::native_dropout_backward(x, mask, fusedScale(x.scalar_type(), p));
  return result.strides() == mask.strides() ? result : at::empty_like(x).copy_(result);
}

/// What eager dropout multiplies with: 0 or 1 / (1 - p) in x's dtype, divided there as eager
/// divides it.
at::Tensor noiseOf(const at::Tensor& mask, double p, at::ScalarType dtype) {
  at::Tensor noise = mask.to(dtype);
  return p == 1 ? noise : noise.div_(1 - p);
}

struct Dropout : public torch::autograd::Function<Dropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& mask, double p, bool is_gradient) {
    context->save_for_backward({mask});
    context->saved_data["p"] = p;
    if (!isFused(x, p)) return x * noiseOf(mask, p, x.scalar_type());
    return is_gradient ? at::native_dropout_backward(x, mask, 1.0 / (1.0 - p))
                       : fusedForward(x, mask, p);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor mask = context->get_saved_variables()[0];
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) {
      return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    }
    return {Dropout::apply(gradient, mask, context->saved_data["p"].toDouble(),
                           /*is_gradient=*/true),
            at::Tensor(), at::Tensor(), at::Tensor()};
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
  if (isFused(x, p)) {
    // What native_dropout draws, from a generator that is given. Its bytes are 0 and 1.
    return std::get<1>(at::_fused_dropout(x, 1 - p, std::move(generator))).view(at::kBool);
  }
  at::Tensor noise = at::empty_like(x);
  noise.bernoulli_(1 - p, std::move(generator));
  return noise.to(at::kBool);
}

at::Tensor applyDropout(const at::Tensor& x, const at::Tensor& mask, double p, bool train) {
  if (doesNothing(x, p, train)) {
    return x;
  }
  return Dropout::apply(x, mask, p, /*is_gradient=*/false);
}

}  // namespace remat::runtime
