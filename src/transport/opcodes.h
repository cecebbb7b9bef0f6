#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/header.h"

// Tells what a request packet is part of. Opcodes here are RC's (wire::as_rc): the other services
// share its operations.
namespace ferry::transport {

enum class RequestKind : std::uint8_t {
  kNone,
  kSend,
  kWrite,
  kRead,
  kAtomic,
  kAtomicWrite,
  kFlush
};

struct RequestShape {
  RequestKind kind = RequestKind::kNone;
  bool begins = false, ends = false;  // a message
};

namespace detail {

inline constexpr std::array<RequestShape, 32> kRequestShapes = [] {
  using wire::Opcode;
  std::array<RequestShape, 32> table{};
  const auto set = [&](Opcode opcode, RequestKind kind, bool begins, bool ends) {
    table[static_cast<std::size_t>(opcode)] = {kind, begins, ends};
  };
  set(Opcode::kRcSendFirst, RequestKind::kSend, true, false);
  set(Opcode::kRcSendMiddle, RequestKind::kSend, false, false);
  set(Opcode::kRcSendLast, RequestKind::kSend, false, true);
  set(Opcode::kRcSendLastImm, RequestKind::kSend, false, true);
  set(Opcode::kRcSendLastInvalidate, RequestKind::kSend, false, true);
  set(Opcode::kRcSendOnly, RequestKind::kSend, true, true);
  set(Opcode::kRcSendOnlyImm, RequestKind::kSend, true, true);
  set(Opcode::kRcSendOnlyInvalidate, RequestKind::kSend, true, true);
  set(Opcode::kRcWriteFirst, RequestKind::kWrite, true, false);
  set(Opcode::kRcWriteMiddle, RequestKind::kWrite, false, false);
  set(Opcode::kRcWriteLast, RequestKind::kWrite, false, true);
  set(Opcode::kRcWriteLastImm, RequestKind::kWrite, false, true);
  set(Opcode::kRcWriteOnly, RequestKind::kWrite, true, true);
  set(Opcode::kRcWriteOnlyImm, RequestKind::kWrite, true, true);
  set(Opcode::kRcReadRequest, RequestKind::kRead, true, true);
  set(Opcode::kRcCompareSwap, RequestKind::kAtomic, true, true);
  set(Opcode::kRcFetchAdd, RequestKind::kAtomic, true, true);
  set(Opcode::kRcAtomicWrite, RequestKind::kAtomicWrite, true, true);
  set(Opcode::kRcFlush, RequestKind::kFlush, true, true);
  return table;
}();

}  // namespace detail

constexpr RequestShape shape_of(wire::Opcode rc) {
  return detail::kRequestShapes[static_cast<std::size_t>(rc) & 31];
}

}  // namespace ferry::transport
