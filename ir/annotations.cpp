#include "ir/annotations.h"

#include <llvm/ADT/Twine.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/raw_ostream.h>

#include <cmath>
#include <stdexcept>

#include "ir/json_text.h"

namespace remat::ir {
namespace {

namespace json = llvm::json;

constexpr int kVersion = 1;
/// The format nests three deep.
constexpr int kMaxDepth = 8;

[[noreturn]] void fail(const llvm::Twine& what) {
  throw std::runtime_error(("annotations: " + what).str());
}

/// JSON has no infinity.
double finite(double number) { return std::isfinite(number) ? number : 0; }

/// One JSON object being read; `where` names it in errors.
class Reader {
 public:
  Reader(const json::Value& value, std::string where) : where_(std::move(where)) {
    object_ = value.getAsObject();
    if (object_ == nullptr) fail(where_ + " is not an object");
  }

  std::string string(llvm::StringRef key) const {
    const auto value = at(key).getAsString();
    if (!value) fail("'" + key + "' of " + where_ + " is not a string");
    return value->str();
  }

  /// Empty where it is missing.
  std::string optionalString(llvm::StringRef key) const {
    return object_->get(key) == nullptr ? "" : string(key);
  }

  bool boolean(llvm::StringRef key) const {
    const auto value = at(key).getAsBoolean();
    if (!value) fail("'" + key + "' of " + where_ + " is not a boolean");
    return *value;
  }

  int64_t bytes(llvm::StringRef key) const {
    const auto value = at(key).getAsInteger();
    if (!value || *value < 0) fail("'" + key + "' of " + where_ + " is not a number of bytes");
    return *value;
  }

  double number(llvm::StringRef key) const {
    const auto value = at(key).getAsNumber();
    if (!value || !std::isfinite(*value) || *value < 0) {
      fail("'" + key + "' of " + where_ + " is not a number from 0 up");
    }
    return *value;
  }

  const json::Object& object(llvm::StringRef key) const {
    const json::Object* value = at(key).getAsObject();
    if (value == nullptr) fail("'" + key + "' of " + where_ + " is not an object");
    return *value;
  }

 private:
  const json::Value& at(llvm::StringRef key) const {
    const json::Value* value = object_->get(key);
    if (value == nullptr) fail("'" + key + "' of " + where_ + " is missing");
    return *value;
  }

  const json::Object* object_;
  std::string where_;
};

json::Object noteObject(const ValueNote& note) {
  return json::Object{{"kept", note.kept},
                      {"bytes", note.bytes},
                      {"reason", utf8Text(note.reason)},
                      {"module", utf8Text(note.module_path)},
                      {"source", utf8Text(note.source)}};
}

ValueNote readNote(const json::Value& value, const std::string& name) {
  const Reader reader(value, "value '" + name + "'");
  ValueNote note;
  note.kept = reader.boolean("kept");
  note.bytes = reader.bytes("bytes");
  note.reason = reader.string("reason");
  note.module_path = reader.string("module");
  note.source = reader.string("source");
  return note;
}

}  // namespace

std::string toJson(const Annotations& annotations) {
  json::Object values;
  for (const auto& [name, note] : annotations.values) values[utf8Text(name)] = noteObject(note);
  json::Object root{{"version", kVersion},
                    {"tool_version", utf8Text(annotations.tool_version)},
                    {"method", utf8Text(annotations.method)},
                    {"inputs", utf8Text(annotations.inputs)},
                    {"device", utf8Text(annotations.device)},
                    {"loss", utf8Text(annotations.loss)},
                    {"plan_hash", utf8Text(annotations.plan_hash)},
                    {"profile_hash", utf8Text(annotations.profile_hash)},
                    {"budget", annotations.budget},
                    {"original_peak", annotations.original_peak},
                    {"predicted_peak", annotations.predicted_peak},
                    {"recompute_share", finite(annotations.recompute_share)},
                    {"values", std::move(values)}};
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << llvm::formatv("{0:2}", json::Value(std::move(root)));
  return stream.str();
}

Annotations annotationsFromJson(const std::string& text) {
  if (nestsDeeperThan(kMaxDepth, text)) fail("the text is nested too deep");
  auto parsed = json::parse(text);
  if (!parsed) fail("no JSON: " + llvm::toString(parsed.takeError()));
  const Reader root(*parsed, "the file");
  if (const int64_t version = root.bytes("version"); version != kVersion) {
    fail("version " + llvm::Twine(version) + " is not known to this build, which knows " +
         llvm::Twine(kVersion));
  }
  Annotations annotations;
  annotations.tool_version = root.string("tool_version");
  annotations.method = root.string("method");
  annotations.inputs = root.string("inputs");
  annotations.device = root.string("device");
  annotations.loss = root.string("loss");
  annotations.plan_hash = root.optionalString("plan_hash");
  annotations.profile_hash = root.optionalString("profile_hash");
  annotations.budget = root.bytes("budget");
  annotations.original_peak = root.bytes("original_peak");
  annotations.predicted_peak = root.bytes("predicted_peak");
  annotations.recompute_share = root.number("recompute_share");
  for (const auto& [name, value] : root.object("values")) {
    annotations.values.emplace(name.str(), readNote(value, name.str()));
  }
  return annotations;
}

}  // namespace remat::ir
