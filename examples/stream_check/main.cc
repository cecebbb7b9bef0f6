#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "failure.h"
#include "memory.h"
#include "options.h"
#include "report.h"
#include "session.h"

namespace {

volatile std::sig_atomic_t g_signals = 0;

void count_signal(int) {
  g_signals = g_signals + 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace stream_check;
  try {
    bool help = false;
    const Options options = parse_options(argc, argv, &help);
    if (help) {
      std::fputs(usage(), stdout);
      return 0;
    }
    Session session(options, &g_signals);
    std::unique_ptr<Memory> memory;
    if (options.memory > 0) {
      memory = std::make_unique<Memory>(options.memory, options.rewrite, options.storm);
    }
    session.set_up();
    // From here on a signal ends the run with the report; before, there is nothing to report.
    struct sigaction action {};
    action.sa_handler = count_signal;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    Outcome outcome = session.run();
    if (memory) outcome.pages_corrupted = memory->count_corrupted();
    (options.json ? print_json : print_text)(session, outcome);
    const bool reported = std::fflush(stdout) == 0;
    session.stay();
    return reported && passed(session, outcome) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stream_check: %s\n", error.what());
    return 2;
  }
}
