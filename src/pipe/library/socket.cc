#include "pipe/library/socket.h"

#include <sys/socket.h>

#include "ferry/pd.h"

namespace ferry::pd {

std::uint32_t Socket::ready() const {
  const Kind now = kind;
  if (now == Kind::kListening) return received != handed ? PD_EPOLLIN : 0;
  if (now == Kind::kEnding) return 0;
  if (now == Kind::kClosed) return PD_EPOLLERR | PD_EPOLLHUP;
  if (now == Kind::kFresh) return PD_EPOLLOUT | PD_EPOLLHUP;  // as TCP has it
  if (now != Kind::kPipe) return 0;                           // the kernel tells
  const std::uint16_t what = flags;
  std::uint32_t events = 0;
  if (received != handed || (what & (pipe::kEnd | pipe::kReset)) != 0) events |= PD_EPOLLIN;
  if (under_way() < kMostSends || (what & (pipe::kReadClosed | pipe::kReset)) != 0) {
    events |= PD_EPOLLOUT;
  }
  if ((what & pipe::kReset) != 0) events |= PD_EPOLLERR | PD_EPOLLHUP;
  if ((what & pipe::kEnd) != 0 && ((what & pipe::kReadClosed) != 0 || write_shut)) {
    events |= PD_EPOLLHUP;
  }
  return events;
}

void Socket::add_block(std::uint64_t offset, const Block& block) {
  for (const auto& [place, before] : freed) {
    const bool meets = place < offset + block.size && offset < place + before.size;
    if (!meets && before.index != block.index) continue;
    // The driver has given it back: its sends are done, of which the program has not heard.
    if (before.last_send > done) done = before.last_send;
  }
  forget_freed();
  blocks.insert_or_assign(offset, block);
}

void Socket::free_block(std::uint64_t offset) {
  const auto block = blocks.extract(offset);
  forget_freed();
  if (block.mapped().last_send > done) freed.insert_or_assign(offset, block.mapped());
}

void Socket::forget_freed() {
  std::erase_if(freed, [&](const auto& each) { return each.second.last_send <= done; });
}

int Socket::descriptor() const {
  const Kind now = kind;
  const bool tells = now == Kind::kListening || now == Kind::kConnecting || now == Kind::kTcp;
  return tells ? tcp.get() : -1;
}

pipe::Entry Socket::entry_of(const Sent& send, std::uint64_t number) const {
  pipe::Entry entry;
  entry.type = pipe::EntryType::kSend;
  entry.source = send.offset;
  entry.destination = number;
  entry.length = pipe::encoded_length(send.length);
  entry.connection = static_cast<std::uint16_t>(id.number);
  entry.table = pipe::Table::kSend;
  entry.sequence = static_cast<std::uint16_t>(send.block);
  entry.generation = id.generation;
  return entry;
}

void Socket::stop_listening() const {
  if (kind == Kind::kListening) ::shutdown(tcp.get(), SHUT_RDWR);
}

void Socket::clear() {
  kind = Kind::kClosed;
  id = {};
  local = peer = {};
  send_ring = {};
  receive_ring = {};
  for (auto& memory : ring_memory) memory.reset();
  wanted_sizes[0] = wanted_sizes[1] = 0;
  backlog = 0;
  joined = false;
  epoch = begun = 0;
  blocks.clear();
  freed.clear();
  log = {};
  sent_bytes = 0;
  patience = kPatience;
  error = 0;
  tcp.reset();
  accepted = nullptr;
  read_shut = write_shut = false;
  sent = handed = done = received = 0;
  given_back = told = last_position = 0;
  generation = 0;
  flags = 0;
}

void Socket::wake_watches() {
  const std::lock_guard lock(watch_mutex);
  for (const auto& watch : watches) watch->wake();
}

}  // namespace ferry::pd
