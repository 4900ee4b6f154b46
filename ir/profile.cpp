#include "ir/profile.h"

#include <array>
#include <limits>
#include <stdexcept>

#include "ir/json_text.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace remat::ir {
namespace {

namespace json = llvm::json;

constexpr int kLastEventKind = static_cast<int>(EventKind::kRelease);
constexpr int kLastRole = static_cast<int>(StorageRole::kOther);
/// The format nests four deep.
constexpr int kMaxDepth = 16;
/// Of one storage: sums over a profile can't overflow.
constexpr int64_t kMostBytes = int64_t{1} << 46;
/// Of all nodes, likewise: the planner counts time in whole picoseconds, and some nodes run often.
constexpr double kMostSeconds = 1e5;
/// Of a roofline, per second.
constexpr double kMostRate = 1e24;

[[noreturn]] void fail(const llvm::Twine& where, const llvm::Twine& what) {
  throw std::runtime_error(("profile: " + where + ": " + what).str());
}

json::Array idList(const std::vector<int32_t>& ids) {
  json::Array list;
  list.reserve(ids.size());
  for (int32_t id : ids) list.push_back(id);
  return list;
}

/// kind, id, kind, id, …
json::Array eventList(const std::vector<Event>& events) {
  json::Array list;
  list.reserve(2 * events.size());
  for (const Event& event : events) {
    list.push_back(static_cast<int>(event.kind));
    list.push_back(event.id);
  }
  return list;
}

/// One JSON object being read; `where` names it in errors.
class Reader {
 public:
  Reader(const json::Value& value, std::string where) : where_(std::move(where)) {
    object_ = value.getAsObject();
    if (object_ == nullptr) fail(where_, "expected an object");
  }

  std::string string(llvm::StringRef key) const {
    auto value = at(key).getAsString();
    if (!value) fail(where_, "'" + key + "' is not a string");
    return value->str();
  }

  bool boolean(llvm::StringRef key) const {
    auto value = at(key).getAsBoolean();
    if (!value) fail(where_, "'" + key + "' is not a boolean");
    return *value;
  }

  int64_t bytes(llvm::StringRef key) const {
    auto value = at(key).getAsInteger();
    if (!value || *value < 0) fail(where_, "'" + key + "' is not a number of bytes");
    return *value;
  }

  double seconds(llvm::StringRef key) const {
    auto value = at(key).getAsNumber();
    if (!value || !(*value >= 0 && *value <= kMostSeconds)) {
      fail(where_, "'" + key + "' is not a time in seconds");
    }
    return *value;
  }

  /// An integer in [low, high].
  int32_t integer(llvm::StringRef key, int64_t low, int64_t high) const {
    return inRange(at(key), key, low, high);
  }

  std::vector<int32_t> ids(llvm::StringRef key, size_t count) const {
    std::vector<int32_t> result;
    for (const json::Value& value : array(key)) {
      result.push_back(inRange(value, key, 0, static_cast<int64_t>(count) - 1));
    }
    return result;
  }

  std::vector<Event> events(const Profile& profile, bool forward) const {
    const json::Array& list = array("events");
    if (list.size() % 2 != 0) fail(where_, "'events' is not a list of (kind, id) pairs");
    std::vector<Event> result;
    result.reserve(list.size() / 2);
    for (size_t i = 0; i < list.size(); i += 2) {
      const int last = forward ? static_cast<int>(EventKind::kFree) : kLastEventKind;
      const auto kind = static_cast<EventKind>(inRange(list[i], "events", 0, last));
      const bool of_storage = kind == EventKind::kAlloc || kind == EventKind::kFree;
      const bool of_nothing = kind == EventKind::kApplyEnd;
      const size_t count = of_storage ? profile.storages.size() : profile.slots.size();
      const int64_t high = of_nothing ? -1 : static_cast<int64_t>(count) - 1;
      result.push_back({kind, inRange(list[i + 1], "events", of_nothing ? -1 : 0, high)});
    }
    return result;
  }

  const json::Array& array(llvm::StringRef key) const {
    const json::Array* value = at(key).getAsArray();
    if (value == nullptr) fail(where_, "'" + key + "' is not a list");
    return *value;
  }

 private:
  const json::Value& at(llvm::StringRef key) const {
    const json::Value* value = object_->get(key);
    if (value == nullptr) fail(where_, "'" + key + "' is missing");
    return *value;
  }

  int32_t inRange(const json::Value& value, llvm::StringRef key, int64_t low, int64_t high) const {
    auto integer = value.getAsInteger();
    if (!integer) fail(where_, "'" + key + "' holds something that is not an integer");
    if (*integer < low || *integer > high) {
      fail(where_, "'" + key + "' holds " + llvm::Twine(*integer) + ", which is not in [" +
                       llvm::Twine(low) + ", " + llvm::Twine(high) + "]");
    }
    return static_cast<int32_t>(*integer);
  }

  const json::Object* object_;
  std::string where_;
};

std::string indexed(const char* kind, size_t index) {
  return std::string(kind) + " " + std::to_string(index);
}

json::Object nodeObject(const NodeProfile& node) {
  return json::Object{{"program_index", node.program_index},
                      {"op", utf8Text(node.op)},
                      {"module", utf8Text(node.module_path)},
                      {"source", utf8Text(node.source)},
                      {"seconds", node.seconds},
                      {"inputs", idList(node.inputs)},
                      {"outputs", idList(node.outputs)},
                      {"events", eventList(node.events)}};
}

NodeProfile readNode(const Reader& reader, const Profile& profile, size_t values) {
  NodeProfile node;
  node.program_index = reader.integer("program_index", -1, std::numeric_limits<int32_t>::max());
  node.op = reader.string("op");
  node.module_path = reader.string("module");
  node.source = reader.string("source");
  node.seconds = reader.seconds("seconds");
  node.inputs = reader.ids("inputs", values);
  node.outputs = reader.ids("outputs", values);
  node.events = reader.events(profile, /*forward=*/true);
  return node;
}

json::Object valueObject(const ValueProfile& value) {
  return json::Object{{"name", utf8Text(value.name)}, {"type", utf8Text(value.type)},
                      {"tensor", value.tensor},       {"producer", value.producer},
                      {"last_use", value.last_use},   {"storages", idList(value.storages)}};
}

ValueProfile readValue(const Reader& reader, size_t storages, size_t nodes) {
  ValueProfile value;
  const auto node_count = static_cast<int64_t>(nodes);
  value.name = reader.string("name");
  value.type = reader.string("type");
  value.tensor = reader.boolean("tensor");
  value.producer = reader.integer("producer", -1, node_count - 1);
  value.last_use = reader.integer("last_use", -1, node_count);
  value.storages = reader.ids("storages", storages);
  return value;
}

// Rows of storages and slots are arrays: with keys they would make up most of a file.

std::vector<StorageProfile> readStorages(const json::Array& rows) {
  std::vector<StorageProfile> storages;
  for (const json::Value& value : rows) {
    const std::string where = indexed("storage", storages.size());
    const json::Array* row = value.getAsArray();
    if (row == nullptr || row->size() != 2) fail(where, "expected [bytes, role]");
    auto bytes = (*row)[0].getAsInteger();
    auto role = (*row)[1].getAsInteger();
    if (!bytes || *bytes < 0 || *bytes > kMostBytes) fail(where, "bad number of bytes");
    if (!role || *role < 0 || *role > kLastRole) fail(where, "unknown role");
    storages.push_back({*bytes, static_cast<StorageRole>(*role)});
  }
  return storages;
}

std::vector<SlotProfile> readSlots(const json::Array& rows, size_t nodes, size_t values,
                                   size_t storages) {
  const std::array<size_t, 4> counts{nodes, values, storages, values};
  std::vector<SlotProfile> slots;
  for (const json::Value& value : rows) {
    const std::string where = indexed("slot", slots.size());
    const json::Array* row = value.getAsArray();
    if (row == nullptr || row->size() < counts.size() - 1 || row->size() > counts.size()) {
      fail(where, "expected [node, value, storage] or [node, value, storage, cast of]");
    }
    std::array<int32_t, 4> ids{-1, -1, -1, -1};
    for (size_t field = 0; field < row->size(); ++field) {
      auto id = (*row)[field].getAsInteger();
      if (!id || *id < -1 || *id >= static_cast<int64_t>(counts[field])) {
        fail(where, "index " + llvm::Twine(field) + " of [node, value, storage] is out of range");
      }
      ids[field] = static_cast<int32_t>(*id);
    }
    if (ids[1] >= 0 && ids[3] >= 0) fail(where, "it holds a value and is a cast of one");
    slots.push_back({ids[0], ids[1], ids[2], ids[3]});
  }
  return slots;
}

/// The entry is there in extrapolated profiles only.
std::vector<int64_t> readBatches(const json::Value* entry) {
  std::vector<int64_t> batches;
  if (entry == nullptr) return batches;
  const json::Array* sizes = entry->getAsArray();
  if (sizes == nullptr || sizes->size() != 2) fail("'extrapolated_from'", "expected two batches");
  for (const json::Value& size : *sizes) {
    const auto batch = size.getAsInteger();
    if (!batch || *batch < 1) fail("'extrapolated_from'", "a batch is no number from 1 up");
    batches.push_back(*batch);
  }
  return batches;
}

/// Rounding, origin and roofline are there where they aren't the defaults.
void readTarget(const json::Object& object, Profile& profile) {
  constexpr int64_t kMostRounding = int64_t{1} << 30;
  if (const json::Value* entry = object.get("rounding")) {
    const auto rounding = entry->getAsInteger();
    if (!rounding || *rounding < 1 || *rounding > kMostRounding) {
      fail("'rounding'", "not a number of bytes from 1 up");
    }
    profile.rounding = *rounding;
  }
  if (const json::Value* entry = object.get("recorded_on")) {
    const auto device = entry->getAsString();
    if (!device) fail("'recorded_on'", "not a string");
    profile.recorded_on = device->str();
  }
  if (const json::Value* entry = object.get("roofline")) {
    const json::Array* rates = entry->getAsArray();
    const auto rate = [&](size_t i) {
      const auto value =
          rates == nullptr || rates->size() != 2 ? llvm::None : (*rates)[i].getAsNumber();
      if (!value || !(*value > 0 && *value <= kMostRate)) {
        fail("'roofline'", "expected operations and bytes per second");
      }
      return *value;
    };
    profile.roofline = {rate(0), rate(1)};
  }
}

}  // namespace

int64_t roundedUp(int64_t bytes, int64_t rounding) {
  return (bytes + rounding - 1) / rounding * rounding;
}

double Profile::forwardSeconds() const {
  double sum = 0;
  for (const NodeProfile& node : nodes) sum += node.seconds;
  return sum;
}

std::string toJson(const Profile& profile) {
  json::Array nodes;
  for (const NodeProfile& node : profile.nodes) nodes.push_back(nodeObject(node));
  json::Array values;
  for (const ValueProfile& value : profile.values) values.push_back(valueObject(value));
  json::Array storages;
  for (const StorageProfile& storage : profile.storages) {
    storages.push_back(json::Array{storage.bytes, static_cast<int>(storage.role)});
  }
  json::Array slots;
  for (const SlotProfile& slot : profile.slots) {
    json::Array row{slot.node, slot.value, slot.storage};
    if (slot.cast_of >= 0) row.push_back(slot.cast_of);
    slots.push_back(std::move(row));
  }
  json::Array backward;
  for (const BackwardStep& step : profile.backward) {
    backward.push_back(json::Object{
        {"node", step.node}, {"seconds", step.seconds}, {"events", eventList(step.events)}});
  }
  json::Object root{{"remat_profile", Profile::kVersion},
                    {"graph_hash", utf8Text(profile.graph_hash)},
                    {"device", utf8Text(profile.device)},
                    {"inputs", utf8Text(profile.inputs)},
                    {"loss", utf8Text(profile.loss)},
                    {"peak_bytes", profile.peak_bytes},
                    {"baseline_peak_bytes", profile.baseline_peak_bytes},
                    {"step_seconds", profile.step_seconds},
                    {"nodes", std::move(nodes)},
                    {"values", std::move(values)},
                    {"storages", std::move(storages)},
                    {"slots", std::move(slots)},
                    {"backward", std::move(backward)}};
  if (!profile.extrapolated_from.empty()) {
    root["extrapolated_from"] = json::Array(profile.extrapolated_from);
  }
  if (profile.rounding != 1) root["rounding"] = profile.rounding;
  if (!profile.recorded_on.empty()) root["recorded_on"] = utf8Text(profile.recorded_on);
  if (profile.roofline.known()) {
    root["roofline"] = json::Array{profile.roofline.flops, profile.roofline.bytes};
  }
  std::string out;
  llvm::raw_string_ostream stream(out);
  stream << json::Value(std::move(root));
  return stream.str();
}

Profile profileFromJson(const std::string& text) {
  if (nestsDeeperThan(kMaxDepth, text))
    throw std::runtime_error("profile: not a profile: nested too deep");
  llvm::Expected<json::Value> parsed = json::parse(text);
  if (!parsed) {
    throw std::runtime_error("profile: not JSON: " + llvm::toString(parsed.takeError()));
  }
  const Reader root(*parsed, "file");
  const int32_t version = root.integer("remat_profile", 0, std::numeric_limits<int32_t>::max());
  if (version != Profile::kVersion) {
    fail("file", "format version " + llvm::Twine(version) + "; this program reads version " +
                     llvm::Twine(Profile::kVersion));
  }
  Profile profile;
  profile.graph_hash = root.string("graph_hash");
  profile.device = root.string("device");
  profile.inputs = root.string("inputs");
  // Profiles of earlier builds lack it.
  if (parsed->getAsObject()->get("loss") != nullptr) profile.loss = root.string("loss");
  profile.peak_bytes = root.bytes("peak_bytes");
  profile.baseline_peak_bytes = root.bytes("baseline_peak_bytes");
  profile.step_seconds = root.seconds("step_seconds");
  profile.extrapolated_from = readBatches(parsed->getAsObject()->get("extrapolated_from"));
  readTarget(*parsed->getAsObject(), profile);

  const json::Array& nodes = root.array("nodes");
  const json::Array& values = root.array("values");
  profile.storages = readStorages(root.array("storages"));
  profile.slots =
      readSlots(root.array("slots"), nodes.size(), values.size(), profile.storages.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    profile.nodes.push_back(readNode(Reader(nodes[i], indexed("node", i)), profile, values.size()));
  }
  if (profile.forwardSeconds() > kMostSeconds) fail("file", "its nodes' times are no times");
  for (size_t i = 0; i < values.size(); ++i) {
    profile.values.push_back(
        readValue(Reader(values[i], indexed("value", i)), profile.storages.size(), nodes.size()));
  }
  const json::Array& backward = root.array("backward");
  for (size_t i = 0; i < backward.size(); ++i) {
    const Reader reader(backward[i], indexed("backward step", i));
    BackwardStep step;
    step.node = reader.integer("node", -1, static_cast<int64_t>(nodes.size()) - 1);
    step.seconds = reader.seconds("seconds");
    step.events = reader.events(profile, /*forward=*/false);
    profile.backward.push_back(std::move(step));
  }
  return profile;
}

}  // namespace remat::ir
