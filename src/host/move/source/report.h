#pragma once

#include <chrono>
#include <cstdint>

#include "host/image/image_stream.h"
#include "host/peers/messages.h"
#include "host/standin/stopped_tree.h"

namespace ferry::host {

// When each step of a move ended.
struct StepEnds {
  using Time = std::chrono::steady_clock::time_point;
  Time stopped, dumped, transferred, restored, committed, resumed;
};

// How long what comes before the stop has taken.
struct BeforeStop {
  StepEnds::Time::duration check{}, prepare{};
};

// Gives a report of the steps and of the stop; what was copied ahead and sent again is not in it. Of
// a step that has not ended there is nothing. When the move has failed, resumed is when the program
// went on where it was. `rdma_ns_there`: how long the program's processes took to resume there.
v1::MoveReport report_of(const StoppedTree::Timing& timing, const StepEnds& ends,
                         const ImageTotals& image, std::uint64_t rdma_ns_there);

}  // namespace ferry::host
