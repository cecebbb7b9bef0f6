#include "rnic/engine/requests/receive_queue.h"

#include <algorithm>
#include <new>

namespace ferry::rnic {
namespace {

template <typename T>
T* allocate(std::size_t count) {
  auto* memory = static_cast<T*>(std::calloc(std::max<std::size_t>(count, 1), sizeof(T)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

ReceiveQueue::ReceiveQueue(std::uint32_t entries, std::uint32_t max_sges)
    : entries_(entries),
      max_sges_(max_sges),
      ring_(allocate<Entry>(entries)),
      sges_(allocate<transport::Sge>(std::size_t{entries} * max_sges)) {}

void ReceiveQueue::push(std::uint64_t wr_id, std::span<const transport::Sge> sges) {
  std::uint32_t slot = head_ + count_;
  if (slot >= entries_) slot -= entries_;
  ring_[slot] = {wr_id, static_cast<std::uint8_t>(sges.size())};
  std::ranges::copy(sges, &sges_[std::size_t{slot} * max_sges_]);
  ++count_;
}

void ReceiveQueue::peek(std::uint32_t index, transport::ReceiveRequest* out) const {
  std::uint32_t slot = head_ + index;
  if (slot >= entries_) slot -= entries_;
  out->wr_id = ring_[slot].wr_id;
  const transport::Sge* sges = &sges_[std::size_t{slot} * max_sges_];
  out->sges.assign(sges, sges + ring_[slot].sge_count);
}

bool ReceiveQueue::resize(std::uint32_t entries) {
  if (entries < count_) return false;
  ReceiveQueue resized(entries, max_sges_);
  transport::ReceiveRequest request;
  while (pop(&request)) resized.push(request.wr_id, request.sges);
  *this = std::move(resized);
  return true;
}

bool ReceiveQueue::pop(transport::ReceiveRequest* out) {
  if (count_ == 0) return false;
  peek(0, out);
  if (++head_ == entries_) head_ = 0;
  --count_;
  return true;
}

}  // namespace ferry::rnic
