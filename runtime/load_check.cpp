#include "runtime/load_check.h"

#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>

namespace remat::runtime {
namespace {

/// `2.11` of `2.11.0+cu130`.
std::string majorMinor(const std::string& version) {
  const size_t dot = version.find('.');
  return dot == std::string::npos ? version : version.substr(0, version.find('.', dot + 1));
}

/// The file that this code was loaded from, a library or a program.
std::string thisFile() {
  static const char here = 0;
  Dl_info info{};
  return dladdr(&here, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "Remat";
}

/// Where LibTorch's message about a namespace that is taken names who took it: `A` of `… Previous
/// registration of TORCH_LIBRARY was A; latest …`.
std::string holderOfNamespace(const std::string& message) {
  static const std::string kBefore = "Previous registration of TORCH_LIBRARY was ";
  const size_t before = message.find(kBefore);
  if (before == std::string::npos) return "another file";
  const size_t begin = before + kBefore.size();
  return message.substr(begin, message.find(';', begin) - begin);
}

/// The loader lets no exception through, neither at a program's start nor in dlopen.
[[noreturn]] void refuseToLoad(const std::string& why) {
  std::fputs((why + "\n").c_str(), stderr);
  std::abort();
}

/// What has to hold before anything of the runtime is used. It is the first of our initialisers to
/// run: another LibTorch of the same soname may lack functions that a later one calls.
class LoadCheck {
 public:
  LoadCheck() {
    const std::string file = thisFile();
    const std::string mismatch = libtorchMismatch(file, TORCH_VERSION, at::show_config());
    if (!mismatch.empty()) refuseToLoad(mismatch);
    try {
      // LibTorch's registry of operators would take ours twice without a word; that of namespaces
      // has each once.
      namespace_ = c10::Dispatcher::singleton().registerLibrary("remat", file);
    } catch (const c10::Error& error) {
      refuseToLoad("remat: " + file +
                   " brings Remat's runtime into a process that has it already, from " +
                   holderOfNamespace(error.what_without_backtrace()) +
                   ". Load libremat.so, which optimises and trains, or libremat_runtime.so, which "
                   "trains, and not both; neither where the program itself holds the runtime "
                   "(Bazel's //runtime:ops)");
    }
  }

 private:
  c10::RegistrationHandleRAII namespace_{[] {}};
};

// 101 is the first priority that is not the compiler's own.
const LoadCheck kLoadCheck __attribute__((init_priority(101)));

}  // namespace

std::string libtorchMismatch(const std::string& library, const std::string& built,
                             const std::string& configuration) {
  static const std::string kKey = "TORCH_VERSION=";
  const size_t key = configuration.find(kKey);
  if (key == std::string::npos) return "";
  const size_t begin = key + kKey.size();
  const std::string found =
      configuration.substr(begin, configuration.find_first_of(", \n", begin) - begin);
  if (majorMinor(found) == majorMinor(built)) return "";
  return "remat: " + library + " was built for LibTorch " + majorMinor(built) +
         ", and this process has LibTorch " + found + ". Run it with LibTorch " +
         majorMinor(built) + ", or build Remat for the other one: LIBTORCH=FOLDER tools/install.sh";
}

}  // namespace remat::runtime
