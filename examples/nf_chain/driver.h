#pragma once

#include <string>
#include <vector>

#include "../carriers/channel.h"
#include "request.h"
#include "traffic.h"

namespace nf_chain {

struct Outcome {
  double seconds = 0, driver_processor_seconds = 0;
  std::size_t answered = 0;
  std::vector<std::size_t> of_worker;
  std::vector<Report> functions;
};

// Sends all requests to the first function at `to`, and takes them from `workers` that connect to `at`. One thread
// sends, and this one receives and checks.
Outcome drive(carriers::Carrier& carrier, const std::string& at, const std::string& to,
              std::size_t workers, const Traffic& traffic);

}  // namespace nf_chain
