#include "tests/runtime/fake_accelerator.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <array>
#include <atomic>

#include "runtime/device.h"
#include "runtime/tensors.h"
#include "tests/runtime/fake_streams.h"

namespace remat::runtime::test {
namespace {

constexpr auto kFake = c10::DeviceType::PrivateUse1;

thread_local c10::DeviceIndex t_device = 0;
thread_local std::array<c10::StreamId, kFakeDevices> t_streams{};
/// Inside of an operator that computes: what it copies is its own affair.
thread_local bool t_computing = false;

FakeStreams& streams() { return FakeStreams::get(); }

c10::Stream currentStream(c10::DeviceIndex device) {
  const c10::DeviceIndex index = device < 0 ? t_device : device;
  return fakeStream(index, static_cast<int>(t_streams.at(index)));
}

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kFake; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = fake(t_device);
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return fake(t_device); }
  void setDevice(c10::Device device) const override { t_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) t_device = device.index();
  }
  c10::Stream getStream(c10::Device device) const override { return currentStream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return fakeStream(device.index(), 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = currentStream(stream.device_index());
    t_streams.at(stream.device_index()) = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kFakeDevices; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new FakeStreams::Event;
    streams().record(*static_cast<FakeStreams::Event*>(*event), stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    streams().block(*static_cast<FakeStreams::Event*>(event), stream);
  }
  bool queryEvent(void* /*event*/) const override { return true; }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<FakeStreams::Event*>(event);
  }
  bool queryStream(const c10::Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const c10::Stream& /*stream*/) const override {
    streams().hostWaits("synchronizeStream");
  }
  void synchronizeEvent(void* /*event*/) const override { streams().hostWaits("synchronizeEvent"); }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override {
    streams().hostWaits("synchronizeDevice");
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer,
                             const c10::Stream& stream) const override {
    streams().noteUse(pointer.get(), stream);
  }
  /// An operator takes a millisecond.
  double elapsedTime(void* start, void* end, c10::DeviceIndex /*device*/) const override {
    return static_cast<double>(static_cast<FakeStreams::Event*>(end)->time -
                               static_cast<FakeStreams::Event*>(start)->time);
  }
};

class FakeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : c10::alloc_cpu(bytes);
    if (data != nullptr) streams().allocated(data, currentStream(-1));
    return {data, data, &release, fake(t_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    streams().freed(data);
    c10::free_cpu(data);
  }
};

/// A counting generator: what it draws is that of a CPU generator seeded with seed and offset.
class FakeGenerator final : public c10::GeneratorImpl {
 public:
  FakeGenerator(c10::DeviceIndex device, uint64_t seed, uint64_t offset)
      : GeneratorImpl(fake(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        seed_(seed),
        offset_(offset) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override { return seed_; }
  void set_state(const c10::TensorImpl& state) override {
    streams().stateSaved();
    const auto* words = static_cast<const uint64_t*>(state.data());
    seed_ = words[0];
    offset_ = words[1];
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    streams().stateSaved();
    at::Tensor state = at::empty({2}, at::kLong);
    state[0] = static_cast<int64_t>(seed_);
    state[1] = static_cast<int64_t>(offset_);
    return state.getIntrusivePtr();
  }
  static c10::DeviceType device_type() { return kFake; }

 private:
  GeneratorImpl* clone_impl() const override {
    streams().stateSaved();
    return new FakeGenerator(device().index(), seed_, offset_);
  }

  uint64_t seed_;
  uint64_t offset_;
};

const at::Generator& defaultGenerator(c10::DeviceIndex device) {
  static const std::array<at::Generator, kFakeDevices> generators = {
      at::make_generator<FakeGenerator>(0, 0, 0), at::make_generator<FakeGenerator>(1, 0, 0)};
  return generators.at(device < 0 ? t_device : device);
}

struct FakeHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kFakeDevices; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return defaultGenerator(device);
  }
};

std::array<std::atomic<uint64_t>, kFakeDevices> g_captures{};

class FakeInterface final : public DeviceInterface {
 public:
  uint64_t currentCapture(c10::Device device) const override {
    return g_captures.at(device.index());
  }
  void occupy(c10::Device /*device*/, double /*seconds*/) const override {}
  GeneratorPosition position(const at::Generator& generator) const override {
    GeneratorPosition position;
    position.capture = currentCapture(generator.device());
    position.seed = generator.current_seed();
    position.offset = generator.get_offset();
    return position;
  }
  at::Generator generatorAt(c10::Device device, const GeneratorPosition& position) const override {
    return at::make_generator<FakeGenerator>(device.index(), position.seed, position.offset);
  }
  void advance(at::Generator& generator, uint64_t numbers) const override {
    generator.set_offset(generator.get_offset() + numbers);
  }
};

// --- Operators ---

bool isFake(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kFake;
}

const void* storageOf(const at::Tensor& tensor) { return tensor.storage().data(); }

/// The same bytes as a tensor of the CPU.
at::Tensor onCpu(const at::Tensor& tensor) {
  return isFake(tensor) ? at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                                        tensor.options().device(at::kCPU).requires_grad(false))
                        : tensor;
}

at::Tensor emptyOf(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                   std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                   std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(fake(-1)));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), c10::GetAllocator(kFake),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor emptyStridedOf(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                          std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                          std::optional<at::Device> device, std::optional<bool> /*pin*/) {
  const c10::DeviceGuard guard(device.value_or(fake(-1)));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), c10::GetAllocator(kFake),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

at::Tensor viewOf(const at::Tensor& self, const c10::SymIntArrayRef size) {
  const at::Tensor like = onCpu(self).view(C10_AS_INTARRAYREF_SLOW(size));
  return self.as_strided(like.sizes(), like.strides(), self.storage_offset());
}

at::Tensor asStridedOf(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                       std::optional<c10::SymInt> offset) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), self.dtype());
  at::Tensor view(std::move(impl));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? offset->expect_int() : self.storage_offset());
  return view;
}

/// As CUDA's copy: on the source's device; a copy to another device waits for both, one from or to
/// the host has the host wait.
at::Tensor& copyOf(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (!t_computing) {
    const c10::Stream stream = currentStream((isFake(source) ? source : self).device().index());
    if (isFake(self) && isFake(source) && self.device() != source.device()) {
      streams().join(stream, currentStream(self.device().index()));
    }
    streams().run("aten::copy_", stream);
    if (isFake(source)) streams().reads(storageOf(source), stream, "copy_");
    if (isFake(self)) streams().writes(storageOf(self), stream, "copy_");
    if (!isFake(self) || !isFake(source)) {
      if (!non_blocking) streams().hostWaits("copy between host and device");
    } else if (self.device() != source.device()) {
      streams().join(currentStream(self.device().index()), stream);
    }
  }
  onCpu(self).copy_(onCpu(source));
  return self;
}

/// As dropout without a fused kernel.
std::tuple<at::Tensor, at::Tensor> dropoutOf(const at::Tensor& input, double p,
                                             std::optional<bool> /*train*/) {
  at::Tensor noise = at::empty_like(input).bernoulli_(1 - p);
  at::Tensor mask = noise.to(at::kBool);
  return {input * noise.div_(1 - p), std::move(mask)};
}

/// The result of an operator on the CPU moves to `to`, which may have no bytes yet.
at::Tensor copyAndResize(const at::Tensor& self, const at::Tensor& to) {
  if (to.sizes() != self.sizes()) {
    const at::Tensor resized = at::empty(self.sizes(), to.options());
    to.unsafeGetTensorImpl()->set_storage_keep_dtype(resized.storage());
    to.unsafeGetTensorImpl()->set_sizes_and_strides(resized.sizes(), resized.strides());
  }
  onCpu(to).copy_(self);
  return to;
}

/// A CPU generator in the place of a fake one, or of the default that a random operator takes.
void replaceGenerator(const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t begin,
                      c10::DeviceIndex device) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "generator") continue;
    c10::IValue& given = stack[begin + i];
    at::Generator generator = given.isNone() ? defaultGenerator(device) : given.toGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    constexpr uint64_t kMixes = 1000003;
    at::Generator drawn = at::globalContext().defaultGenerator(at::kCPU).clone();
    drawn.set_current_seed(generator.current_seed() * kMixes + generator.get_offset());
    generator.set_offset(generator.get_offset() + 4);
    given = drawn;
  }
}

class Computing {
 public:
  Computing() : before_(t_computing) { t_computing = true; }
  ~Computing() { t_computing = before_; }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  bool before_;
};

bool waitsForResult(const std::string& op) {
  return op == "aten::_local_scalar_dense" || op == "aten::equal" || op == "aten::nonzero" ||
         op == "aten::masked_select";
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::string& name = op.schema().name();
  const size_t begin = stack->size() - arguments.size();
  const std::vector<c10::IValue> inputs(stack->begin() + static_cast<int64_t>(begin), stack->end());
  const c10::Device device = deviceOf(inputs);
  const c10::DeviceGuard guard(device);
  const c10::Stream stream = currentStream(device.index());
  streams().run(name, stream);
  if (waitsForResult(name)) streams().hostWaits(name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    forEachTensor(inputs[i], [&](const at::Tensor& tensor, int32_t) {
      if (isFake(tensor)) streams().reads(storageOf(tensor), stream, name);
    });
  }
  replaceGenerator(op, *stack, begin, device.index());
  {
    const Computing computing;
    at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  }
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    forEachTensor((*stack)[i], [&](const at::Tensor& tensor, int32_t) {
      if (isFake(tensor)) streams().writes(storageOf(tensor), stream, name);
    });
  }
}

}  // namespace

c10::Device fake(int index) { return {kFake, static_cast<c10::DeviceIndex>(index)}; }

c10::Stream fakeStream(int device, int id) {
  return c10::Stream(c10::Stream::UNSAFE, fake(device), static_cast<c10::StreamId>(id));
}

FakeEvents takeFakeEvents() { return streams().take(); }

void seedFakeDevices(uint64_t seed) {
  for (int i = 0; i < kFakeDevices; ++i) {
    at::Generator generator = defaultGenerator(static_cast<c10::DeviceIndex>(i));
    generator.set_current_seed(seed + static_cast<uint64_t>(i));
  }
}

void setFakeCapture(int device, uint64_t capture) { g_captures.at(device) = capture; }

void setFakeInterface(bool registered) {
  static const FakeInterface device;
  registerDevice(kFake, registered ? &device : nullptr);
}

void registerFakeDevice() {
  static const bool done = [] {
    c10::register_privateuse1_backend("fake");
    static const FakeGuard guard;
    c10::impl::registerDeviceGuard(kFake, &guard);
    static auto* const allocator = new FakeAllocator;
    c10::SetAllocator(kFake, allocator);
    at::RegisterPrivateUse1HooksInterface(new FakeHooks);
    static auto fallback = torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1,
                                          __FILE__, __LINE__);
    fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
    static auto own = torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                                     __FILE__, __LINE__);
    own.impl("empty.memory_format", &emptyOf);
    own.impl("empty_strided", &emptyStridedOf);
    own.impl("view", &viewOf);
    own.impl("as_strided", &asStridedOf);
    own.impl("copy_", &copyOf);
    own.impl("native_dropout", &dropoutOf);
    own.impl("_copy_from_and_resize", &copyAndResize);
    setFakeInterface(true);
    return true;
  }();
  (void)done;
}

}  // namespace remat::runtime::test
