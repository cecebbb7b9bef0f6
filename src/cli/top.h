#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ferry.pb.h"

namespace ferry::cli {

// What a program or a queue pair counts per second.
struct Rates {
  double sent_packets = 0, received_packets = 0, sent_bytes = 0, received_bytes = 0;
  double retransmitted_packets = 0, timeouts = 0, rnr_naks = 0, dropped = 0;
};

struct QpRates {
  std::string device;
  v1::QueuePair qp;  // as it is now
  Rates rates;
};

struct ProgramRates {
  v1::Program program;  // without its devices
  std::vector<QpRates> qps;
  Rates rates;  // of all its queue pairs
};

// The rates between two answers of ferryd, `now` being given `time` after `before`; programs and their queue pairs with
// the most bytes first. The rates are 0 for queue pairs that were not there before, and for counters that have begun
// anew.
std::vector<ProgramRates> rates_between(const v1::PsReply& before, const v1::PsReply& now,
                                        std::chrono::duration<double> time);

// What `ferry top` prints for people.
std::string top_text(const std::string& host, const std::vector<ProgramRates>& programs);

// Prints the rates again and again; `count`: so often, or until the user ends it if 0. `json`: a
// line for each time. Throws Failure.
int top(std::chrono::milliseconds interval, std::uint32_t count, bool json);

}  // namespace ferry::cli
