#pragma once

#include <exception>
#include <string>

namespace remat::python {

/// Progress said stop.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

/// An exception as Python gets it, `{"error": {"kind": …, "message": …}}`: an operator's exceptions
/// lose their type on the way. Kinds: `budget` (with minimum_peak, bytes), `value` (an argument is
/// wrong), `interrupted`, `refused`.
std::string errorRecord(const std::exception_ptr& error);

}  // namespace remat::python
