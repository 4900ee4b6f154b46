#include "runtime/packed_value.h"

#include <ATen/ATen.h>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class PackedValueTest : public RuntimeTest {};

TEST_F(PackedValueTest, TensorsComeBackDetachedAndShareTheirBytes) {
  const at::Tensor x = randomTensor({3}, true);
  const at::Tensor y = x * 2.0;
  const at::Tensor back = PackedValue(y).unpack().toTensor();
  EXPECT_FALSE(back.requires_grad());
  EXPECT_EQ(back.const_data_ptr(), y.const_data_ptr());
  EXPECT_TRUE(at::equal(back, y));
}

TEST_F(PackedValueTest, AWriteIsAnError) {
  at::Tensor x = randomTensor({3});
  const PackedValue packed(x);
  x.add_(1.0);
  EXPECT_NE(errorOf([&] { packed.unpack(); }).find("modified by an inplace operation"),
            std::string::npos);
}

TEST_F(PackedValueTest, NumbersAreTheOnesOfThen) {
  c10::List<int64_t> dims({0, 1});
  c10::List<double> scales({0.5});
  const PackedValue packed(c10::ivalue::Tuple::create({dims, scales}));
  dims.set(0, 7);
  scales.push_back(2.0);
  const auto back = packed.unpack().toTupleRef().elements();
  EXPECT_EQ(back[0].toIntVector(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(back[1].toDoubleVector(), std::vector<double>{0.5});
}

TEST_F(PackedValueTest, AnInferenceTensorIsHeldAsItWas) {
  at::Tensor x;
  {
    const c10::InferenceMode inference;
    x = randomTensor({3}).clone();
  }
  ASSERT_TRUE(x.is_inference());
  const at::Tensor before = x.clone();
  const PackedValue packed(x);
  {
    const c10::InferenceMode inference;
    x.add_(1.0);
  }
  EXPECT_TRUE(at::equal(packed.unpack().toTensor(), before));
}

TEST_F(PackedValueTest, ContainersAreHeldElementByElement) {
  const at::Tensor x = randomTensor({3}, true);
  const at::Tensor y = x.exp();
  const auto pair_type = c10::TupleType::create({c10::TensorType::get(), c10::IntType::get()});
  c10::impl::GenericList pairs(pair_type);
  pairs.push_back(c10::ivalue::Tuple::create({y, 3}));
  c10::List<std::optional<at::Tensor>> optionals({std::nullopt, y});
  c10::impl::GenericList lists(c10::ListType::ofTensors());
  lists.push_back(c10::List<at::Tensor>({y, x}));
  const std::vector<IValue> values{
      c10::List<at::Tensor>({y, x}), pairs, optionals, lists,
      c10::ivalue::Tuple::create({y, c10::List<int64_t>({1, 2}), c10::ivalue::Tuple::create({x})})};
  for (const IValue& value : values) {
    const PackedValue packed(value);
    const IValue back = packed.unpack();
    EXPECT_EQ(back.tagKind(), value.tagKind());
    if (value.isList()) {
      EXPECT_EQ(*back.toList().elementType(), *value.toList().elementType());
    }
    const Tensors expected = tensorsIn(value);
    const Tensors actual = tensorsIn(back);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_FALSE(actual[i].requires_grad());
      EXPECT_EQ(actual[i].const_data_ptr(), expected[i].const_data_ptr());
    }
  }
  at::Tensor z = y.detach();
  const PackedValue packed(values[1]);
  z.add_(1.0);
  EXPECT_NE(errorOf([&] { packed.unpack(); }), "");
}

TEST_F(PackedValueTest, OtherValuesAreHeldAsTheyAre) {
  for (const IValue& value :
       {IValue(), IValue(3), IValue(2.5), IValue(true), IValue(std::string("text")),
        IValue(c10::List<int64_t>({1, 2})), IValue(c10::List<double>({0.5})),
        IValue(c10::List<std::string>({"a"})), IValue(at::Device("cpu"))}) {
    EXPECT_EQ(PackedValue(value).unpack(), value);
  }
  EXPECT_FALSE(PackedValue(IValue(at::Tensor())).unpack().toTensor().defined());
}

TEST_F(PackedValueTest, SparseTensorsAreHeld) {
  const at::Tensor sparse = at::eye(3).to_sparse();
  EXPECT_TRUE(PackedValue(sparse).unpackWithStrides().toTensor().is_sparse());
}

}  // namespace
}  // namespace remat::runtime::test
