#include "runtime/python/error_record.h"

#include <stdexcept>
#include <utility>

#include "ir/json_text.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "passes/remat.h"
#include "tools/errors.h"

namespace remat::python {
namespace {

namespace json = llvm::json;

json::Object record(const char* kind, const std::string& message) {
  return json::Object{{"kind", kind}, {"message", ir::utf8Text(message)}};
}

json::Object recordOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const BudgetError& budget) {
    json::Object object = record("budget", budget.what());
    object["minimum_peak"] = budget.minimum_peak;
    return object;
  } catch (const ChoiceError& choice) {
    return record("value", choice.what());
  } catch (const std::invalid_argument& argument) {
    return record("value", argument.what());
  } catch (const Interrupted& interrupted) {
    return record("interrupted", interrupted.what());
  } catch (const RematError& refused) {
    return record("refused", refused.what());
  } catch (const std::exception& other) {
    return record("refused", tools::oneLine(other));
  }
}

}  // namespace

std::string errorRecord(const std::exception_ptr& error) {
  return llvm::formatv("{0}", json::Value(json::Object{{"error", recordOf(error)}})).str();
}

}  // namespace remat::python
