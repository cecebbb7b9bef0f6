#include "transport/fake_host.h"

#include <algorithm>
#include <cstring>

namespace ferry::transport::test {

std::int64_t FakeHost::accounted() const {
  std::int64_t sum = 0;
  for (const auto& [endpoint, bytes] : accounts_) sum += bytes < 0 ? -bytes : bytes;
  return sum;
}

MemoryResult FakeHost::access(std::uint64_t address, std::uint64_t length) const {
  if (address > memory_.size() || length > memory_.size() - address) {
    return MemoryResult::kAccessError;
  }
  const auto fault = faulty.lower_bound(address);
  return fault != faulty.end() && *fault < address + length ? MemoryResult::kFault
                                                            : MemoryResult::kOk;
}

EmitResult FakeHost::emit(const OutPacket& packet) {
  if (port_is_full()) return EmitResult::kNoRoom;
  hop_limit = packet.hop_limit;
  std::vector<std::byte> payload;
  switch (packet.source) {
    case OutPacket::Source::kNone: break;
    case OutPacket::Source::kBytes:
      payload.assign(packet.bytes, packet.bytes + packet.length);
      break;
    case OutPacket::Source::kRegion:
      read_with_srq = selected_srq_;
      if (refuse_region || packet.rkey != kRkey ||
          access(packet.address, packet.length) != MemoryResult::kOk) {
        return EmitResult::kRemoteError;
      }
      payload.assign(memory_.data() + packet.address,
                     memory_.data() + packet.address + packet.length);
      break;
    case OutPacket::Source::kSges: {
      if (refuse_local) return EmitResult::kLocalError;
      std::uint64_t skip = packet.offset;
      std::uint64_t left = packet.length;
      for (const Sge& sge : packet.sges) {
        const std::uint64_t begin = std::min<std::uint64_t>(skip, sge.length);
        const std::uint64_t take = std::min<std::uint64_t>(sge.length - begin, left);
        if (take > 0 &&
            (sge.lkey != kLkey || access(sge.address + begin, take) != MemoryResult::kOk)) {
          return EmitResult::kLocalError;
        }
        if (take > 0) {
          payload.insert(payload.end(), memory_.data() + sge.address + begin,
                         memory_.data() + sge.address + begin + take);
        }
        skip -= begin;
        left -= take;
      }
      break;
    }
  }
  if (payload.size() != packet.length)
    std::abort();  // the transport asked for bytes that are not there
  Datagram datagram{local, packet.to, {}};
  const std::size_t size = wire::packet_size(packet.header.opcode, payload.size());
  datagram.bytes.resize(size);
  wire::encode_header(packet.header, payload.size(), datagram.bytes);
  if (!payload.empty()) {
    std::memcpy(datagram.bytes.data() + wire::header_size(packet.header.opcode), payload.data(),
                payload.size());
  }
  send(std::move(datagram));
  return EmitResult::kOk;
}

bool FakeHost::take_receive(ReceiveRequest* out) {
  if (receives_.empty()) return false;
  *out = receives_.front();
  receives_.pop_front();
  return true;
}

MemoryResult FakeHost::scatter(std::span<const Sge> sges, std::uint64_t offset,
                               std::span<const std::byte> data) {
  if (refuse_local) return MemoryResult::kAccessError;
  for (const Sge& sge : sges) {
    const std::uint64_t begin = std::min<std::uint64_t>(offset, sge.length);
    const std::uint64_t take = std::min<std::uint64_t>(sge.length - begin, data.size());
    offset -= begin;
    if (take == 0) continue;
    if (sge.lkey != kLkey) return MemoryResult::kAccessError;
    const MemoryResult result = access(sge.address + begin, take);
    if (result != MemoryResult::kOk) return result;
    std::memcpy(memory_.data() + sge.address + begin, data.data(), take);
    data = data.subspan(take);
  }
  if (!data.empty()) std::abort();  // the transport checks that it fits
  return MemoryResult::kOk;
}

MemoryResult FakeHost::check_region(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                                    std::uint32_t) {
  checked_with_srq = selected_srq_;
  if (rkey != kRkey || refuse_region) return MemoryResult::kAccessError;
  return address > memory_.size() || length > memory_.size() - address ? MemoryResult::kAccessError
                                                                       : MemoryResult::kOk;
}

MemoryResult FakeHost::write_region(std::uint32_t rkey, std::uint64_t address,
                                    std::span<const std::byte> data) {
  if (rkey != kRkey || refuse_region) return MemoryResult::kAccessError;
  const MemoryResult result = access(address, data.size());
  if (result == MemoryResult::kOk) std::memcpy(memory_.data() + address, data.data(), data.size());
  return result;
}

MemoryResult FakeHost::atomic(Operation operation, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t compare_add, std::uint64_t swap,
                              std::uint64_t* original) {
  if (rkey != kRkey || refuse_region) return MemoryResult::kAccessError;
  const MemoryResult result = access(address, sizeof *original);
  if (result != MemoryResult::kOk) return result;
  ++atomics;
  std::memcpy(original, memory_.data() + address, sizeof *original);
  std::uint64_t after = *original;
  if (operation == Operation::kFetchAdd) {
    after += compare_add;
  } else if (after == compare_add) {
    after = swap;
  }
  std::memcpy(memory_.data() + address, &after, sizeof after);
  return MemoryResult::kOk;
}

MemoryResult FakeHost::write_atomic(std::uint32_t rkey, std::uint64_t address,
                                    std::span<const std::byte, 8> data) {
  return write_region(rkey, address, data);
}

MemoryResult FakeHost::flush_region(const wire::Feth& what, std::uint32_t rkey,
                                    std::uint64_t address, std::uint64_t length) {
  if (rkey != kRkey || refuse_region) return MemoryResult::kAccessError;
  const bool whole = what.selectivity == wire::Feth::kWholeRegion;
  const MemoryResult result = whole ? MemoryResult::kOk : access(address, length);
  if (result == MemoryResult::kOk) memory_flushes.push_back(what);
  return result;
}

bool FakeHost::invalidate(std::uint32_t rkey, bool remote) {
  invalidations.push_back({rkey, remote});
  return invalidatable.erase(rkey) == 1;
}

Status FakeHost::bind_window(const WindowBinding& binding) {
  binds.push_back(binding);
  return bind_status;
}

Host::SrqResult FakeHost::take_receive_of(std::uint32_t srqn, ReceiveRequest* out) {
  if (!srqs.contains(srqn)) return SrqResult::kInvalid;
  std::deque<ReceiveRequest>& receives = srq_receives_[srqn];
  if (receives.empty()) return SrqResult::kEmpty;
  *out = receives.front();
  receives.pop_front();
  return SrqResult::kOk;
}

bool FakeHost::select_srq(std::uint32_t srqn) {
  selected_srq_ = srqn;
  return srqs.contains(srqn);
}

void FakeHost::flush_receives() {
  ++flushes;
  for (const ReceiveRequest& receive : receives_) {
    received.push_back({.wr_id = receive.wr_id, .status = Status::kFlush});
  }
  receives_.clear();
}

std::int64_t FakeHost::window(const port::Endpoint& to) const {
  const auto account = accounts_.find(to);
  return window_bytes - (account == accounts_.end() ? 0 : account->second);
}

void FakeHost::account(const port::Endpoint& to, std::int64_t bytes) {
  accounts_[to] += bytes;
  if (accounts_[to] < 0) ever_negative_ = true;
}

}  // namespace ferry::transport::test
