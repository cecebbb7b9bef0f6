#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "host/peers/messages.h"

namespace ferry::host {

// How long a stop will take, beside sending the memory that is left then, by what earlier moves have taken.
struct ExpectedStop {
  std::chrono::duration<double, std::milli> time;
  // By which this was measured; 0: fewer than three are known, and the time is a guess.
  std::size_t moves = 0;
};

// Takes, of the latest moves from this host, those that are most like a move of this program to this host, if they are
// three or more: of the same program to the same host; else of the same program; else also those to the same host; else
// any. Three of four of these were over in that time. Moves of groups do not count: each waits for the others.
ExpectedStop expected_stop(const std::vector<v1::PastMove>& moves, const std::string& program,
                           const std::string& to);

}  // namespace ferry::host
