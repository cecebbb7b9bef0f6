#pragma once

#include <cstddef>
#include <vector>

#include "neighbours.h"

namespace ring_allreduce {

// One rank of a ring. All ranks call the same functions with as many numbers.
class Ring {
 public:
  // `message`: how many bytes are sent at a time at most.
  Ring(Neighbours& neighbours, std::size_t rank, std::size_t ranks, std::size_t message);

  // Afterwards each number is the sum of all ranks' numbers at its place.
  void add_up(std::vector<float>& numbers);
  // Returns when all ranks have called it.
  void meet();

 private:
  // Part `index` of as many parts of a piece as there are ranks.
  struct Part {
    float* begin;
    std::size_t count;
  };
  Part part(std::size_t index) const;
  void add_up_piece();

  Neighbours& neighbours_;
  const std::size_t rank_, ranks_, most_;
  float* piece_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace ring_allreduce
