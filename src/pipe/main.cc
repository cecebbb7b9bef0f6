// ferry-piped: the driver of the pipe (docs/pipe.md).

#include <signal.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/command_line.h"
#include "base/failure.h"
#include "base/log.h"
#include "pipe/admin.h"
#include "pipe/engine/engines.h"
#include "pipe/service.h"

namespace {

using namespace ferry;
using namespace ferry::pipe;

// Read where it is there.
constexpr char kRules[] = "/etc/ferry/pipe.rules";

struct Options {
  Service::Settings service;
  Pool::Settings pool;
  Driver::Settings driver;
  std::size_t reserve = 0;
  std::string engine = "software", rules = kRules;
  int patience = 20;
  unsigned away = 60;
};

// Of all that uses it.
struct Log {
  Log() { log::begin(); }
  Log(const Log&) = delete;
  ~Log() { log::end(); }
};

std::optional<int> parse(int argc, char** argv, Options* options) {
  CLI::App app(
      "The driver of Ferry's pipe: programs of this host that use libferry-pipe.so exchange data "
      "by it.",
      "ferry-piped");
  app.footer("Options that are sizes take K, M and G. docs/pipe.md has more.");
  add_version(app, FERRY_RELEASE);
  const CLI::AsSizeValue size(false);
  app.add_option("--socket", options->service.socket, "Where programs come")->capture_default_str();
  app.add_option("--memory", options->pool.limit, "Most memory for all rings and queues (4G)")
      ->transform(size);
  app.add_option("--rules", options->rules,
                 "A file of rules and limits, each as ferry pipe takes it: deny 10.0.0.1 any")
      ->capture_default_str();
  app.add_option("--container-memory", options->driver.container.memory,
                 "Most memory for rings and queues of one container (1G)")
      ->transform(size);
  app.add_option("--user-memory", options->driver.user.memory,
                 "Most memory for one user, in all containers; root has no such limit (2G)")
      ->transform(size);
  app.add_option("--reserve", options->reserve,
                 "Reserve huge pages of this size at the start; needs root (none)")
      ->transform(size);
  app.add_flag("!--no-huge-pages", options->pool.huge_pages, "Use ordinary pages only");
  app.add_option("--engine", options->engine, "What copies")
      ->check(CLI::IsMember(engine_names()))
      ->capture_default_str();
  app.add_option("--threads", options->service.threads, "How many threads copy")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--processors", options->service.processors,
                 "Where they run, one after the other: 2,3 (wherever there is room)")
      ->delimiter(',');
  app.add_option("--patience", options->patience,
                 "For how many microseconds a thread looks for more before it sleeps")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "--away", options->away,
         "For how many seconds programs wait for the next ferry-piped when this one has ended")
      ->check(CLI::Range(0, 86'400))
      ->capture_default_str();
  return parse_command_line(app, argc, argv);
}

int run(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, &options)) return *status;
  const Log log_of_this_run;
  options.service.patience = std::chrono::microseconds(options.patience);
  options.driver.queues = std::max(1U, std::thread::hardware_concurrency());
  // Two descriptors for each socket.
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  // Before the first thread: they all inherit it.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  if (options.reserve != 0 && !reserve_huge_pages(options.reserve)) {
    log::warn("the kernel has fewer huge pages than --reserve asks for; ordinary pages do as well");
  }
  options.driver.away = std::chrono::seconds(options.away);
  options.driver.records = std::make_shared<Records>(options.service.socket + ".state");
  const int given = ::sd_listen_fds(1);
  for (int number = 0; number < given; ++number) {
    options.service.listening.push_back(SD_LISTEN_FDS_START + number);
  }
  Pool pool(options.pool);
  const auto engine = make_engine(options.engine);
  Driver driver(options.driver, pool, *engine);
  if (options.rules != kRules || ::access(kRules, F_OK) == 0) read_rules(options.rules, driver);
  Service service(options.service, driver, *engine);
  std::thread waits_for_the_end([&] {
    int signal = 0;
    ::sigwait(&ends, &signal);
    service.stop();
  });
  log::info("ferry-piped {} serves at {}, with the {} engine", FERRY_RELEASE,
            options.service.socket, engine->name());
  ::sd_notify(1, "READY=1");
  service.run();
  waits_for_the_end.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ferry-piped: %s\n", error.what());
    return 1;
  }
}
