#include "ir/location.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/script.h>

#include "passes/prepare.h"

namespace remat::ir {
namespace {

using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Source;
using torch::jit::SourceRange;

class LocationTest : public ::testing::Test {
 protected:
  Node* nodeAt(const std::string& text, const std::string& file, size_t line) {
    Node* node = graph_.insertNode(graph_.create(c10::aten::relu, 1));
    node->setSourceRange(SourceRange(std::make_shared<Source>(text, file, line), 0, text.size()));
    return node;
  }

  torch::jit::Graph graph_;
};

TEST_F(LocationTest, ScriptedFileWithoutFolder) {
  EXPECT_EQ(locate(*nodeAt("torch.relu(x)", "/home/somebody/model.py", 41)).source, "model.py:41");
}

TEST_F(LocationTest, TracedStackIsReadDownToTheUsersCode) {
  const std::string stack =
      "/venv/torch/nn/functional.py(1473): relu\n"
      "/venv/torch/nn/modules/module.py(20): _call_impl\n"
      "/home/somebody/model.py(41): forward\n"
      "/home/somebody/train.py(7): <module>\n";
  EXPECT_EQ(locate(*nodeAt(stack, "/venv/torch/nn/functional.py", 1473)).source, "model.py:41");
}

TEST_F(LocationTest, LibraryCodeIsBetterThanNothing) {
  EXPECT_EQ(locate(*nodeAt("x", "/venv/torch/nn/functional.py", 7)).source, "functional.py:7");
}

TEST_F(LocationTest, GeneratedCodeSaysNothing) {
  EXPECT_EQ(locate(*nodeAt("x", "code/__torch__/model.py", 7)).source, "");
  EXPECT_EQ(locationPrefix(*nodeAt("x", "code/__torch__/model.py", 7)), "");
}

TEST(ModulePath, HasTheWholeChainAlsoForNodesWithoutOutputs) {
  Module leaf("Leaf");
  leaf.define("def forward(self, x):\n    print(x)\n    return torch.relu(x)\n");
  Module middle("Middle");
  middle.register_module("leaf", leaf);
  Module model("Model");
  model.register_module("layers", middle);
  model.define("def forward(self, x):\n    return self.layers.leaf.forward(torch.tanh(x))\n");
  const auto graph = prepareGraph(model, "forward");
  int found = 0;
  for (const Node* node : graph->nodes()) {
    if (node->kind() == c10::aten::tanh) {
      EXPECT_EQ(locate(*node).module_path, "");
      ++found;
    }
    if (node->kind() != c10::aten::relu && node->kind() != c10::prim::Print) continue;
    EXPECT_EQ(locate(*node).module_path, "layers.leaf") << node->kind().toQualString();
    ++found;
  }
  EXPECT_EQ(found, 3);
}

}  // namespace
}  // namespace remat::ir
