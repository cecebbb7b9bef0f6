#include "wire/header.h"

#include <array>
#include <cstring>

#include "wire/big_endian.h"

namespace ferry::wire {
namespace {

// What an opcode is, and which headers follow its BTH (IBTA vol. 1 clause 9.2.1, table of BTH
// opcodes; annex A14 for XRC, A19 for FLUSH and ATOMIC WRITE).
enum Trait : std::uint16_t {
  kReth = 1,
  kAeth = 2,
  kImmediate = 4,
  kIeth = 8,
  kAtomicEth = 0x10,
  kAtomicAckEth = 0x20,
  kFeth = 0x40,
  kDeth = 0x80,
  kXrcEth = 0x100,
  kNoPayload = 0x200,
  kRequest = 0x400,
  kKnown = 0x800,
  kOriginEth = 0x1000,
};
using Traits = std::uint16_t;

struct Row {
  Opcode opcode;
  Traits traits;
};

// The operations of RC; make_traits() derives those of the other services.
constexpr Row kOperations[] = {
    {Opcode::kRcSendFirst, kRequest},
    {Opcode::kRcSendMiddle, kRequest},
    {Opcode::kRcSendLast, kRequest},
    {Opcode::kRcSendLastImm, kRequest | kImmediate},
    {Opcode::kRcSendOnly, kRequest},
    {Opcode::kRcSendOnlyImm, kRequest | kImmediate},
    {Opcode::kRcWriteFirst, kRequest | kReth},
    {Opcode::kRcWriteMiddle, kRequest},
    {Opcode::kRcWriteLast, kRequest},
    {Opcode::kRcWriteLastImm, kRequest | kImmediate},
    {Opcode::kRcWriteOnly, kRequest | kReth},
    {Opcode::kRcWriteOnlyImm, kRequest | kReth | kImmediate},
    {Opcode::kRcReadRequest, kRequest | kReth | kNoPayload},
    {Opcode::kRcReadResponseFirst, kAeth},
    {Opcode::kRcReadResponseMiddle, 0},
    {Opcode::kRcReadResponseLast, kAeth},
    {Opcode::kRcReadResponseOnly, kAeth},
    {Opcode::kRcAck, kAeth | kNoPayload},
    {Opcode::kRcAtomicAck, kAeth | kAtomicAckEth | kNoPayload},
    {Opcode::kRcCompareSwap, kRequest | kAtomicEth | kNoPayload},
    {Opcode::kRcFetchAdd, kRequest | kAtomicEth | kNoPayload},
    {Opcode::kRcSendLastInvalidate, kRequest | kIeth},
    {Opcode::kRcSendOnlyInvalidate, kRequest | kIeth},
    {Opcode::kRcFlush, kRequest | kFeth | kReth | kNoPayload},
    {Opcode::kRcAtomicWrite, kRequest | kReth},
};

constexpr std::array<Traits, 256> make_traits() {
  std::array<Traits, 256> table{};
  const auto at = [&](Service service, Opcode rc) -> Traits& {
    return table[static_cast<std::size_t>(in_service(service, rc))];
  };
  for (const auto& [opcode, traits] : kOperations) {
    at(Service::kRc, opcode) = traits | kKnown;
    if (opcode <= Opcode::kRcWriteOnlyImm) at(Service::kUc, opcode) = traits | kKnown;
    at(Service::kXrc, opcode) = traits | kKnown | (traits & kRequest ? kXrcEth : 0);
    if (opcode == Opcode::kRcSendOnly || opcode == Opcode::kRcSendOnlyImm) {
      at(Service::kUd, opcode) = traits | kKnown | kDeth;
    }
  }
  table[static_cast<std::size_t>(Opcode::kCnp)] = kKnown;
  table[static_cast<std::size_t>(Opcode::kMigration)] = kKnown;
  table[static_cast<std::size_t>(Opcode::kEnvelope)] = kKnown;
  const Traits moved = kKnown | kRequest | kDeth | kOriginEth;
  table[static_cast<std::size_t>(Opcode::kMovedSendOnly)] = moved;
  table[static_cast<std::size_t>(Opcode::kMovedSendOnlyImm)] = moved | kImmediate;
  return table;
}
constexpr std::array<Traits, 256> kTraits = make_traits();

constexpr Traits traits_of(Opcode opcode) {
  return kTraits[static_cast<std::size_t>(opcode)];
}

constexpr std::uint8_t size_of(Traits traits) {
  return static_cast<std::uint8_t>(
      kBthSize + (traits & kXrcEth ? kXrcEthSize : 0) + (traits & kDeth ? kDethSize : 0) +
      (traits & kOriginEth ? kOriginEthSize : 0) + (traits & kFeth ? kFethSize : 0) +
      (traits & kReth ? kRethSize : 0) + (traits & kAtomicEth ? kAtomicEthSize : 0) +
      (traits & kAeth ? kAethSize : 0) + (traits & kAtomicAckEth ? kAtomicAckEthSize : 0) +
      (traits & kImmediate ? kImmDtSize : 0) + (traits & kIeth ? kIethSize : 0));
}

constexpr std::array<std::uint8_t, 256> make_sizes() {
  std::array<std::uint8_t, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = size_of(kTraits[i]);
  return table;
}
constexpr std::array<std::uint8_t, 256> kSizes = make_sizes();

constexpr std::size_t pad_of(std::size_t payload) {
  return -payload & 3;
}

// Bits of the second byte of a BTH.
constexpr std::uint8_t kSolicitedBit = 0x80;
// "Migrated" (clause 9.2.3), as every QP without automatic path migration sends; it has nothing to
// do with our moves.
constexpr std::uint8_t kMigReqBit = 0x40;
constexpr int kPadShift = 4;
constexpr std::uint8_t kVersionMask = 0x0F;
constexpr std::uint32_t kAckRequestBit = 0x80000000;
// Bits of a FETH.
constexpr std::uint32_t kPlacementMask = 0xF;
constexpr std::uint32_t kSelectivityMask = 3;
constexpr int kSelectivityShift = 4;

}  // namespace

bool is_known(Opcode opcode) {
  return traits_of(opcode) & kKnown;
}

bool is_request(Opcode opcode) {
  return traits_of(opcode) & kRequest;
}

bool has_reth(Opcode opcode) {
  return traits_of(opcode) & kReth;
}

bool has_atomic(Opcode opcode) {
  return traits_of(opcode) & kAtomicEth;
}

bool has_aeth(Opcode opcode) {
  return traits_of(opcode) & kAeth;
}

bool has_immediate(Opcode opcode) {
  return traits_of(opcode) & kImmediate;
}

bool has_invalidate(Opcode opcode) {
  return traits_of(opcode) & kIeth;
}

bool has_origin(Opcode opcode) {
  return traits_of(opcode) & kOriginEth;
}

std::size_t header_size(Opcode opcode) {
  return kSizes[static_cast<std::size_t>(opcode)];
}

std::size_t packet_size(Opcode opcode, std::size_t payload) {
  return header_size(opcode) + payload + pad_of(payload) + kIcrcSize;
}

void encode_header(const Header& header, std::size_t payload, std::span<std::byte> out) {
  const Traits traits = traits_of(header.opcode);
  const std::size_t pad = pad_of(payload);
  std::byte* at = out.data();
  at[0] = static_cast<std::byte>(header.opcode);
  at[1] = static_cast<std::byte>((header.solicited ? kSolicitedBit : 0) | kMigReqBit |
                                 pad << kPadShift);
  store_be(at + 2, header.pkey);
  store_be(at + 4, header.dest_qpn & kLow24);
  store_be(at + 8, (header.ack_request ? kAckRequestBit : 0) | (header.psn & kLow24));
  at += kBthSize;
  if (traits & kXrcEth) {
    store_be(at, header.xrc_srqn & kLow24);
    at += kXrcEthSize;
  }
  if (traits & kDeth) {
    store_be(at, header.deth.qkey);
    store_be(at + 4, header.deth.source_qpn & kLow24);
    at += kDethSize;
  }
  if (traits & kOriginEth) {
    std::memcpy(at, header.origin.gid.bytes.data(), 16);
    store_be(at + 16, header.origin.qpn & kLow24);
    store_be(at + 20, header.origin.epoch);
    at += kOriginEthSize;
  }
  if (traits & kFeth) {
    store_be(at, std::uint32_t{header.feth.selectivity & kSelectivityMask} << kSelectivityShift |
                     (header.feth.placement & kPlacementMask));
    at += kFethSize;
  }
  if (traits & kReth) {
    store_be(at, header.reth.virtual_address);
    store_be(at + 8, header.reth.rkey);
    store_be(at + 12, header.reth.dma_length);
    at += kRethSize;
  }
  if (traits & kAtomicEth) {
    store_be(at, header.atomic.virtual_address);
    store_be(at + 8, header.atomic.rkey);
    store_be(at + 12, header.atomic.swap_or_add);
    store_be(at + 20, header.atomic.compare);
    at += kAtomicEthSize;
  }
  if (traits & kAeth) {
    store_be(at, std::uint32_t{header.aeth.syndrome} << 24 | (header.aeth.msn & kLow24));
    at += kAethSize;
  }
  if (traits & kAtomicAckEth) {
    store_be(at, header.original);
    at += kAtomicAckEthSize;
  }
  if (traits & kImmediate) {
    std::memcpy(at, &header.immediate, kImmDtSize);
    at += kImmDtSize;
  }
  if (traits & kIeth) {
    store_be(at, header.invalidate_rkey);
    at += kIethSize;
  }
  std::memset(at + payload, 0, pad);
}

std::optional<Packet> parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kBthSize + kIcrcSize || bytes.size() % 4 != 0) return std::nullopt;
  const std::byte* at = bytes.data();
  const auto opcode = static_cast<Opcode>(at[0]);
  const Traits traits = traits_of(opcode);
  if (!(traits & kKnown)) return std::nullopt;
  const auto flags = static_cast<std::uint8_t>(at[1]);
  if (flags & kVersionMask) return std::nullopt;
  const std::size_t pad = flags >> kPadShift & 3;
  const std::size_t before = header_size(opcode);
  if (bytes.size() < before + pad + kIcrcSize) return std::nullopt;

  Packet packet;
  Header& header = packet.header;
  header.opcode = opcode;
  header.solicited = flags & kSolicitedBit;
  header.pkey = load_be<std::uint16_t>(at + 2);
  header.dest_qpn = load_be<std::uint32_t>(at + 4) & kLow24;
  const auto last_word = load_be<std::uint32_t>(at + 8);
  header.ack_request = last_word & kAckRequestBit;
  header.psn = last_word & kLow24;
  at += kBthSize;
  if (traits & kXrcEth) {
    header.xrc_srqn = load_be<std::uint32_t>(at) & kLow24;
    at += kXrcEthSize;
  }
  if (traits & kDeth) {
    header.deth.qkey = load_be<std::uint32_t>(at);
    header.deth.source_qpn = load_be<std::uint32_t>(at + 4) & kLow24;
    at += kDethSize;
  }
  if (traits & kOriginEth) {
    std::memcpy(header.origin.gid.bytes.data(), at, 16);
    header.origin.qpn = load_be<std::uint32_t>(at + 16) & kLow24;
    header.origin.epoch = load_be<std::uint32_t>(at + 20);
    at += kOriginEthSize;
  }
  if (traits & kFeth) {
    const auto word = load_be<std::uint32_t>(at);
    header.feth.placement = word & kPlacementMask;
    header.feth.selectivity = word >> kSelectivityShift & kSelectivityMask;
    at += kFethSize;
  }
  if (traits & kReth) {
    header.reth.virtual_address = load_be<std::uint64_t>(at);
    header.reth.rkey = load_be<std::uint32_t>(at + 8);
    header.reth.dma_length = load_be<std::uint32_t>(at + 12);
    at += kRethSize;
  }
  if (traits & kAtomicEth) {
    header.atomic.virtual_address = load_be<std::uint64_t>(at);
    header.atomic.rkey = load_be<std::uint32_t>(at + 8);
    header.atomic.swap_or_add = load_be<std::uint64_t>(at + 12);
    header.atomic.compare = load_be<std::uint64_t>(at + 20);
    at += kAtomicEthSize;
  }
  if (traits & kAeth) {
    const auto word = load_be<std::uint32_t>(at);
    header.aeth.syndrome = static_cast<std::uint8_t>(word >> 24);
    header.aeth.msn = word & kLow24;
    at += kAethSize;
  }
  if (traits & kAtomicAckEth) {
    header.original = load_be<std::uint64_t>(at);
    at += kAtomicAckEthSize;
  }
  if (traits & kImmediate) {
    std::memcpy(&header.immediate, at, kImmDtSize);
    at += kImmDtSize;
  }
  if (traits & kIeth) header.invalidate_rkey = load_be<std::uint32_t>(at);

  packet.payload = bytes.subspan(before, bytes.size() - before - pad - kIcrcSize);
  const bool may_have_payload =
      !(traits & kNoPayload) ||
      (opcode == Opcode::kRcAck && header.aeth.syndrome == syndrome::kNakStopped);
  if (!may_have_payload && (!packet.payload.empty() || pad != 0)) return std::nullopt;
  return packet;
}

}  // namespace ferry::wire
