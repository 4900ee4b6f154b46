// The long run: random programs, optimised and trained beside their eager originals. What differs
// or crashes is shrunk and written as a case for tests/fuzz/cases.

#include <ATen/Parallel.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>

#include "tests/fuzz/fuzz_program.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/ir_case.h"
#include "tests/fuzz/shrink.h"
#include "tests/fuzz/workers.h"

namespace remat::fuzz {
namespace {

struct Arguments {
  int64_t programs = 1000;
  uint64_t seed = 1;
  int jobs = static_cast<int>(std::thread::hardware_concurrency());
  int64_t only = -1;
  std::string out = ".";
  std::string file;
  bool verbose = false;
};

constexpr auto kVerdictCount = static_cast<size_t>(Verdict::kCount);

struct Counts {
  std::array<int64_t, kVerdictCount> verdicts{};
  int64_t recomputed = 0;
  int64_t replayed = 0;
  int64_t crashed = 0;

  int64_t of(Verdict verdict) const { return verdicts.at(static_cast<size_t>(verdict)); }
  int64_t trained() const {
    int64_t sum = crashed;
    for (const int64_t count : verdicts) sum += count;
    return sum - of(Verdict::kUntrainable);
  }
};

Report reportOf(const Program& program, uint64_t seed) {
  at::set_num_threads(1);
  const Outcome outcome = runProgram(program, seed);
  return {seed, false, static_cast<int>(outcome.verdict), outcome.replayed, outcome.detail};
}

bool isFault(const Report& report) {
  return report.crashed || report.verdict == static_cast<int>(Verdict::kDifferent);
}

void count(const Report& report, Counts& counts) {
  counts.replayed += report.replayed;
  counts.recomputed += report.replayed > 0 ? 1 : 0;
  if (report.crashed) {
    ++counts.crashed;
  } else {
    ++counts.verdicts.at(static_cast<size_t>(report.verdict));
  }
}

void writeCase(const Report& fault, const std::string& folder) {
  const Program small = shrink(randomProgram(fault.seed), [&](const Program& one) {
    return isFault(isolated(fault.seed, [&](uint64_t seed) { return reportOf(one, seed); }));
  });
  const std::string path = folder + "/seed" + std::to_string(fault.seed) + ".ir";
  const std::string text = describe(small, fault.seed);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::ofstream file(path);
  file << "# " << fault.detail << "\n" << text.substr(text.find("# seed"));
  file.close();
  std::printf("%s\n%s: %s\n", sourceOf(small).c_str(), path.c_str(),
              file ? "written" : "can't be written");
}

void print(const Counts& counts, const Arguments& arguments) {
  std::printf(
      "%lld programs trained, from seed %llu: %lld same (%lld had values recomputed, %lld "
      "nodes in all), %lld unchanged, %lld refused, %lld different, %lld crashed; %lld more "
      "can't be trained in eager mode\n",
      static_cast<long long>(counts.trained()), static_cast<unsigned long long>(arguments.seed),
      static_cast<long long>(counts.of(Verdict::kSame)), static_cast<long long>(counts.recomputed),
      static_cast<long long>(counts.replayed),
      static_cast<long long>(counts.of(Verdict::kUnchanged)),
      static_cast<long long>(counts.of(Verdict::kRefused)),
      static_cast<long long>(counts.of(Verdict::kDifferent)),
      static_cast<long long>(counts.crashed),
      static_cast<long long>(counts.of(Verdict::kUntrainable)));
}

int fuzz(const Arguments& arguments) {
  Counts counts;
  constexpr int64_t kProgressEvery = 500;
  const auto work = [](uint64_t seed) { return reportOf(randomProgram(seed), seed); };
  runWorkers(arguments.seed, arguments.jobs, work, [&](const Report& report) {
    count(report, counts);
    const bool told = report.verdict == static_cast<int>(Verdict::kRefused) ||
                      (arguments.verbose && report.verdict != static_cast<int>(Verdict::kSame));
    if (told && !report.crashed) {
      std::printf("seed %llu %s: %s\n", static_cast<unsigned long long>(report.seed),
                  verdictName(static_cast<Verdict>(report.verdict)), report.detail.c_str());
    }
    if (isFault(report)) {
      std::printf("seed %llu: %s%s\n", static_cast<unsigned long long>(report.seed),
                  report.crashed ? "crashed, " : "", report.detail.c_str());
      writeCase(report, arguments.out);
    }
    if (counts.trained() % kProgressEvery == 0) print(counts, arguments);
    std::fflush(stdout);
    return counts.trained() >= arguments.programs;
  });
  print(counts, arguments);
  return counts.of(Verdict::kDifferent) + counts.crashed == 0 ? 0 : 1;
}

int one(const Arguments& arguments) {
  const auto seed = static_cast<uint64_t>(arguments.only);
  std::cout << sourceOf(randomProgram(seed)) << "\n" << std::flush;
  const Report report = isolated(seed, [](uint64_t s) { return reportOf(randomProgram(s), s); });
  std::cout << (report.crashed ? "crashed" : verdictName(static_cast<Verdict>(report.verdict)))
            << ", " << report.replayed << " nodes recomputed: " << report.detail << "\n";
  return isFault(report) ? 1 : 0;
}

int runCase(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "%s: can't be read\n", path.c_str());
    return 1;
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Outcome outcome = run(trialFromIr(text));
  std::cout << outcome.rewritten << verdictName(outcome.verdict) << ", " << outcome.replayed
            << " nodes recomputed: " << outcome.detail << "\n";
  return outcome.verdict == Verdict::kDifferent ? 1 : 0;
}

}  // namespace

int runFuzz(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains random programs in eager mode and optimised, side by side");
  app.add_option("--programs", arguments.programs, "How many have to be trainable")
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "Of the first program")->capture_default_str();
  app.add_option("--jobs", arguments.jobs, "Processes")->capture_default_str();
  app.add_option("--only", arguments.only, "Prints and runs the program of this seed");
  app.add_option("--case", arguments.file, "Runs this .ir file and prints what Remat made of it");
  app.add_option("--out", arguments.out, "Folder for what differs")->capture_default_str();
  app.add_flag("--verbose", arguments.verbose, "Also says why a program was not compared");
  CLI11_PARSE(app, argc, argv);
  if (!arguments.file.empty()) return runCase(arguments.file);
  return arguments.only >= 0 ? one(arguments) : fuzz(arguments);
}

}  // namespace remat::fuzz

int main(int argc, char** argv) {
  // Threads of kernels would outnumber the processes' cores. OpenMP reads this when it is loaded.
  if (setenv("OMP_NUM_THREADS", "1", /*replace=*/0) == 0 && std::getenv("REMAT_FUZZ") == nullptr) {
    setenv("REMAT_FUZZ", "1", 1);
    execv(argv[0], argv);
  }
  try {
    return remat::fuzz::runFuzz(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: %s\n", error.what());
    return 1;
  }
}
