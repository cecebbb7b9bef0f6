#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace ferry::pipe {

// The RBT: how much of a receive ring is free, being written, or to be read. All counts are of the
// whole stream, from its beginning; a position in the ring is a count modulo the ring's size.
//
//   read() <= received() <= reserved() <= read() + size
class ReceiveTable {
 public:
  // `received` and `read`: by another ring or driver, before.
  explicit ReceiveTable(std::size_t ring_size = 0, std::uint64_t received = 0,
                        std::uint64_t read = 0)
      : ring_size_(ring_size), reserved_(received), received_(received), read_(read) {}

  // What may be written without a gap at reserved(): up to where the ring ends, or is full.
  std::uint32_t room(std::uint32_t most) const;
  // The next `length` bytes, at most room(). Gives the number of the piece.
  std::uint16_t reserve(std::uint32_t length);
  std::uint64_t position(std::uint64_t count) const { return count % ring_size_; }
  // Engines may write pieces in any order. received() grows with the oldest ones. False: no such
  // piece is being written.
  bool written(std::uint16_t piece);
  // False: the program says that it has read what is not there. What it has said in another queue before
  // may come later.
  bool set_read(std::uint64_t read);

  std::uint64_t reserved() const { return reserved_; }
  std::uint64_t received() const { return received_; }
  std::uint64_t read() const { return read_; }
  std::size_t pieces() const { return pieces_.size(); }

 private:
  struct Piece {
    std::uint32_t length;
    bool written;
  };
  std::size_t ring_size_;
  std::uint64_t reserved_, received_, read_;
  std::deque<Piece> pieces_;  // being written; the first has the number first_
  std::uint16_t first_ = 0;
};

}  // namespace ferry::pipe
