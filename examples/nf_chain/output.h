#pragma once

#include <cstring>

#include "../carriers/channel.h"
#include "request.h"

namespace nf_chain {

// The way to the next function. What is written goes when it is flushed, or does not fit together any more.
class Output {
 public:
  explicit Output(carriers::Channel& channel) : channel_(&channel) {}

  // Room for a message, in the memory that it is sent from.
  char* room(std::size_t size) {
    if (used_ + size > kBatch) flush();
    if (used_ == 0) buffer_ = static_cast<char*>(channel_->buffer());
    char* const room = buffer_ + used_;
    used_ += size;
    return room;
  }
  void copy(const Header& header, const char* payload) {
    char* const to = room(header.size);
    std::memcpy(to, &header, sizeof header);
    std::memcpy(to + sizeof header, payload, header.size - sizeof header);
  }
  void flush() {
    if (used_ > 0) channel_->send(used_);
    used_ = 0;
  }
  // Takes the last message back, which is of `size` bytes.
  void take_back(std::size_t size) { used_ -= size; }

 private:
  carriers::Channel* channel_;
  char* buffer_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace nf_chain
