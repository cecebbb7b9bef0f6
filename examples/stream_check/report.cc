#include "report.h"

#include <cstdio>
#include <string>

namespace stream_check {
namespace {

using ull = unsigned long long;

struct Totals {
  Counts found;  // both directions
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t bytes_received = 0;
};

Totals totals(const Outcome& outcome) {
  Totals all;
  for (size_t op = 0; op < kOps; ++op) {
    all.found += outcome.here[op];
    all.found += outcome.there[op];
    if (static_cast<Op>(op) == Op::kControl) continue;
    if (static_cast<Op>(op) != Op::kRead) all.sent += outcome.sent[op];
    all.received += outcome.here[op].received;
    all.bytes_received += outcome.here[op].bytes;
  }
  return all;
}

double per_second(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

void print_counts(const Counts& counts) {
  std::printf(
      "\"received\": %llu, \"lost\": %llu, \"duplicated\": %llu, \"out_of_order\": %llu, "
      "\"corrupted\": %llu",
      ull{counts.received}, ull{counts.lost}, ull{counts.duplicated}, ull{counts.out_of_order},
      ull{counts.corrupted});
}

std::vector<std::string> fault_texts(const Session& session) {
  std::vector<std::string> texts = session.request_faults().log.first();
  const auto& messages = session.message_faults().first();
  texts.insert(texts.end(), messages.begin(), messages.end());
  return texts;
}

double seconds_of(int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}
double milliseconds_of(int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

}  // namespace

bool passed(const Session& session, const Outcome& outcome) {
  return outcome.compared && outcome.pages_corrupted == 0 && totals(outcome).found.clean() &&
         session.request_faults().total() == 0 && session.message_faults().total() == 0;
}

void print_json(const Session& session, const Outcome& outcome) {
  const Options& options = session.options();
  const Totals all = totals(outcome);
  const RequestFaults& faults = session.request_faults();
  std::printf("{\"role\": \"%s\", \"device\": %s, \"qps\": %u, \"size\": %u, \"mtu\": %u,\n",
              options.host.empty() ? "server" : "client", quoted(session.device().name()).c_str(),
              options.qps, options.max_length, session.mtu());
  std::printf(
      " \"mode\": \"%s\", \"ended_by\": \"%s\", \"seconds\": %.3f, \"compared\": %s, "
      "\"result\": \"%s\",\n",
      options.events ? "events" : "poll", outcome.ended_by.c_str(), outcome.seconds,
      outcome.compared ? "true" : "false", passed(session, outcome) ? "ok" : "failed");
  std::printf(" \"operations\": {");
  for (size_t op = 0; op < kOps; ++op) {
    std::printf("%s\n  \"%s\": {\"sent\": %llu, ", op == 0 ? "" : ",", op_name(static_cast<Op>(op)),
                ull{outcome.sent[op]});
    print_counts(outcome.here[op]);
    std::printf("}");
  }
  std::printf("},\n \"peer\": {");
  for (size_t op = 0; op < kOps; ++op) {
    std::printf("%s\n  \"%s\": {", op == 0 ? "" : ",", op_name(static_cast<Op>(op)));
    print_counts(outcome.there[op]);
    std::printf("}");
  }
  std::printf(
      "},\n \"messages_lost\": %llu, \"messages_duplicated\": %llu, "
      "\"messages_out_of_order\": %llu, \"messages_corrupted\": %llu,\n",
      ull{all.found.lost}, ull{all.found.duplicated}, ull{all.found.out_of_order},
      ull{all.found.corrupted});
  if (options.memory > 0)
    std::printf(" \"pages_corrupted\": %llu,\n", ull{outcome.pages_corrupted});
  std::printf(
      " \"messages_sent\": %llu, \"messages_received\": %llu, \"bytes_sent\": %llu, "
      "\"bytes_received\": %llu,\n",
      ull{all.sent}, ull{all.received}, ull{outcome.bytes_sent}, ull{all.bytes_received});
  std::printf(
      " \"messages_per_second\": %.1f, \"bytes_per_second\": %.1f, \"completions\": %llu,\n",
      per_second(all.sent + all.received, outcome.seconds),
      per_second(outcome.bytes_sent + all.bytes_received, outcome.seconds),
      ull{outcome.completions});
  std::printf(" \"largest_gap_ms\": %.3f, \"clock_steps\": %llu, \"largest_gaps\": [",
              milliseconds_of(session.gaps().largest_ns()), ull{session.gaps().clock_steps()});
  const char* separator = "";
  for (const Gap& gap : session.gaps().largest()) {
    std::printf("%s\n  {\"at\": %.6f, \"ms\": %.3f}", separator, seconds_of(gap.begin_realtime_ns),
                milliseconds_of(gap.length_ns));
    separator = ",";
  }
  std::printf(
      "],\n \"error_completions\": %llu, \"completion_faults\": %llu, "
      "\"call_errors\": %llu, \"faults\": [",
      ull{faults.error_completions}, ull{faults.completion_faults}, ull{faults.call_errors});
  separator = "";
  for (const std::string& text : fault_texts(session)) {
    std::printf("%s\n  %s", separator, quoted(text).c_str());
    separator = ",";
  }
  std::printf("]}\n");
}

void print_text(const Session& session, const Outcome& outcome) {
  const Options& options = session.options();
  const Totals all = totals(outcome);
  const RequestFaults& faults = session.request_faults();
  std::printf(
      "%s on %s: %u QPs, messages of 64 to %u bytes, MTU %u, %s; ended by %s after %.1f s\n",
      options.host.empty() ? "server" : "client", session.device().name(), options.qps,
      options.max_length, session.mtu(), options.events ? "events" : "polling",
      outcome.ended_by.c_str(), outcome.seconds);
  std::printf("%-16s %12s %12s %8s %8s %10s %9s\n", "", "sent", "received", "lost", "doubled",
              "disordered", "corrupted");
  const auto row = [](const std::string& name, const std::string& sent, const Counts& counts) {
    std::printf("%-16s %12s %12llu %8llu %8llu %10llu %9llu\n", name.c_str(), sent.c_str(),
                ull{counts.received}, ull{counts.lost}, ull{counts.duplicated},
                ull{counts.out_of_order}, ull{counts.corrupted});
  };
  for (size_t op = 0; op < kOps; ++op) {
    row(op_name(static_cast<Op>(op)), std::to_string(outcome.sent[op]), outcome.here[op]);
  }
  for (size_t op = 0; op < kOps && outcome.compared; ++op) {
    row(std::string("peer's ") + op_name(static_cast<Op>(op)), "", outcome.there[op]);
  }
  std::printf("%.0f messages/s, %.1f MB/s, both ways; %llu completions\n",
              per_second(all.sent + all.received, outcome.seconds),
              per_second(outcome.bytes_sent + all.bytes_received, outcome.seconds) / 1e6,
              ull{outcome.completions});
  std::printf("largest gap between two completions: %.3f ms\n",
              milliseconds_of(session.gaps().largest_ns()));
  for (const Gap& gap : session.gaps().largest()) {
    std::printf("  %.3f ms at %.6f\n", milliseconds_of(gap.length_ns),
                seconds_of(gap.begin_realtime_ns));
  }
  if (options.memory > 0) {
    std::printf("memory: %llu MiB, %llu pages corrupted\n", ull{options.memory},
                ull{outcome.pages_corrupted});
  }
  std::printf("requests: %llu with error status, %llu completion faults, %llu failed calls\n",
              ull{faults.error_completions}, ull{faults.completion_faults},
              ull{faults.call_errors});
  for (const std::string& text : fault_texts(session)) std::printf("  %s\n", text.c_str());
  std::printf("%s\n", passed(session, outcome) ? "OK: everything arrived once, in order and intact"
                                               : "FAILED");
}

}  // namespace stream_check
