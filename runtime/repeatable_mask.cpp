#include "runtime/repeatable_mask.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <utility>

#include "runtime/dropout.h"

namespace remat::runtime {

RepeatableMask::RepeatableMask(const at::Tensor& x, double p, at::Tensor& mask)
    : p_(p), alignment_(alignmentOf(x)), draw_(x.device(), [&](at::Generator generator) {
        mask = dropoutMask(x, p, /*train=*/true, std::move(generator));
      }) {}

at::Tensor RepeatableMask::again(const at::Tensor& x) const {
  const at::Tensor aligned = alignedAs(x, alignment_);
  // A backward of a batch of gradients runs under vmap, which refuses random operators.
  const c10::impl::ExcludeDispatchKeyGuard no_vmap(
      c10::DispatchKeySet({c10::DispatchKey::VmapMode, c10::DispatchKey::FuncTorchVmapMode}));
  at::Tensor mask;
  draw_.again([&](at::Generator generator) {
    mask = dropoutMask(aligned, p_, /*train=*/true, std::move(generator));
  });
  return mask;
}

size_t alignmentOf(const at::Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kAlignment;
}

at::Tensor alignedAs(const at::Tensor& x, size_t alignment) {
  if (x.numel() == 0 || alignmentOf(x) == alignment) {
    return x;
  }
  int64_t last = 0;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    last += (x.size(dim) - 1) * x.stride(dim);
  }
  // Room to move its begin by: allocators align by at least kAlignment, if not it is found below.
  const auto item = static_cast<int64_t>(x.itemsize());
  const at::Tensor room =
      at::empty({last + 1 + static_cast<int64_t>(kAlignment) / item}, x.options());
  const size_t moved = (kAlignment + alignment - alignmentOf(room)) % kAlignment;
  return room.as_strided(x.sizes(), x.strides(), static_cast<int64_t>(moved) / item);
}

}  // namespace remat::runtime
