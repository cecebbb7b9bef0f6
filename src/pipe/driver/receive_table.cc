#include "pipe/driver/receive_table.h"

#include <algorithm>

namespace ferry::pipe {
namespace {

// Far below what tells two pieces of the same number apart.
constexpr std::size_t kMostPieces = 1024;

}  // namespace

std::uint32_t ReceiveTable::room(std::uint32_t most) const {
  if (ring_size_ == 0 || pieces_.size() >= kMostPieces) return 0;
  const std::uint64_t free = ring_size_ - (reserved_ - read_);
  const std::uint64_t to_end = ring_size_ - position(reserved_);
  return static_cast<std::uint32_t>(std::min({free, to_end, std::uint64_t{most}}));
}

std::uint16_t ReceiveTable::reserve(std::uint32_t length) {
  reserved_ += length;
  pieces_.push_back({length, false});
  return static_cast<std::uint16_t>(first_ + pieces_.size() - 1);
}

bool ReceiveTable::written(std::uint16_t piece) {
  const auto index = static_cast<std::uint16_t>(piece - first_);
  if (index >= pieces_.size() || pieces_[index].written) return false;
  pieces_[index].written = true;
  while (!pieces_.empty() && pieces_.front().written) {
    received_ += pieces_.front().length;
    pieces_.pop_front();
    ++first_;
  }
  return true;
}

bool ReceiveTable::set_read(std::uint64_t read) {
  if (read > received_) return false;
  read_ = std::max(read_, read);
  return true;
}

}  // namespace ferry::pipe
