#include "tests/runtime/fake_streams.h"

#include <algorithm>
#include <sstream>

namespace remat::runtime::test {
namespace {

std::string nameOf(const FakeStreams::Key& key) {
  std::ostringstream text;
  text << "stream " << key.second << " of fake:" << key.first;
  return text.str();
}

}  // namespace

FakeStreams& FakeStreams::get() {
  static auto* const instance = new FakeStreams;
  return *instance;
}

void FakeStreams::run(const std::string& op, const c10::Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Key key = keyOf(stream);
  clocks_[key][key]++;
  time_++;
  events_.runs.push_back({op, stream});
}

bool FakeStreams::isBefore(const std::pair<Key, int64_t>& access, const Key& stream) {
  return access.second <= clocks_[stream][access.first];
}

void FakeStreams::race(const std::string& what) { events_.races.push_back(what); }

void FakeStreams::reads(const void* storage, const c10::Stream& stream, const std::string& op) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = storages_.find(storage);
  if (found == storages_.end()) return;
  const Key key = keyOf(stream);
  if (!isBefore(found->second.written, key)) {
    race(op + " on " + nameOf(key) + " reads what " + nameOf(found->second.written.first) +
         " may still be writing");
  }
  found->second.reads[key] = clocks_[key][key];
}

void FakeStreams::writes(const void* storage, const c10::Stream& stream, const std::string& op) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = storages_.find(storage);
  if (found == storages_.end()) return;
  const Key key = keyOf(stream);
  Storage& written = found->second;
  if (!isBefore(written.written, key)) {
    race(op + " on " + nameOf(key) + " writes what " + nameOf(written.written.first) + " writes");
  }
  for (const auto& read : written.reads) {
    if (!isBefore(read, key)) {
      race(op + " on " + nameOf(key) + " writes what " + nameOf(read.first) + " may still read");
    }
  }
  written.written = {key, clocks_[key][key]};
  written.reads.clear();
}

void FakeStreams::merge(Clock& into, const Clock& from) {
  for (const auto& [key, time] : from) into[key] = std::max(into[key], time);
}

void FakeStreams::join(const c10::Stream& stream, const c10::Stream& other) {
  const std::lock_guard<std::mutex> lock(mutex_);
  merge(clocks_[keyOf(stream)], clocks_[keyOf(other)]);
}

void FakeStreams::record(Event& event, const c10::Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  event.clock = clocks_[keyOf(stream)];
  event.time = time_;
  events_.recorded_events++;
}

void FakeStreams::block(const Event& event, const c10::Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  merge(clocks_[keyOf(stream)], event.clock);
}

void FakeStreams::allocated(const void* storage, const c10::Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Key key = keyOf(stream);
  storages_[storage] = {key, {key, 0}, {}, {}};
}

void FakeStreams::noteUse(const void* storage, const c10::Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = storages_.find(storage);
  if (found != storages_.end()) found->second.noted.insert(keyOf(stream));
}

void FakeStreams::freed(const void* storage) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = storages_.find(storage);
  if (found == storages_.end()) return;
  const Storage& gone = found->second;
  Clock accesses = gone.reads;
  accesses[gone.written.first] = std::max(accesses[gone.written.first], gone.written.second);
  for (const auto& access : accesses) {
    // The next tensor in its place is made on the allocation's stream.
    if (access.first != gone.allocated && gone.noted.count(access.first) == 0 &&
        !isBefore(access, gone.allocated)) {
      race("what " + nameOf(access.first) + " uses is freed for " + nameOf(gone.allocated));
    }
  }
  storages_.erase(found);
}

void FakeStreams::hostWaits(const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.waits.push_back(why);
}

void FakeStreams::stateSaved() {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.saved_states++;
}

FakeEvents FakeStreams::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  FakeEvents taken = std::move(events_);
  events_ = {};
  return taken;
}

}  // namespace remat::runtime::test
