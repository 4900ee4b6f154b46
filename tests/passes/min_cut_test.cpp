#include "passes/min_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/passes/synthetic.h"

namespace remat {
namespace {

/// What a choice of kept storages costs by the cut's definition.
class Price {
 public:
  Price(const SimulationModel& model, const CutPrices& prices, const std::vector<char>& keep)
      : model_(model),
        prices_(prices),
        keep_(keep),
        available_(model.values.size(), 0),

        replayed_(model.nodes.size(), 0) {
    for (const SimulationModel::Slot& slot : model.slots) {
      const SimulationModel::Storage& storage = model.storages[slot.storage];
      if (slot.value < 0 || !storage.candidate) continue;
      makeAvailable(storage.root);
      if (!keep[slot.storage]) makeAvailable(slot.value);
    }
  }

  double sum() const { return sum_; }

 private:
  void makeAvailable(int32_t value) {
    if (model_.values[value].at_hand || available_[value]) return;
    available_[value] = 1;
    const auto roots = model_.value_roots[value];
    for (int32_t storage : roots) {
      if (keep_[storage]) {
        sum_ += prices_.keep[storage];
      } else {
        replay(model_.values[value].producer);
      }
    }
    if (roots.empty()) replay(model_.values[value].producer);
  }

  void replay(int32_t node) {
    if (replayed_[node]) return;
    replayed_[node] = 1;
    sum_ += prices_.recompute[node];
    for (int32_t input : model_.node_inputs[node]) makeAvailable(input);
  }

  const SimulationModel& model_;
  const CutPrices& prices_;
  const std::vector<char>& keep_;
  std::vector<char> available_;
  std::vector<char> replayed_;
  double sum_ = 0;
};

TEST(MinCutTest, NoChoiceIsCheaper) {
  std::mt19937_64 random(3);
  int compared = 0;
  while (compared < 300) {
    const PlanningInput input = testing::randomProfile(random, 4 + static_cast<int>(random() % 10));
    const SimulationModel model(input);
    if (model.candidates.empty() || model.candidates.size() > 10) continue;
    ++compared;
    CutPrices prices;
    prices.keep.resize(model.storages.size(), 0);
    for (double& price : prices.keep) price = 1 + static_cast<double>(random() % 50);
    for (size_t node = 0; node < model.nodes.size(); ++node) {
      prices.recompute.push_back(1 + static_cast<double>(random() % 50));
    }
    const std::vector<char> solved = MinCut(model).solve(prices);
    double best = Price(model, prices, solved).sum();
    const double found = best;
    std::vector<char> keep(model.storages.size(), 1);
    for (uint32_t choice = 0; choice < (1u << model.candidates.size()); ++choice) {
      for (size_t i = 0; i < model.candidates.size(); ++i) {
        keep[model.candidates[i]] = (choice >> i) & 1;
      }
      best = std::min(best, Price(model, prices, keep).sum());
    }
    ASSERT_NEAR(found, best, 1e-6);
  }
}

TEST(MinCutTest, PricesDecideBetweenKeepingAndRecomputing) {
  const PlanningInput input = testing::uniformChain(5, 100, 1);
  const SimulationModel model(input);
  MinCut cut(model);
  CutPrices prices;
  prices.recompute.assign(model.nodes.size(), 1);
  prices.keep.assign(model.storages.size(), 0.5);
  std::vector<char> keep = cut.solve(prices);
  EXPECT_EQ(std::count(keep.begin(), keep.end(), 0), 0);
  prices.keep.assign(model.storages.size(), 2);
  keep = cut.solve(prices);
  EXPECT_EQ(std::count(keep.begin(), keep.end(), 0), static_cast<int64_t>(model.candidates.size()));
}

TEST(MinCutTest, PricesBelowNothingOrNoNumbersAreNothing) {
  const PlanningInput input = testing::uniformChain(5, 100, 1);
  const SimulationModel model(input);
  MinCut cut(model);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double price : {-3.0, infinity, -infinity, std::nan("")}) {
    CutPrices prices;
    prices.recompute.assign(model.nodes.size(), price);
    prices.keep.assign(model.storages.size(), 1);
    EXPECT_EQ(cut.solve(prices).size(), model.storages.size());
  }
}

}  // namespace
}  // namespace remat
