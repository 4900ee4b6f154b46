#include "tests/fuzz/workers.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace remat::fuzz {
namespace {

constexpr uint64_t kBatch = 50;  ///< seeds a process

struct Worker {
  pid_t pid = -1;
  int fd = -1;
  uint64_t next = 0;  ///< the seed it is at
  uint64_t end = 0;
  std::string buffer;
};

std::string lineOf(const Report& report) {
  std::string detail = report.detail;
  for (char& c : detail) c = c == '\n' ? ' ' : c;
  std::ostringstream line;
  line << report.seed << ' ' << report.verdict << ' ' << report.replayed << ' ' << detail << '\n';
  return line.str();
}

Report parsed(const std::string& line) {
  Report report;
  std::istringstream in(line);
  in >> report.seed >> report.verdict >> report.replayed;
  std::getline(in >> std::ws, report.detail);
  return report;
}

Worker start(uint64_t first, uint64_t end, const std::function<Report(uint64_t)>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  Worker worker{-1, ends[0], first, end, {}};
  std::fflush(nullptr);
  worker.pid = fork();
  if (worker.pid < 0) throw std::runtime_error("no process");
  if (worker.pid == 0) {
    close(ends[0]);
    for (uint64_t seed = first; seed < end; ++seed) {
      const std::string line = lineOf(work(seed));
      if (write(ends[1], line.data(), line.size()) != static_cast<ssize_t>(line.size())) break;
    }
    _exit(0);
  }
  close(ends[1]);
  return worker;
}

/// Takes what the worker wrote; false where it has ended.
bool take(Worker& worker, const std::function<void(const Report&)>& report) {
  char bytes[4096];
  const ssize_t count = read(worker.fd, bytes, sizeof(bytes));
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) return false;
  worker.buffer.append(bytes, static_cast<size_t>(count));
  for (size_t end = worker.buffer.find('\n'); end != std::string::npos;
       end = worker.buffer.find('\n')) {
    const Report one = parsed(worker.buffer.substr(0, end));
    worker.buffer.erase(0, end + 1);
    worker.next = one.seed + 1;
    report(one);
  }
  return true;
}

/// Waits for a worker that has ended; what it died of, if it did.
std::string causeOfDeath(const Worker& worker) {
  close(worker.fd);
  int status = 0;
  waitpid(worker.pid, &status, 0);
  if (WIFSIGNALED(status)) return std::string("signal ") + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "exit " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Report isolated(uint64_t seed, const std::function<Report(uint64_t)>& work) {
  Report result;
  Worker worker = start(seed, seed + 1, work);
  while (take(worker, [&](const Report& report) { result = report; })) {
  }
  const std::string cause = causeOfDeath(worker);
  if (worker.next == seed) {
    result.seed = seed;
    result.crashed = true;
    result.detail = cause;
  }
  return result;
}

void runWorkers(uint64_t first, int jobs, const std::function<Report(uint64_t)>& work,
                const std::function<bool(const Report&)>& done) {
  uint64_t next = first;
  bool finished = false;
  std::vector<Worker> workers;
  const auto replace = [&](Worker& worker, uint64_t begin, uint64_t end) {
    worker = start(begin, end, work);
  };
  for (int i = 0; i < jobs; ++i, next += kBatch)
    workers.push_back(start(next, next + kBatch, work));
  while (!finished) {
    std::vector<pollfd> waiting;
    for (const Worker& worker : workers) waiting.push_back({worker.fd, POLLIN, 0});
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < workers.size() && !finished; ++i) {
      if (waiting[i].revents == 0) continue;
      Worker& worker = workers[i];
      if (take(worker, [&](const Report& one) { finished = done(one) || finished; })) continue;
      const std::string cause = causeOfDeath(worker);
      if (worker.next < worker.end) {
        finished = done({worker.next, true, 0, 0, cause}) || finished;
        ++worker.next;
      }
      if (worker.next < worker.end) {
        replace(worker, worker.next, worker.end);
      } else {
        replace(worker, next, next + kBatch);
        next += kBatch;
      }
    }
  }
  for (const Worker& worker : workers) {
    kill(worker.pid, SIGKILL);
    causeOfDeath(worker);
  }
}

}  // namespace remat::fuzz
