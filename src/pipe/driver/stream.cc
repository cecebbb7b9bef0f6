#include "pipe/driver/stream.h"

#include <algorithm>
#include <utility>

namespace ferry::pipe {

Stream::State Stream::state() const {
  const std::lock_guard lock(mutex_);
  State state;
  state.done = done_;
  state.received = failed_at_.value_or(table_.received());
  state.ended = ended_ && sends_.empty() && table_.pieces() == 0;
  state.reset = reset_;
  state.read_closed = read_closed_;
  return state;
}

void Stream::set_sender(SocketName name, std::uint16_t container) {
  const std::lock_guard lock(mutex_);
  sender_ = std::move(name);
  container_ = container;
}

void Stream::set_send_ring(std::shared_ptr<Ring> ring) {
  const std::lock_guard lock(mutex_);
  blocks_ = SendTable(ring->size());
  from_ = std::move(ring);
  to_be_said_ = said();  // it is new, and has no sends that this driver has not heard of
}

int Stream::allocate(std::size_t size, std::uint64_t* offset) {
  const std::lock_guard lock(mutex_);
  const int block = blocks_.allocate(size);
  if (block >= 0) *offset = blocks_.block(static_cast<std::uint32_t>(block)).offset;
  return block;
}

bool Stream::free(std::uint32_t block) {
  const std::lock_guard lock(mutex_);
  return blocks_.free(block);
}

bool Stream::restore_block(std::uint32_t block, std::uint64_t offset, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  return blocks_.restore(block, offset, size);
}

bool Stream::send(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (entry.destination != said() + 1) return true;
  if (reset_ || read_closed_) {  // which the program does not know yet
    ++done_;
    return true;
  }
  if (ended_ || sends_.size() + sent_.size() >= kMostSends || entry.table != Table::kSend ||
      !blocks_.begin(entry.sequence, entry.source, length_of(entry))) {
    break_off();
    return false;
  }
  const auto skipped =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(skipped_, length_of(entry)));
  skipped_ -= skipped;
  if (skipped == length_of(entry)) {
    blocks_.end(entry.sequence);
    ++done_;
  } else {
    sends_.push_back({entry.source + skipped, length_of(entry) - skipped, entry.sequence});
  }
  return true;
}

void Stream::end(bool at_once) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (at_once && (!sends_.empty() || said() < to_be_said_)) break_off();
  let_go();
}

void Stream::set_receiver(SocketName name) {
  const std::lock_guard lock(mutex_);
  receiver_ = std::move(name);
}

bool Stream::set_receive_ring(std::shared_ptr<Ring> ring, std::uint64_t read) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t received = table_.received();
  if (read > received || received - read > ring->size()) return false;
  table_ = ReceiveTable(ring->size(), received, read);
  if (!read_closed_) to_ = std::move(ring);
  return true;
}

bool Stream::set_read(std::uint64_t read) {
  const std::lock_guard lock(mutex_);
  if (table_.set_read(read)) return true;
  break_off();
  return false;
}

void Stream::close_reading() {
  const std::lock_guard lock(mutex_);
  read_closed_ = true;
  if (record_ != nullptr) record_->read_closed = 1;
  drop_sends();
  let_go();
}

void Stream::reset() {
  const std::lock_guard lock(mutex_);
  break_off();
}

void Stream::set_record(StreamRecord* record) {
  const std::lock_guard lock(mutex_);
  record_ = record;
}

void Stream::restore() {
  const std::lock_guard lock(mutex_);
  table_ = ReceiveTable(0, record_->received.load());
  reset_ = record_->reset != 0;
  read_closed_ = record_->read_closed != 0;
  if (record_->ended == 0) to_be_said_ = ~std::uint64_t{0};
}

bool Stream::take_sender(Stream& other, std::uint64_t done, std::uint64_t bytes,
                         std::uint32_t following) {
  const std::scoped_lock lock(mutex_, other.mutex_);
  // Of what nobody gets, more is done than was received.
  const bool is_dropped = reset_ || read_closed_;
  if (following > kMostSends || (bytes > table_.received() && !is_dropped) ||
      done > ~std::uint64_t{0} - following) {
    return false;
  }
  sender_ = std::move(other.sender_);
  container_ = other.container_;
  from_ = std::move(other.from_);
  blocks_ = std::move(other.blocks_);
  if (is_dropped) {
    done_ = done + following;
    return true;
  }
  done_ = done;
  to_be_said_ = done + following;
  skipped_ = table_.received() - bytes;
  return true;
}

std::optional<Entry> Stream::next(std::uint32_t longest) {
  const std::lock_guard lock(mutex_);
  if (!can_move()) return std::nullopt;
  const std::uint32_t most = table_.room(longest);
  if (most == 0) return std::nullopt;
  const std::uint64_t source = sends_.front().offset;
  std::uint32_t length = 0;
  // Sends that lie one behind the other are one copy.
  while (length < most && !sends_.empty() && sends_.front().offset == source + length) {
    Send& send = sends_.front();
    const std::uint32_t part = std::min(send.left, most - length);
    length += part;
    send.offset += part;
    send.left -= part;
    if (send.left != 0) break;
    sent_.push_back({table_.reserved() + length, send.block});
    sends_.pop_front();
  }
  Entry entry;
  entry.type = EntryType::kSend;
  entry.source = reinterpret_cast<std::uint64_t>(from_->base() + source);
  entry.destination =
      reinterpret_cast<std::uint64_t>(to_->base() + table_.position(table_.reserved()));
  entry.length = encoded_length(length);
  entry.container = container_;
  entry.sequence = table_.reserve(length);
  return entry;
}

void Stream::complete(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t before = table_.received();
  if (!table_.written(entry.sequence)) return;
  if (entry.type != EntryType::kCompleted) {
    if (!failed_at_) failed_at_ = before;
    break_off();
  }
  if (record_ != nullptr) {
    record_->received.store(failed_at_.value_or(table_.received()), std::memory_order_release);
  }
  while (!sent_.empty() && sent_.front().end <= table_.received()) {
    blocks_.end(sent_.front().block);
    sent_.pop_front();
    ++done_;
  }
  let_go();
}

bool Stream::has_more() const {
  const std::lock_guard lock(mutex_);
  return can_move() && table_.room(1) != 0;
}

bool Stream::is_finished() const {
  const std::lock_guard lock(mutex_);
  return read_closed_ && table_.pieces() == 0;
}

SocketName Stream::sender() const {
  const std::lock_guard lock(mutex_);
  return sender_;
}

SocketName Stream::receiver() const {
  const std::lock_guard lock(mutex_);
  return receiver_;
}

bool Stream::can_move() const {
  return !reset_ && !sends_.empty() && from_ && to_;
}

void Stream::break_off() {
  reset_ = true;
  if (record_ != nullptr) record_->reset = 1;
  drop_sends();
  let_go();
}

void Stream::drop_sends() {
  // What engines have of the first one still counts in sent_, which says when its block is free.
  for (const Send& send : sends_) sent_.push_back({table_.reserved(), send.block});
  sends_.clear();
  if (table_.pieces() != 0) return;
  for (const Sent& sent : sent_) blocks_.end(sent.block);
  done_ += sent_.size();
  sent_.clear();
}

// Gives rings back as soon as nobody will use them.
void Stream::let_go() {
  if (table_.pieces() != 0) return;
  if (ended_ && sends_.empty() && !reset_ && record_ != nullptr) record_->ended = 1;
  if (ended_ && sends_.empty()) from_.reset();
  if (read_closed_) to_.reset();
}

}  // namespace ferry::pipe
