#pragma once

#include <ATen/core/ivalue.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/value_streams.h"

namespace remat::runtime {

/// What one running backward (one graph task of the engine) has recomputed of one frame. A value
/// stays until its last slot was unpacked and the last needed node that reads it was replayed, so
/// that each is made once a backward. Guarded by the frame's mutex.
class Session {
 public:
  /// `pending`: by value id, how many slots and needed nodes will ask for the value.
  explicit Session(std::vector<int32_t> pending) : pending_(std::move(pending)) {}

  bool isPending(int32_t value) const { return pending_[value] > 0; }
  const QueuedValue* find(int32_t value) const {
    const auto found = cache_.find(value);
    return found == cache_.end() ? nullptr : &found->second;
  }
  void store(int32_t value, QueuedValue content) { cache_[value] = std::move(content); }

  /// One use of `value` is over. Returns what is no longer asked for, to be freed without the lock.
  QueuedValue release(int32_t value) {
    QueuedValue dropped;
    if (pending_[value] > 0 && --pending_[value] == 0) {
      const auto found = cache_.find(value);
      if (found != cache_.end()) {
        dropped = std::move(found->second);
        cache_.erase(found);
      }
    }
    return dropped;
  }

  /// True the first time that `node` was replayed in this backward.
  bool noteReplayed(int32_t node) { return replayed_.insert(node).second; }

  std::unordered_set<int32_t> running;  ///< nodes that some thread is replaying just now

 private:
  std::unordered_map<int32_t, QueuedValue> cache_;
  std::vector<int32_t> pending_;
  std::unordered_set<int32_t> replayed_;
};

}  // namespace remat::runtime
