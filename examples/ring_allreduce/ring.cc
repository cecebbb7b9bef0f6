// The ring: what is added up goes once around it, and then the sums go around it once more.
//
// The numbers are taken in pieces of as many messages as there are ranks. So what has come is added up while it is in
// the processor's caches, and the sum is written where the next message is sent from.

#include "ring.h"

#include <algorithm>
#include <cstring>

namespace ring_allreduce {
namespace {

const char* bytes_of(const float* numbers) {
  return reinterpret_cast<const char*>(numbers);
}

// Adds what comes in parts, which may end within a number, to `own`; the sums go to `sums`.
class Sum {
 public:
  Sum(const float* own, char* sums) : own_(own), sums_(sums) {}

  void take(const char* part, std::size_t size) {
    while (size > 0 && (split_size_ > 0 || size < sizeof(float))) {
      split_[split_size_++] = *part++;
      --size;
      if (split_size_ < sizeof(float)) continue;
      add(split_, 1);
      split_size_ = 0;
    }
    const std::size_t count = size / sizeof(float);
    add(part, count);
    const std::size_t used = count * sizeof(float);
    std::memcpy(split_, part + used, size - used);
    split_size_ += size - used;
  }

 private:
  void add(const char* come, std::size_t count) {
    for (std::size_t index = 0; index < count; ++index) {
      float number;
      std::memcpy(&number, come + index * sizeof number, sizeof number);
      number += own_[index];
      std::memcpy(sums_ + index * sizeof number, &number, sizeof number);
    }
    own_ += count;
    sums_ += count * sizeof(float);
  }

  const float* own_;
  char* sums_;
  char split_[sizeof(float)]{};
  std::size_t split_size_ = 0;
};

}  // namespace

Ring::Ring(Neighbours& neighbours, std::size_t rank, std::size_t ranks, std::size_t message)
    : neighbours_(neighbours), rank_(rank), ranks_(ranks), most_(message / sizeof(float)) {}

void Ring::add_up(std::vector<float>& numbers) {
  for (std::size_t at = 0; at < numbers.size(); at += count_) {
    piece_ = numbers.data() + at;
    count_ = std::min(numbers.size() - at, most_ * ranks_);
    add_up_piece();
  }
}

void Ring::add_up_piece() {
  // A rank begins with the part of its own number, and ends with the sum of the one after.
  const char* from = bytes_of(part(rank_).begin);
  for (std::size_t step = 0; step + 1 < ranks_; ++step) {
    const Part out = part(rank_ + ranks_ - step), in = part(rank_ + ranks_ - step - 1);
    const bool is_last = step + 2 == ranks_;
    char* const sums = is_last ? reinterpret_cast<char*>(in.begin) : neighbours_.room();
    Sum sum(in.begin, sums);
    const auto take = [&](const char* some, std::size_t size) { sum.take(some, size); };
    neighbours_.exchange(from, out.count * sizeof(float),
                         {in.count * sizeof(float), nullptr, take});
    from = sums;
  }
  for (std::size_t step = 0; step + 1 < ranks_; ++step) {
    const Part out = part(rank_ + ranks_ + 1 - step), in = part(rank_ + ranks_ - step);
    neighbours_.exchange(bytes_of(out.begin), out.count * sizeof(float),
                         {in.count * sizeof(float), reinterpret_cast<char*>(in.begin), {}});
  }
}

void Ring::meet() {
  char here = 0, others = 0;
  for (std::size_t step = 0; step + 1 < ranks_; ++step) {
    neighbours_.exchange(&here, 1, {1, &others, {}});
  }
}

Ring::Part Ring::part(std::size_t index) const {
  index %= ranks_;
  const std::size_t begin = count_ * index / ranks_, end = count_ * (index + 1) / ranks_;
  return {piece_ + begin, end - begin};
}

}  // namespace ring_allreduce
