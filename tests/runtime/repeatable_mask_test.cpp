// Masks that are drawn again, from inputs that lie elsewhere in memory by then.

#include "runtime/repeatable_mask.h"

#include <ATen/ATen.h>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class RepeatableMaskTest : public RuntimeTest {};

/// `x`'s elements and strides, `elements` further from where memory begins.
at::Tensor movedBy(const at::Tensor& x, int64_t elements) {
  const at::Tensor room = at::zeros({x.numel() * 2 + elements}, x.options());
  return room.as_strided(x.sizes(), x.strides(), elements).copy_(x);
}

TEST_F(RepeatableMaskTest, IsTheSameForWhateverMemory) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor x = randomTensor({5, 33}, false, dtype);
    at::manual_seed(4);
    at::Tensor expected;
    const RepeatableMask repeatable(x, 0.5, expected);
    const at::Tensor next = at::rand({4});
    for (const int64_t elements : {0, 1, 3}) {
      const at::Tensor again = repeatable.again(movedBy(x, elements));
      expectSame({expected}, {again}, "moved by " + std::to_string(elements));
      EXPECT_EQ(again.strides(), expected.strides());
    }
    at::manual_seed(4);
    at::dropout(x, 0.5, true);
    expectSame({at::rand({4})}, {next}, "the caller's stream");
  }
}

TEST_F(RepeatableMaskTest, AStandInLiesAsTheFirstInputDid) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf}) {
    const at::Tensor image = randomTensor({2, 3, 5, 7}, false, dtype);
    for (const at::Tensor& x :
         {image, image.contiguous(at::MemoryFormat::ChannelsLast), image.transpose(1, 3),
          image.narrow(1, 0, 1).expand({2, 3, 5, 7}), image.flatten().narrow(0, 1, 9)}) {
      for (const int64_t elements : {0, 1, 2, 3}) {
        const at::Tensor first = movedBy(at::empty({4}, image.options()), elements);
        const at::Tensor stand_in = alignedAs(x, alignmentOf(first));
        EXPECT_EQ(alignmentOf(stand_in), alignmentOf(first));
        EXPECT_EQ(stand_in.sizes(), x.sizes());
        EXPECT_EQ(stand_in.strides(), x.strides());
        EXPECT_EQ(stand_in.scalar_type(), x.scalar_type());
        stand_in.sum();  // AddressSanitizer: all of it is there
      }
    }
    EXPECT_TRUE(alignedAs(image, alignmentOf(image)).is_same(image));
  }
}

}  // namespace
}  // namespace remat::runtime::test
