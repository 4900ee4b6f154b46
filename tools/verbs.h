#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace remat::tools {

/// What the command line asked for; returns the exit code, or throws ToolError.
using Action = std::function<int()>;

/// Each adds one verb to `app` and sets `action` when it is the one that was given.
void addOptimizeVerb(CLI::App& app, Action& action);
void addPlanVerb(CLI::App& app, Action& action);
void addVerifyVerb(CLI::App& app, Action& action);
void addDumpVerb(CLI::App& app, Action& action);
void addStripVerb(CLI::App& app, Action& action);

}  // namespace remat::tools
