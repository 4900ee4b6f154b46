#pragma once

#include <string>

namespace remat::tools {

/// Notes the process's command, for reports. Called once, by main.
void noteCommandLine(int argc, const char* const* argv);

/// As one would type it: the program's name and its arguments, quoted where a shell needs it.
const std::string& commandLine();

}  // namespace remat::tools
