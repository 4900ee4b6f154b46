#include "tests/fuzz/loader_mutator.h"

#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <memory>
#include <utility>

namespace remat::fuzz {
namespace {

constexpr std::array<const char*, 18> kTokens{
    "0",    "-1",    "1",  "7",  "2147483648", "-2147483649", "9223372036854775807",
    "1e18", "1e308", "-5", "{}", "[]",         "null",        "true",
    "\"\"", "0.5",   "[[", "}"};

class MemoryReader final : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit MemoryReader(const std::string& data) : data_(data) {}
  size_t size() const override { return data_.size(); }
  size_t read(uint64_t position, void* buffer, size_t bytes, const char* /*what*/) const override {
    const size_t start = std::min<size_t>(position, data_.size());
    const size_t count = std::min(bytes, data_.size() - start);
    std::copy_n(data_.data() + start, count, static_cast<char*>(buffer));
    return count;
  }

 private:
  const std::string& data_;
};

bool isWritten(const std::string& name) {
  return name != "version" && name != "byteorder" && name.rfind(".data/", 0) != 0 &&
         name.rfind(".format_version", 0) != 0 && name.rfind(".storage_alignment", 0) != 0;
}

}  // namespace

Records recordsOf(const std::string& archive) {
  Records records;
  caffe2::serialize::PyTorchStreamReader reader(std::make_shared<MemoryReader>(archive));
  for (const std::string& name : reader.getAllRecords()) {
    if (!isWritten(name)) continue;
    auto [data, size] = reader.getRecord(name);
    records[name].assign(static_cast<const char*>(data.get()), size);
  }
  return records;
}

std::string archiveOf(const Records& records) {
  std::string archive;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t bytes) {
    archive.append(static_cast<const char*>(data), bytes);
    return bytes;
  });
  for (const auto& [name, data] : records) writer.writeRecord(name, data.data(), data.size());
  writer.writeEndOfFile();
  return archive;
}

void Mutator::damage(std::string& text) {
  if (text.empty()) return;
  const size_t at = below(text.size());
  // Small pieces mostly: a large one is noticed at once.
  const size_t length = std::min(below(2) == 0 ? 1 + below(8) : 1 + below(256), text.size() - at);
  switch (below(8)) {
    case 0:
    case 1:
      text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 2:
      text[at] = static_cast<char>(below(256));
      break;
    case 3: {
      const size_t other = below(text.size() - length + 1);
      for (size_t i = 0; i < length; ++i) std::swap(text[at + i], text[other + i]);
      break;
    }
    case 4:
      text.erase(at, length);
      break;
    case 5:
      text.insert(at, text.substr(below(text.size()), length));
      break;
    case 6:
      std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), length,
                  static_cast<char>(below(2) == 0 ? 0 : 0xff));
      break;
    default:
      // Rarely: what is left is seldom read far.
      if (below(4) == 0) text.resize(at);
  }
}

std::string Mutator::bytes(std::string text) {
  const std::string before = text;
  for (size_t left = 1 + below(4); left > 0 || text == before; left -= left > 0 ? 1 : 0) {
    damage(text);
  }
  return text;
}

void Mutator::replaceToken(std::string& text) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '+';
  };
  size_t start = below(text.size());
  while (start < text.size() && !is_word(text[start])) ++start;
  size_t end = start;
  while (end < text.size() && is_word(text[end])) ++end;
  while (start > 0 && is_word(text[start - 1])) --start;
  text.replace(start, end - start, kTokens[below(kTokens.size())]);
}

std::string Mutator::json(std::string text) {
  if (below(3) == 0) return bytes(std::move(text));
  for (size_t left = 1 + below(4); left > 0 && !text.empty(); --left) replaceToken(text);
  return text;
}

std::string Mutator::record(Records records) {
  auto chosen = records.begin();
  std::advance(chosen, below(records.size()));
  const bool is_json =
      chosen->first.size() > 5 && chosen->first.rfind(".json") == chosen->first.size() - 5;
  chosen->second = is_json ? json(std::move(chosen->second)) : bytes(std::move(chosen->second));
  return archiveOf(records);
}

}  // namespace remat::fuzz
