#include "passes/blockers.h"

#include <gtest/gtest.h>

#include "passes/planner.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

constexpr int64_t kMega = 1'000'000;

/// A chain of ops that each save their input; `refused` of them may not be replayed, the later the
/// larger.
PlanningInput chain(int refused) {
  testing::ProfileBuilder builder;
  int32_t value = builder.argument(kMega, false);
  for (int i = 0; i < 8; ++i) {
    testing::ProfileBuilder::Op op;
    const bool replayable = i % 2 == 1 || i / 2 >= refused;
    op.name = replayable ? "good" : "op" + std::to_string(i);
    op.seconds = 1;
    op.inputs = {value};
    op.output_bytes = {(replayable ? 1 : 10 + i) * kMega};
    op.saved = {value};
    op.internal_bytes = i == 0 && !replayable ? 5 * kMega : 0;
    op.replayable = replayable;
    value = builder.add(op);
  }
  PlanningInput input = builder.finish({value});
  for (size_t i = 0; i < input.profile.nodes.size(); ++i) {
    input.profile.nodes[i].program_index = static_cast<int32_t>(i);
    input.profile.nodes[i].module_path = "layer" + std::to_string(i);
    input.profile.nodes[i].source = "net.py:" + std::to_string(i);
  }
  return input;
}

std::vector<Blocker> atTheMinimum(const PlanningInput& input,
                                  const std::vector<ir::Remark>& remarks) {
  return blockers(input, Planner(input).minimum(), remarks);
}

TEST(Blockers, AreTheRefusedNodesThatHoldMost) {
  ir::Remark remark{ir::Reason::kUnknownOp, "aten::op4", "layer4", "net.py:4", "", 0};
  ir::Remark other{ir::Reason::kRandom, "aten::op4", "layer4", "net.py:4", "", 0};
  const std::vector<Blocker> found = atTheMinimum(chain(4), {remark, other});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].op, "aten::op6");
  EXPECT_EQ(found[0].bytes, 16 * kMega);
  EXPECT_EQ(found[1].op, "aten::op0");
  EXPECT_EQ(found[1].bytes, 15 * kMega) << "its result and what it saved inside of itself";
  EXPECT_EQ(found[2].op, "aten::op4");
  EXPECT_EQ(found[2].reasons, "random, unknown-op");
  EXPECT_EQ(blockersText({found[2]}),
            "; kept at its peak: 14.0 MB aten::op4 at layer4 (net.py:4) [random, unknown-op]");
}

TEST(Blockers, AreNoneWhereEverythingMayBeReplayed) {
  EXPECT_TRUE(atTheMinimum(chain(0), {}).empty());
  EXPECT_EQ(blockersText({}), "");
}

}  // namespace
}  // namespace remat
