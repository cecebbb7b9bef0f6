#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "host/image/image_stream.h"
#include "host/peers/messages.h"
#include "host/standin/stopped_tree.h"

namespace ferry::host {

// When each step of a move ended. A move without a commit of its own has the time of `restored`
// there.
struct StepEnds {
  using Time = std::chrono::steady_clock::time_point;
  Time stopped, dumped, transferred, restored, committed, resumed;
};

// Fills in what the reports of all moves have. `rdma_ns_there`: how long its processes took to
// resume.
v1::MoveReport report_of(const std::string& program, const std::string& from, const std::string& to,
                         const StoppedTree::Timing& timing, const StepEnds& ends,
                         std::uint64_t rdma_ns_there, const ImageTotals& image);

}  // namespace ferry::host
