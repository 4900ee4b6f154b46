#include "ir/annotations.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "ir/remark.h"

namespace remat::ir {
namespace {

Annotations example() {
  Annotations annotations;
  annotations.tool_version = "1.0";
  annotations.method = "forward";
  annotations.inputs = "float[16, 3, 224, 224]";
  annotations.device = "cpu";
  annotations.loss = "cross_entropy";
  annotations.plan_hash = "0123456789abcdef";
  annotations.budget = 700'000'000;
  annotations.original_peak = 1'411'000'000;
  annotations.predicted_peak = 699'000'000;
  annotations.recompute_share = 0.25;
  annotations.values["layer1_0_conv1"] = {true, 51'400'000, "costly \"to\" recompute",
                                          "layer1.0.conv1", "resnet.py:154"};
  annotations.values["layer1_0_relu"] = {};
  return annotations;
}

std::string errorOf(const std::string& text) {
  try {
    annotationsFromJson(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Annotations, AreReadAsTheyWereWritten) {
  const Annotations written = example();
  const Annotations read = annotationsFromJson(toJson(written));
  EXPECT_EQ(toJson(read), toJson(written));
  const ValueNote& note = read.values.at("layer1_0_conv1");
  EXPECT_TRUE(note.kept);
  EXPECT_EQ(note.bytes, 51'400'000);
  EXPECT_EQ(note.reason, "costly \"to\" recompute");
  EXPECT_EQ(note.module_path, "layer1.0.conv1");
  EXPECT_EQ(note.source, "resnet.py:154");
  EXPECT_EQ(read.recompute_share, 0.25);
}

TEST(Annotations, ErrorsNameWhatIsWrong) {
  EXPECT_NE(errorOf("").find("no JSON"), std::string::npos);
  EXPECT_NE(errorOf("{").find("no JSON"), std::string::npos);
  EXPECT_NE(errorOf("[]").find("the file is not an object"), std::string::npos);
  EXPECT_NE(errorOf("{}").find("'version'"), std::string::npos);
  EXPECT_NE(errorOf(std::string(100'000, '[')).find("nested too deep"), std::string::npos);
  std::string text = toJson(example());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    return at == std::string::npos ? std::string("not there: " + from)
                                   : changed.replace(at, from.size(), to);
  };
  EXPECT_NE(errorOf(replaced("\"version\": 1", "\"version\": 2")).find("version 2"),
            std::string::npos);
  EXPECT_NE(
      errorOf(replaced("\"kept\": true", "\"kept\": 1")).find("'kept' of value 'layer1_0_conv1'"),
      std::string::npos);
  EXPECT_NE(errorOf(replaced("51400000", "-1")).find("'bytes'"), std::string::npos);
  EXPECT_NE(errorOf(replaced("\"forward\"", "3")).find("'method' of the file is not a string"),
            std::string::npos);
}

TEST(FormatBytes, HasOneDecimalBelowAHundred) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(999), "999 B");
  EXPECT_EQ(formatBytes(1000), "1.0 kB");
  EXPECT_EQ(formatBytes(3'211'264), "3.2 MB");
  EXPECT_EQ(formatBytes(99'960'000), "100 MB");
  EXPECT_EQ(formatBytes(999'600'000), "1.00 GB");
  EXPECT_EQ(formatBytes(1'411'000'000), "1.41 GB");
  EXPECT_EQ(formatBytes(14'110'000'000), "14.1 GB");
  EXPECT_EQ(formatBytes(999'999), "1.0 MB");
  EXPECT_EQ(formatBytes(999'999, Rounding::kDown), "999 kB");
  EXPECT_EQ(formatBytes(5'380'000, Rounding::kUp), "5.4 MB");
  EXPECT_EQ(formatBytes(5'399'999, Rounding::kDown), "5.3 MB");
  EXPECT_EQ(formatBytes(5'400'000, Rounding::kUp), "5.4 MB");
  EXPECT_EQ(modulePathText("4"), "module 4");
  EXPECT_EQ(modulePathText("0.4"), "module 0.4");
  EXPECT_EQ(modulePathText("layer2.0.relu"), "layer2.0.relu");
  EXPECT_EQ(modulePathText(""), "");
  EXPECT_EQ(formatBytes(-1'200'000), "-1.2 MB");
}

TEST(Remarks, ReadAsInTheDesign) {
  const Remark remark{Reason::kInPlaceWrite,          "aten::relu_", "layer2.0.relu", "model.py:41",
                      "aten::relu_ writes its input", 3'211'264};
  EXPECT_EQ(
      str(remark),
      "remark: model.py:41: layer2.0.relu: kept [in-place-write]: aten::relu_ writes its input "
      "(saved 3.2 MB)");
  EXPECT_EQ(str({Reason::kRandom, "aten::rand", "", "", "draws", 0}),
            "remark: kept [random]: draws");
}

}  // namespace
}  // namespace remat::ir
