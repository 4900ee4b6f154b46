// loader_fuzz [--runs N] [--seed S] [--first K] [--seconds T]: damages what remat-opt reads, and
// reads it. Each may be accepted, or refused as documented; crashes, hangs and other exceptions are
// counted, named with their case, and left as a file. Case K of a seed is the same whatever ran
// before it: `--first K --runs 1` runs it alone.

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "llvm/ADT/StringRef.h"
#include "runtime/memory_statistics.h"
#include "runtime/runtime.h"
#include "tests/fuzz/loader_targets.h"

// An allocation that can't be had is no crash but what LibTorch says of it.
extern "C" const char* __asan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace remat::fuzz {
namespace {

struct Arguments {
  uint64_t runs = 200;
  uint64_t seed = 1;
  uint64_t first = 0;
  uint64_t seconds = 0;  ///< no case begins later; 0: all are run
};

constexpr unsigned kHangSeconds = 60;
/// Address space beyond what the samples took: a model of 20 kB has no use for it.
constexpr uint64_t kMaxGrowth = uint64_t{4} << 30;
/// What leaks, LibTorch's compiled classes first of all, goes with the process.
constexpr uint64_t kCasesPerProcess = 200;

/// Shared between the process that runs cases and the one that watches it.
struct Progress {
  uint64_t next = 0;  ///< the case that runs, or the first that has not
  uint64_t accepted = 0;
  uint64_t refused = 0;
  uint64_t defects = 0;
  bool done = false;
};

class SilentWarnings final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

Arguments argumentsOf(int argc, char** argv) {
  Arguments arguments;
  const std::map<std::string, uint64_t*> known{{"runs", &arguments.runs},
                                               {"seed", &arguments.seed},
                                               {"first", &arguments.first},
                                               {"seconds", &arguments.seconds}};
  for (int i = 1; i < argc; ++i) {
    llvm::StringRef name(argv[i]);
    llvm::StringRef value;
    if (name.contains('=')) {
      std::tie(name, value) = name.split('=');
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    name.consume_front("--");
    const auto found = known.find(name.str());
    if (found == known.end() || value.getAsInteger(10, *found->second)) {
      std::fprintf(stderr, "usage: loader_fuzz [--runs N] [--seed S] [--first K] [--seconds T]\n");
      std::exit(2);
    }
  }
  return arguments;
}

const Target& targetOf(uint64_t index) { return targets()[index % targets().size()]; }

std::string damagedText(const Samples& samples, const Arguments& arguments, uint64_t index) {
  // Neighbouring seeds of this generator give unlike numbers.
  Mutator mutator(arguments.seed * 1000003 + index);
  return targetOf(index).damaged(samples, mutator);
}

/// Names the case and leaves its text where the user finds it.
void report(const Samples& samples, const Arguments& arguments, uint64_t index,
            const std::string& what) {
  const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::string path = std::string(outputs != nullptr ? outputs : "/tmp") + "/loader_fuzz_" +
                           std::to_string(arguments.seed) + "_" + std::to_string(index);
  std::ofstream(path, std::ios::binary) << damagedText(samples, arguments, index);
  std::fprintf(stderr, "FAILED %s, --seed %ju --first %ju --runs 1 (%s): %s\n",
               targetOf(index).name, static_cast<uintmax_t>(arguments.seed),
               static_cast<uintmax_t>(index), path.c_str(), what.c_str());
}

uint64_t addressSpace() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

void limitAddressSpace() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit limit{addressSpace() + kMaxGrowth, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

/// In a process of its own: cases until `end`, or until one kills it.
[[noreturn]] void runCases(const Samples& samples, const Arguments& arguments, uint64_t end,
                           const std::string& folder, Progress& progress) {
  limitAddressSpace();
  while (progress.next < end) {
    const uint64_t index = progress.next;
    ::alarm(kHangSeconds);
    const Outcome outcome =
        targetOf(index).read(damagedText(samples, arguments, index), samples, folder);
    ::alarm(0);
    (outcome.accepted ? progress.accepted : progress.refused)++;
    if (!outcome.defect.empty()) {
      progress.defects++;
      report(samples, arguments, index, outcome.defect);
    }
    progress.next = index + 1;
  }
  progress.done = true;
  // No destructors: LibTorch's threads are not here.
  ::_exit(0);
}

std::string endOf(int status) {
  if (!WIFSIGNALED(status)) return "ended the process, exit code " + std::to_string(status >> 8);
  const int signal = WTERMSIG(status);
  if (signal == SIGALRM) return "hung for " + std::to_string(kHangSeconds) + " seconds";
  return std::string("crashed: ") + ::strsignal(signal);
}

Progress run(const Samples& samples, const Arguments& arguments, const std::string& folder) {
  auto* shared = static_cast<Progress*>(
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  TORCH_CHECK(shared != MAP_FAILED, "no shared memory");
  Progress& progress = *new (shared) Progress;
  progress.next = arguments.first;
  const uint64_t end = arguments.first + arguments.runs;
  const auto start = std::chrono::steady_clock::now();
  const auto in_time = [&] {
    return arguments.seconds == 0 ||
           std::chrono::steady_clock::now() - start < std::chrono::seconds(arguments.seconds);
  };
  while (progress.next < end && in_time()) {
    const uint64_t part = std::min(end, progress.next + kCasesPerProcess);
    progress.done = false;
    const pid_t child = ::fork();
    TORCH_CHECK(child >= 0, "can't fork");
    if (child == 0) runCases(samples, arguments, part, folder, progress);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (progress.done) continue;
    progress.defects++;
    report(samples, arguments, progress.next, endOf(status));
    progress.next++;
  }
  return progress;
}

int fuzz(int argc, char** argv) {
  const Arguments arguments = argumentsOf(argc, argv);
  runtime::installMemoryStatistics();
  runtime::initialize();
  // A process that forks must not have started threads.
  at::set_num_threads(1);
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  const char* temporary = std::getenv("TEST_TMPDIR");
  std::string folder = std::string(temporary != nullptr ? temporary : "/tmp") + "/fuzz_XXXXXX";
  TORCH_CHECK(::mkdtemp(folder.data()) != nullptr, "can't make ", folder);
  const Samples samples = makeSamples();
  const Progress progress = run(samples, arguments, folder);
  ::unlink((folder + "/damaged.pt").c_str());
  ::rmdir(folder.c_str());
  std::printf("seed %ju: %ju cases: %ju accepted, %ju refused, %ju defects\n",
              static_cast<uintmax_t>(arguments.seed),
              static_cast<uintmax_t>(progress.next - arguments.first),
              static_cast<uintmax_t>(progress.accepted), static_cast<uintmax_t>(progress.refused),
              static_cast<uintmax_t>(progress.defects));
  return progress.defects == 0 ? 0 : 1;
}

}  // namespace
}  // namespace remat::fuzz

int main(int argc, char** argv) {
  try {
    return remat::fuzz::fuzz(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loader_fuzz: %s\n", error.what());
    return 2;
  }
}
