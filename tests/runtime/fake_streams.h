#pragma once

#include <c10/core/Stream.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/fake_accelerator.h"

namespace remat::runtime::test {

/// The order that streams and events make, and the storages that it is checked for. Thread-safe.
class FakeStreams {
 public:
  /// A stream by device and number.
  using Key = std::pair<int, c10::StreamId>;
  using Clock = std::map<Key, int64_t>;
  struct Event {
    Clock clock;
    int64_t time = 0;
  };

  static FakeStreams& get();

  /// Something runs on `stream`. Begins a run; the accesses that follow are its own.
  void run(const std::string& op, const c10::Stream& stream);
  void reads(const void* storage, const c10::Stream& stream, const std::string& op);
  void writes(const void* storage, const c10::Stream& stream, const std::string& op);
  /// `stream` waits for all that is queued on `other`.
  void join(const c10::Stream& stream, const c10::Stream& other);

  void record(Event& event, const c10::Stream& stream);
  void block(const Event& event, const c10::Stream& stream);

  void allocated(const void* storage, const c10::Stream& stream);
  void noteUse(const void* storage, const c10::Stream& stream);
  void freed(const void* storage);

  void hostWaits(const std::string& why);
  void stateSaved();
  FakeEvents take();

 private:
  struct Storage {
    Key allocated;
    std::pair<Key, int64_t> written;
    Clock reads;
    std::set<Key> noted;
  };

  static Key keyOf(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }
  void merge(Clock& into, const Clock& from);
  bool isBefore(const std::pair<Key, int64_t>& access, const Key& stream);
  void race(const std::string& what);

  std::mutex mutex_;
  std::map<Key, Clock> clocks_;
  std::map<const void*, Storage> storages_;
  int64_t time_ = 0;
  FakeEvents events_;
};

}  // namespace remat::runtime::test
