#include "passes/deterministic_scope.h"

#include <ATen/Context.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSwitch.h>

#include <set>

namespace remat {
namespace {

bool mayDiffer(llvm::StringRef op) {
  return llvm::StringSwitch<bool>(op)
      .Cases("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::_convolution", true)
      .Cases("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d", true)
      .Cases("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", true)
      .Case("aten::scaled_dot_product_attention", true)
      .Cases("aten::index_add", "aten::scatter_add", "aten::scatter_reduce", "aten::put", true)
      .Cases("aten::index_select", "aten::gather", "aten::repeat_interleave", true)
      .Cases("aten::embedding_bag", "aten::ctc_loss", "aten::nll_loss2d", true)
      .Cases("aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d", "aten::avg_pool3d", true)
      .Cases("aten::adaptive_max_pool2d", "aten::max_pool3d", "aten::fractional_max_pool2d", true)
      .Cases("aten::upsample_bilinear2d", "aten::upsample_bicubic2d", "aten::upsample_linear1d",
             "aten::upsample_trilinear3d", "aten::upsample_nearest2d", true)
      .Cases("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d", true)
      .Cases("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d", true)
      .Cases("aten::pad", "aten::grid_sampler", "aten::cumsum", "aten::bincount", true)
      .Cases("aten::max_unpool2d", "aten::max_unpool3d", "aten::histc", true)
      .Default(false);
}

}  // namespace

DeterministicScope::DeterministicScope(bool on) : on_(on) {
  if (!on_) return;
  at::Context& context = at::globalContext();
  algorithms_ = context.deterministicAlgorithms();
  warn_only_ = context.deterministicAlgorithmsWarnOnly();
  cudnn_ = context.deterministicCuDNN();
  benchmark_ = context.benchmarkCuDNN();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

DeterministicScope::~DeterministicScope() {
  if (!on_) return;
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(algorithms_, warn_only_);
  context.setDeterministicCuDNN(cudnn_);
  context.setBenchmarkCuDNN(benchmark_);
}

std::vector<std::string> nondeterministicOps(const ir::Profile& profile) {
  std::set<std::string> found;
  if (llvm::StringRef(profile.device).startswith("cuda")) {
    for (const ir::NodeProfile& node : profile.nodes) {
      if (mayDiffer(node.op)) found.insert(node.op);
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace remat
