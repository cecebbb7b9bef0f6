#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "host/image/image_stream.h"
#include "host/peers/messages.h"
#include "host/standin/stopped_tree.h"

namespace ferry::host {

// When each step of a move was over. A move without a commit of its own has that of `restored`.
struct StepEnds {
  using Time = std::chrono::steady_clock::time_point;
  Time stopped, dumped, transferred, restored, committed, resumed;
};

// What the report of every move has; `rdma_ns_there`: what its processes took to resume.
v1::MoveReport report_of(const std::string& program, const std::string& from, const std::string& to,
                         const StoppedTree::Timing& timing, const StepEnds& ends,
                         std::uint64_t rdma_ns_there, const ImageTotals& image);

}  // namespace ferry::host
