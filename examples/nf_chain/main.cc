// nf_chain: a chain of network functions, each of which is a program for a container of its own, over TCP, Unix
// sockets or the pipe. A driver sends requests through it, checks what comes out, and measures.
//
//   nf_chain firewall --at WHERE --to BALANCER [--deny NETWORK/PREFIX[:PORT]]...    drops what a rule denies
//   nf_chain balance  --at WHERE --to WORKER,WORKER,...                             chooses a worker for each flow
//   nf_chain decrypt  --at WHERE --to DRIVER [--key KEY]                            a worker: AES-256-GCM by OpenSSL
//   nf_chain drive    --at WHERE --to FIREWALL --workers N [--requests N] [--size BYTES] [--deny RULE] [--key KEY]
//
// All take --over tcp|unix|pipe and --json. WHERE and the like are ADDRESS:PORT, or the path of a Unix socket. They are
// started in any order, and end after one run.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "../carriers/address.h"
#include "../carriers/failure.h"
#include "driver.h"
#include "function.h"

namespace nf_chain {
namespace {

constexpr int kRing = 2 << 20;

struct Options {
  std::string command, over = "pipe", key = std::string(64, '5');
  Place place;
  Rules denied;
  std::size_t workers = 1, requests = 10'000, size = 64;
  bool json = false;
};

[[noreturn]] void explain() {
  std::fputs(
      "Usage: nf_chain firewall|balance|decrypt|drive --at WHERE --to WHERE[,WHERE...] [--over "
      "tcp|unix|pipe] [--json]\n"
      "         firewall, drive: [--deny NETWORK/PREFIX[:PORT]]    decrypt, drive: [--key "
      "HEXADECIMAL]\n"
      "         drive: --workers N [--requests N] [--size BYTES]\n",
      stderr);
  std::exit(2);
}

void check(const Options& options) {
  const auto& [at, to] = options.place;
  const bool is_driver = options.command == "drive";
  const bool known = options.over == "tcp" || options.over == "unix" || options.over == "pipe";
  if (!known || at.empty() || to.empty() || (to.size() > 1 && options.command != "balance"))
    explain();
  if (is_driver &&
      (options.workers == 0 || options.requests == 0 || options.size == 0 ||
       options.size > kMostPayload || options.requests > (std::size_t{1} << 30) / options.size)) {
    explain();
  }
  if (is_driver && options.denied.size() > 1)
    carriers::give_up_plainly("drive makes requests for one --deny only");
  using carriers::is_path;
  const bool by_path = options.over == "unix";
  if (is_path(at) != by_path ||
      std::any_of(to.begin(), to.end(), [&](auto& each) { return is_path(each) != by_path; })) {
    carriers::give_up_plainly(
        "paths in --at and --to are for --over unix, and ADDRESS:PORT for all others");
  }
}

Options parse_options(int argc, char** argv) {
  Options options;
  if (argc < 2) explain();
  options.command = argv[1];
  for (int at = 2; at < argc; ++at) {
    const std::string_view name = argv[at];
    if (name == "--json") {
      options.json = true;
      continue;
    }
    if (++at == argc) explain();
    const auto number = [&] {
      return static_cast<std::size_t>(std::strtoull(argv[at], nullptr, 10));
    };
    if (name == "--over")
      options.over = argv[at];
    else if (name == "--at")
      options.place.at = argv[at];
    else if (name == "--to")
      options.place.to = carriers::split(argv[at]);
    else if (name == "--deny")
      options.denied.push_back(parse_rule(argv[at]));
    else if (name == "--key")
      options.key = argv[at];
    else if (name == "--workers")
      options.workers = number();
    else if (name == "--requests")
      options.requests = number();
    else if (name == "--size")
      options.size = number();
    else
      explain();
  }
  check(options);
  return options;
}

void print(const Report& report, bool json) {
  const char* const format = json ? "{\"function\": \"%s\", \"requests\": %lu, \"passed\": %lu, "
                                    "\"processor_seconds\": %.4f}"
                                  : "%s: %lu requests, %lu passed on, %.3f s of processor time\n";
  std::printf(format, report.function, static_cast<unsigned long>(report.requests),
              static_cast<unsigned long>(report.passed), report.processor_seconds);
}

void print_json(const Options& options, const Outcome& outcome, double functions) {
  std::printf(
      "{\"over\": \"%s\", \"requests\": %zu, \"size\": %zu, \"answered\": %zu, \"dropped\": %zu, "
      "\"seconds\": %.5f, \"processor_seconds\": %.4f, \"driver_processor_seconds\": %.4f, "
      "\"of_worker\": [",
      options.over.c_str(), options.requests, options.size, outcome.answered,
      options.requests - outcome.answered, outcome.seconds, functions,
      outcome.driver_processor_seconds);
  const char* between = "";
  for (const std::size_t count : outcome.of_worker) {
    std::printf("%s%zu", between, count);
    between = ", ";
  }
  std::printf("], \"functions\": [");
  between = "";
  for (const Report& report : outcome.functions) {
    std::fputs(between, stdout);
    print(report, true);
    between = ", ";
  }
  std::puts("]}");
}

void print_text(const Options& options, const Outcome& outcome, double functions) {
  std::printf(
      "%s: %zu requests of %zu bytes in %.2f ms; %zu answered, %zu dropped, as they should be\n"
      "processor time: %.3f s of the functions, %.3f s of the driver\n",
      options.over.c_str(), options.requests, options.size, outcome.seconds * 1e3, outcome.answered,
      options.requests - outcome.answered, functions, outcome.driver_processor_seconds);
  for (const Report& report : outcome.functions) print(report, false);
}

void execute(const Options& options) {
  const auto carrier = options.over == "pipe" ? carriers::make_pipe(kRing, kPatience)
                                              : carriers::make_sockets(true, kPatience);
  if (options.command == "drive") {
    const auto denied = options.denied.empty() ? std::optional<Rule>() : options.denied[0];
    const Traffic traffic(options.requests, options.size, denied, options.key);
    const Outcome outcome =
        drive(*carrier, options.place.at, options.place.to[0], options.workers, traffic);
    double functions = 0;
    for (const Report& report : outcome.functions) functions += report.processor_seconds;
    (options.json ? print_json : print_text)(options, outcome, functions);
    return;
  }
  std::unique_ptr<Function> function;
  if (options.command == "firewall") function = make_firewall(options.denied);
  if (options.command == "balance") function = make_balancer();
  if (options.command == "decrypt") function = make_decryption(options.key);
  if (!function) explain();
  print(run(*function, *carrier, options.place), options.json);
  if (options.json) std::puts("");
}

}  // namespace
}  // namespace nf_chain

int main(int argc, char** argv) {
  nf_chain::execute(nf_chain::parse_options(argc, argv));
  return 0;
}
