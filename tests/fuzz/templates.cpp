#include "tests/fuzz/templates.h"

namespace remat::fuzz {

using Texts = std::vector<std::string>;

const Texts& unaryExpressions() {
  static const Texts texts = {
      "torch.tanh({a})",
      "torch.sigmoid({a})",
      "torch.gelu({a})",
      "torch.gelu({a}, approximate=\"tanh\")",
      "torch.relu({a})",
      "torch.exp(-{a}.abs())",
      "torch.sin({a})",
      "torch.silu({a})",
      "torch.elu({a})",
      "torch.softplus({a})",
      "torch.leaky_relu({a}, 0.1)",
      "torch.hardtanh({a})",
      "torch.hardswish({a})",
      "torch.mish({a})",
      "torch.celu({a})",
      "torch.log_sigmoid({a})",
      "{a}.abs()",
      "{a}.square() * 0.3",
      "{a}.pow(3) * 0.1",
      "torch.sqrt({a}.abs() + 1.0)",
      "torch.rsqrt({a}.abs() + 1.0)",
      "torch.log1p({a}.abs())",
      "torch.reciprocal({a}.abs() + 1.0)",
      "torch.softmax({a}, -1)",
      "torch.log_softmax({a}, 0)",
      "torch.logsumexp({a}, [1], True) + {a}",
      "torch.layer_norm({a}, [16], self.gain, self.bias)",
      "torch.group_norm({a}.view(-1, 8, 2), 2).view(-1, 16)",
      "torch.instance_norm({a}.view(-1, 4, 4), None, None, None, None, True, 0.1, 1e-5, "
      "False).view(-1, 16)",
      "torch.batch_norm({a}, self.gain, self.bias, self.mean, self.variance, self.training, 0.1, "
      "1e-5, False)",
      "torch.batch_norm({a}, None, None, self.mean, self.variance, False, 0.1, 1e-5, False)",
      "torch.batch_norm({a}, self.gain, self.bias, None, None, True, 0.1, 1e-5, False)",
      "torch.dropout({a}, 0.3, self.training)",
      "torch.dropout({a}, 0.5, True)",
      "torch.feature_dropout({a}.view(-1, 4, 4), 0.3, self.training).view(-1, 16)",
      "torch.alpha_dropout({a}, 0.2, self.training)",
      "{a} * torch.rand_like({a})",
      "{a} + torch.randn([16]) * 0.1",
      "{a} * torch.bernoulli(torch.sigmoid({a}))",
      "torch.rrelu({a}, 0.1, 0.3, self.training)",
      "torch.prelu({a}, self.slope)",
      "torch.conv1d({a}.view(-1, 4, 4), self.kernel, None, [1], [1]).view(-1, 16)",
      "torch.conv2d({a}.view(-1, 2, 2, 4), self.kernel2, None, [1, 1], [1, 1]).reshape(-1, 16)",
      "torch.conv_transpose1d({a}.view(-1, 4, 4), self.kernel, None, [1], [1]).reshape(-1, 16)",
      "torch.max_pool1d({a}.unsqueeze(0), [2]).repeat([1, 1, 2]).squeeze(0)",
      "torch.max_pool2d({a}.view(-1, 1, 4, 4), [3, 3], [1, 1], [1, 1]).view(-1, 16)",
      "torch.avg_pool1d({a}.unsqueeze(0), [3], [1], [1]).squeeze(0)",
      "torch.adaptive_avg_pool1d({a}.view(-1, 4, 4), [2]).repeat([1, 1, 2]).view(-1, 16)",
      "torch.scaled_dot_product_attention({a}.view(1, 2, -1, 8), {a}.view(1, 2, -1, 8), "
      "{a}.view(1, 2, -1, 8)).view(-1, 16)",
      "torch.scaled_dot_product_attention({a}.view(1, 2, -1, 8), {a}.view(1, 2, -1, 8), "
      "{a}.view(1, 2, -1, 8), None, 0.2, True).view(-1, 16)",
      "{a}.t().contiguous().t()",
      "({a}.t() * {a}.t().sigmoid()).t()",
      "{a}.view(-1, 4, 16).transpose(1, 2).reshape(-1, 16)",
      "{a}.flip([0])",
      "torch.roll({a}, [1], [0])",
      "torch.cumsum({a}, 0) * 0.05",
      "torch.sort({a}, 0)[0]",
      "torch.topk({a}, 8, 1)[0].repeat([1, 2])",
      "{a}.max(0)[0] + {a}",
      "{a}.amax([1], True) - {a}",
      "{a}.mean([0], True) * {a}",
      "{a}.std([1], True, True) + {a}",
      "torch.clamp({a}, -0.5, 0.5)",
      "{a}.contiguous()",
      "{a}.clone()",
      "{a}.detach()",
      "{a}.detach() * {a}",
      "{a}.to(7).sin().to(6)",
      "({a}.to(15) * 1.0).add_(self.gain).sin().to(6)",
      "({a}.to(15) * 1.0).mul_(self.gain).sin().to(6)",
      "{a}.to(15).tanh().to(6)",
      "{a}[torch.arange({a}.size(0) - 1, -1, -1)]",
      "{a}[self.order]",
      "{a}.index_select(0, self.order)",
      "{a}.gather(0, self.orders)",
      "{a}.expand_as({a})",
      "{a}.unsqueeze(1).expand(-1, 2, -1).mean([1])",
      "torch.glu(torch.cat([{a}, {a}], 1))",
      "{a} / ({a}.norm(2, [1], True) + 1.0)",
      "torch.einsum(\"ij,kj->ik\", [{a}, self.w0])",
      "torch.linear({a}, self.w0, self.bias)",
      "torch.linear(torch.gelu(torch.linear({a}, self.w1)), self.w0) + {a}",
      "torch.addmm({a}, {a}, self.w1, beta=0.5)",
      "{a} @ self.w0",
      "{a} @ self.w1.t()",
      "{a} @ self.frozen",
      "torch.embedding(self.table, self.order) * {a}",
      "torch.embedding(self.table, ({a} > 0).to(4).sum([1]))",
      "{a} * self.scale",
      "{a} * self.scale.clone()",
      "{a} * self.mask",
      "{a}.masked_fill(self.mask, 0.5)",
      "{a}.masked_fill({a} > 1.0, 0.5)",
      "torch.masked_select({a}, {a} > 0).sum() * 0.01 + {a}",
      "{a}.tril()",
      "{a}.narrow(1, 0, 16)",
      "torch.constant_pad_nd({a}[:, 2:14], [2, 2], 0.5)",
      "torch.view_as_real(torch.view_as_complex({a}.view(-1, 8, 2)) * 1.5).view(-1, 16)",
      "torch.rnn_tanh({a}.unsqueeze(0), torch.zeros([1, {a}.size(0), 16]), [self.w0, self.rnn], "
      "False, 1, 0.0, self.training, False, False)[0].squeeze(0)",
  };
  return texts;
}

const Texts& binaryExpressions() {
  static const Texts texts = {
      "{a} + {b}",
      "{a} * {b}",
      "{a} - {b} * 0.5",
      "{a} / ({b}.abs() + 1.0)",
      "torch.where({a} > {b}, {a}, {b})",
      "torch.maximum({a}, {b})",
      "torch.lerp({a}, {b}, 0.3)",
      "torch.addcmul({a}, {b}, {b})",
      "torch.addcdiv({a}, {b}, {b}.abs() + 1.0)",
      "torch.cat([{a}[:, :8], {b}[:, 8:]], 1)",
      "torch.stack([{a}, {b}]).sum([0])",
      "torch.stack([{a}, {b}], 1).view(-1, 32).chunk(2, 1)[1]",
      "torch.hypot({a}, {b} + 2.0)",
      "{a} * torch.sigmoid({b})",
      "torch.linear({a}, self.w1, self.bias) + {b}",
      "torch.bmm(torch.softmax(torch.bmm({a}.view(-1, 4, 16), {b}.view(-1, 4, 16).transpose(1, "
      "2)), "
      "-1), {a}.view(-1, 4, 16)).view(-1, 16)",
      "torch.matmul({a}.view(-1, 1, 16), self.w0.expand([{b}.size(0), 16, 16])).squeeze(1) + {b}",
      "torch.smooth_l1_loss({a}, {b}, 0)",
      "torch.index_add({a}, 0, self.order, {b})",
      "torch.scatter({a}, 0, self.orders, {b})",
      "torch.atan2({a}, {b}.abs() + 1.0)",
      "torch.scaled_dot_product_attention({a}.view(1, 1, -1, 16), {b}.view(1, 1, -1, 16), "
      "{a}.view(1, 1, -1, 16)).view(-1, 16)",
      "{a} * {b}.mean()",
      "{a} + torch.outer({b}.sum([1]), self.gain) * 0.1",
      "torch.min({a}, {b})",
      "{a}.masked_fill({b} > 0, 0.2)",
  };
  return texts;
}

const Texts& freshExpressions() {
  static const Texts texts = {"{a} * 1.0",   "{a} + 0.5", "{a} @ self.w0",
                              "{a}.clone()", "{a} - 0.1", "torch.relu({a})"};
  return texts;
}

const Texts& writes() {
  static const Texts texts = {
      "{v}.add_({b})",
      "{v}.mul_(0.5)",
      "{v}.relu_()",
      "{v}.sigmoid_()",
      "{v}.tanh_()",
      "{v}.neg_()",
      "{v}.zero_()",
      "{v}.clamp_(-1.0, 1.0)",
      "{v}.clamp_max_(self.gain.double())",
      "{v}.add_(self.gain.double())",
      "{v}.sub_({b}.double())",
      "{v}.mul_(self.gain.double())",
      "{v}.div_({b}.double().abs() + 1.0)",
      "{v}.copy_({b})",
      "{v}.sub_({b}, alpha=0.5)",
      "{v}.masked_fill_({b} > 0, 0.1)",
      "{v}.addmm_({b}, self.w0)",
      "{v}[:, 3:10].mul_(0.7)",
      "{v}[:, 3:9] = {b}[:, 3:9]",
      "{v}[5:9].copy_({b}[0:4])",
      "{v}[1] = 0.5",
      "{v}[self.order] = {b}",
      "{v}[{b} > 1.0] = 0.25",
      "{v}.t()[3].zero_()",
      "{v}.view(-1)[::2].add_(1.0)",
      "{v}.index_copy_(0, self.order, {b})",
      "{v}.index_add_(0, self.order, {b})",
      "torch.relu_({v})",
      "torch.dropout_({v}, 0.2, self.training)",
      "torch.silu_({v})",
      "torch.hardtanh_({v})",
      "torch.leaky_relu_({v})",
      "{v}.exponential_()",
      "{v}.detach().mul_(0.5)",
      "{v} *= {b}",
      "{v} += 0.25",
  };
  return texts;
}

const Texts& views() {
  static const Texts texts = {"{v}.view(-1)", "{v}.t()",  "{v}[:, :8]", "{v}.view(-1, 32)",
                              "{v}.detach()", "{v}[::2]", "{v}",        "{v}.unsqueeze(0)"};
  return texts;
}

const Texts& stateWrites() {
  static const Texts texts = {
      "self.scale.mul_(0.9)",
      "self.scale.add_({a}.detach().mean([0]), alpha=0.1)",
      "self.last = ({a} * 1.0).detach()[0]",
      "self.last.copy_({a}.detach()[1])",
      "self.scale = self.scale * 1.1",
      "self.count.add_(1)",
      "self.count += 1",
  };
  return texts;
}

const Texts& conditions() {
  static const Texts texts = {"bool({a}.sum() > 0)",         "self.training",
                              "bool({a}[0, 0] > {b}[0, 0])", "{a}.size(0) > 4",
                              "{a}.requires_grad",           "bool(self.count > 1)"};
  return texts;
}

const Texts& listExpressions() {
  static const Texts texts = {"torch.stack({l}).mean([0])", "{l}[-1] * {l}[0]",
                              "torch.cat({l})[::len({l})]", "torch.cat({l}, 1)[:, 8:24]",
                              "{l}.pop() + {l}[0]"};
  return texts;
}

}  // namespace remat::fuzz
