#include "tools/model_file.h"

#include <ATen/ATen.h>
#include <ATen/core/op_registration/op_registration.h>
#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "runtime/memory_statistics.h"
#include "tools/errors.h"
#include "tools/saved_inputs.h"

namespace remat::tools {
namespace {

// Not std::filesystem: libtorch.so exports a broken copy of it.
namespace fs = llvm::sys::fs;
using torch::jit::Module;

class ModelFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/model_file_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_directories(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  int64_t fileSize(const std::string& name) const {
    uint64_t size = 0;
    EXPECT_FALSE(fs::file_size(path(name), size));
    return static_cast<int64_t>(size);
  }

  static Module makeModule() {
    Module module("Sample");
    module.register_parameter("weight", at::ones({4}).set_requires_grad(true), /*is_buffer=*/false);
    module.define("def forward(self, x: Tensor) -> Tensor:\n    return x * self.weight\n");
    module.define("def encode(self, x: Tensor) -> Tensor:\n    return x\n");
    return module;
  }

  /// A refusal that names the file and says `message`, in one line.
  static void expectRefusal(const std::string& name, const std::string& message,
                            const std::function<void()>& body) {
    try {
      body();
      FAIL() << name << " was accepted";
    } catch (const ToolError& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.code, kRefused);
      EXPECT_EQ(text.rfind(name + ": ", 0), 0U) << text;
      EXPECT_NE(text.find(message), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }

  static void expectUnreadable(const std::string& name, const std::string& message) {
    expectRefusal(name, message, [&] { loadModel(name, c10::Device(c10::kCPU)); });
  }

  void writeBytes(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

  std::string readBytes(const std::string& name) const {
    std::ifstream stream(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  std::string folder_;
};

TEST_F(ModelFileTest, NoSuchFile) { expectUnreadable(path("none.pt"), "no such file"); }
TEST_F(ModelFileTest, AFolder) { expectUnreadable(folder_, "is a folder"); }

TEST_F(ModelFileTest, EmptyFile) {
  writeBytes("m.pt", "");
  expectUnreadable(path("m.pt"), "is empty");
}

TEST_F(ModelFileTest, NotAZip) {
  writeBytes("m.pt", "not a model at all");
  expectUnreadable(path("m.pt"), "is no zip archive");
}

TEST_F(ModelFileTest, TruncatedArchive) {
  makeModule().save(path("m.pt"));
  ASSERT_EQ(::truncate(path("m.pt").c_str(), fileSize("m.pt") / 2), 0);
  expectUnreadable(path("m.pt"), "is a truncated archive");
}

TEST_F(ModelFileTest, DamagedEntry) {
  makeModule().save(path("m.pt"));
  std::string bytes = readBytes("m.pt");
  const std::string ones("\0\0\x80\x3f\0\0\x80\x3f", 8);
  const size_t weight = bytes.find(ones);
  ASSERT_NE(weight, std::string::npos);
  bytes[weight] ^= 1;
  writeBytes("m.pt", bytes);
  expectUnreadable(path("m.pt"),
                   "is a damaged archive (its entry data/0 doesn't match its checksum)");
}

TEST_F(ModelFileTest, DamagedSizes) {
  makeModule().save(path("m.pt"));
  std::string bytes = readBytes("m.pt");
  const size_t header = bytes.find("PK\x01\x02");
  ASSERT_NE(header, std::string::npos);
  for (const size_t size : {20, 24}) {
    std::string damaged = bytes;
    damaged[header + size + 3] = 0x7f;
    writeBytes("m.pt", damaged);
    expectUnreadable(path("m.pt"), "are damaged");
  }
  bytes[header] = 'Q';
  writeBytes("m.pt", bytes);
  expectUnreadable(path("m.pt"), "is a damaged archive (its directory is damaged)");
}

/// Rewrites the archive with what `change` makes of its entries.
void changeEntries(const std::string& path,
                   const std::function<void(std::map<std::string, std::string>&)>& change) {
  std::map<std::string, std::string> entries;
  {
    caffe2::serialize::PyTorchStreamReader reader(path);
    for (const std::string& name : reader.getAllRecords()) {
      if (name == "version" || name == ".data/serialization_id") continue;
      const auto [data, size] = reader.getRecord(name);
      entries[name].assign(static_cast<const char*>(data.get()), size);
    }
  }
  change(entries);
  caffe2::serialize::PyTorchStreamWriter writer(path);
  for (const auto& [name, data] : entries) writer.writeRecord(name, data.data(), data.size());
  writer.writeEndOfFile();
}

TEST_F(ModelFileTest, TensorsThatReachBeyondTheirEntry) {
  runtime::installMemoryStatistics();
  for (const size_t bytes : {0, 12}) {
    makeModule().save(path("m.pt"));
    changeEntries(path("m.pt"), [&](auto& entries) { entries.at("data/0").resize(bytes); });
    expectUnreadable(path("m.pt"), "a tensor is larger than its entry");
  }
  makeModule().save(path("m.pt"));
  changeEntries(path("m.pt"), [](auto& entries) {
    std::string& pickle = entries.at("data.pkl");
    const size_t sizes = pickle.find("(K\x04t(K\x01t");
    ASSERT_NE(sizes, std::string::npos);
    pickle[sizes + 2] = 100;
  });
  expectUnreadable(path("m.pt"), "a tensor is larger than its entry");
}

TEST_F(ModelFileTest, StateDict) {
  c10::Dict<std::string, at::Tensor> state;
  state.insert("weight", at::ones({2}));
  const std::vector<char> bytes = torch::jit::pickle_save(state);
  writeBytes("state.pt", std::string(bytes.begin(), bytes.end()));
  expectUnreadable(path("state.pt"), "holds tensors but no code (a state_dict");
}

TEST_F(ModelFileTest, LegacyStateDict) {
  writeBytes("state.pt", "\x80\x02\x8a\x0a");
  expectUnreadable(path("state.pt"), "holds tensors but no code");
}

TEST_F(ModelFileTest, LiteInterpreterFile) {
  makeModule()._save_for_mobile(path("m.ptl"));
  expectUnreadable(path("m.ptl"), "is a lite-interpreter file");
}

TEST_F(ModelFileTest, MissingMethodListsTheOthers) {
  makeModule().save(path("m.pt"));
  const ModelFile file = loadModel(path("m.pt"), c10::Device(c10::kCPU));
  EXPECT_EQ(methodOf(file, "encode").name(), "encode");
  expectRefusal(path("m.pt"), "has no method decode; choose with --method from: forward, encode",
                [&] { methodOf(file, "decode"); });
}

/// A module whose forward is one call of `op` on its input, followed by what `arguments` makes.
/// (Source text compiled from C++ doesn't see custom operators.)
Module moduleCalling(const std::string& op,
                     const std::function<void(torch::jit::Graph&, torch::jit::Node&)>& arguments) {
  Module module("Calling");
  auto graph = std::make_shared<torch::jit::Graph>();
  graph->addInput("self")->setType(module.type());
  torch::jit::Value* const x = graph->addInput("x");
  torch::jit::Node* const call = graph->create(c10::Symbol::fromQualString(op));
  call->output()->setType(c10::AnyType::get());
  arguments(*graph, *call);
  if (call->inputs().empty()) {
    call->addInput(x);
    call->output()->setType(c10::TensorType::get());
  }
  graph->insertNode(call);
  graph->registerOutput(call->output());
  const c10::QualifiedName name(*module.type()->name(), "forward");
  module.type()->addMethod(module._ivalue()->compilation_unit()->create_function(name, graph));
  return module;
}

TEST_F(ModelFileTest, CustomOperatorWithoutLibrary) {
  {
    const auto registration =
        c10::RegisterOperators().op("sample_ops::twice(Tensor x) -> Tensor",
                                    [](const at::Tensor& x) -> at::Tensor { return x.clone(); });
    moduleCalling("sample_ops::twice", [](auto&, auto&) {}).save(path("m.pt"));
  }
  expectUnreadable(path("m.pt"), "uses the custom operator sample_ops::twice; load the library");
}

TEST_F(ModelFileTest, NewerFormat) {
  const Module module = moduleCalling("remat::checkpoint", [](auto& graph, auto& call) {
    call.addInput(graph.inputs()[0]);
    call.addInput(graph.insertConstant("remat_region_forward_0"));
    call.addInput(graph.insertNode(graph.createTuple({graph.inputs()[1]}))->output());
    call.addInput(graph.insertConstant(99));
  });
  module.save(path("m.pt"));
  expectUnreadable(path("m.pt"), "has format version 99");
}

TEST_F(ModelFileTest, UnreadableAnnotations) {
  makeModule().save(path("m.pt"), {{"remat.json", "{"}});
  expectUnreadable(path("m.pt"), "remat.json");
}

TEST_F(ModelFileTest, LibraryThatIsNone) {
  writeBytes("ops.so", "nothing");
  expectRefusal(path("ops.so"), "can't be loaded as a library",
                [&] { loadLibraries({path("ops.so")}); });
}

TEST_F(ModelFileTest, RoundTripKeepsExtraFilesAndAnnotations) {
  makeModule().save(path("m.pt"), {{"notes/config.txt", "hello"}});
  const ModelFile original = loadModel(path("m.pt"), c10::Device(c10::kCPU));
  EXPECT_FALSE(original.annotations);
  ir::Annotations annotations;
  annotations.method = "forward";
  annotations.budget = 123;
  AtomicFile out(path("out.pt"));
  writeModel(original.module, original.extra_files, &annotations, out);
  EXPECT_FALSE(fs::exists(path("out.pt")));
  out.commit();
  const ModelFile copy = loadModel(path("out.pt"), c10::Device(c10::kCPU));
  EXPECT_EQ(copy.extra_files.at("notes/config.txt"), "hello");
  EXPECT_EQ(copy.extra_files.size(), 1U);
  ASSERT_TRUE(copy.annotations);
  EXPECT_EQ(copy.annotations->budget, 123);
  EXPECT_TRUE(copy.module.attr("weight").toTensor().requires_grad());
}

TEST_F(ModelFileTest, FullDiskLeavesTheExistingFile) {
  writeBytes("out.pt", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2000, 2000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      AtomicFile out(path("out.pt"));
      writeModel(makeModule(), {}, nullptr, out);
      out.commit();
      ::_exit(0);
    } catch (const ToolError& error) {
      ::_exit(error.code);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kRefused);
  EXPECT_EQ(fileSize("out.pt"), 3);
  std::error_code error;
  fs::directory_iterator first(folder_, error);
  EXPECT_EQ(llvm::sys::path::filename(first->path()), "out.pt");
  EXPECT_EQ(first.increment(error), fs::directory_iterator()) << "a temporary file was left";
}

TEST_F(ModelFileTest, SavedInputs) {
  const auto tuple = c10::ivalue::Tuple::create(at::ones({2, 3}), 4, true);
  const std::vector<char> bytes = torch::jit::pickle_save(tuple);
  writeBytes("in.pt", std::string(bytes.begin(), bytes.end()));
  const auto inputs = loadInputs(path("in.pt"), c10::Device(c10::kCPU));
  ASSERT_EQ(inputs.size(), 3U);
  EXPECT_EQ(inputs[0].toTensor().sizes().vec(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(inputs[1].toInt(), 4);
  EXPECT_TRUE(inputs[2].toBool());
}

TEST_F(ModelFileTest, SavedInputsOfTheWrongKind) {
  const std::vector<char> bytes = torch::jit::pickle_save(c10::IValue(3));
  writeBytes("in.pt", std::string(bytes.begin(), bytes.end()));
  expectRefusal(path("in.pt"), "holds a Int",
                [&] { loadInputs(path("in.pt"), c10::Device(c10::kCPU)); });
  expectRefusal(path("none.pt"), "no such file",
                [&] { loadInputs(path("none.pt"), c10::Device(c10::kCPU)); });
}

}  // namespace
}  // namespace remat::tools
