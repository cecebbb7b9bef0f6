#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "port/endpoint.h"
#include "transport/types.h"
#include "wire/header.h"

// The interface through which a transport uses the RNIC that it lives in. Each QP has a Host of its
// own, which knows the QP's PD, access rights and queues. Tests have a scripted one.
namespace ferry::transport {

enum class MemoryResult : std::uint8_t {
  kOk,
  kAccessError,  // no such key, other PD, missing right, out of bounds
  kFault,        // the owner unmapped, protected or truncated the memory under the MR
};

enum class EmitResult : std::uint8_t {
  kOk,
  kNoRoom,       // the port is full: nothing was sent, try again when it has room
  kLocalError,   // payload: kAccessError or kFault on local memory
  kRemoteError,  // payload of a READ response: kAccessError or kFault on registered memory
};

// One packet to be sent, and where its payload comes from.
struct OutPacket {
  enum class Source : std::uint8_t { kNone, kBytes, kSges, kRegion };
  wire::Header header;
  port::Endpoint to;
  std::uint8_t hop_limit = 0;  // of datagrams to a multicast group; 0: any other packet
  Source source = Source::kNone;
  std::uint32_t length = 0;          // bytes of payload
  const std::byte* bytes = nullptr;  // kBytes
  std::span<const Sge> sges;         // kSges: gather, starting `offset` bytes into the list
  std::uint64_t offset = 0;
  std::uint64_t address = 0;  // kRegion: a READ response from [address, address + length) of rkey
  std::uint32_t rkey = 0;
};

class Host {
 public:
  virtual ~Host() = default;

  // Builds the packet (payload copied, ICRC sealed) and queues it in the port.
  virtual EmitResult emit(const OutPacket& packet) = 0;

  // Takes the next receive WQE off the QP's RQ (or SRQ). False: there is none.
  virtual bool take_receive(ReceiveRequest* out) = 0;
  // Does the same for an XRC target QP, from the XRC SRQ `srqn`. kInvalid: it is not an SRQ of the
  // QP's XRC domain.
  enum class SrqResult : std::uint8_t { kOk, kEmpty, kInvalid };
  virtual SrqResult take_receive_of(std::uint32_t /*srqn*/, ReceiveRequest* /*out*/) {
    return SrqResult::kInvalid;
  }
  // XRC target QPs: names the XRC SRQ of the request (XRCETH) that is handled or answered from here
  // on. Remote keys are checked against the PD of that SRQ (annex A14), so the transport calls this
  // before each request packet and before each READ response. False: it is not an SRQ of the QP's
  // XRC domain.
  virtual bool select_srq(std::uint32_t /*srqn*/) { return false; }
  // Receive WQEs posted and not yet taken, for end-to-end credits (clause 9.7.7.2).
  virtual std::uint32_t receives_posted() const = 0;

  // Writes `data` to the scatter list, starting `offset` bytes into it. The list is long enough
  // (the transport checked). Checks lkeys.
  virtual MemoryResult scatter(std::span<const Sge> sges, std::uint64_t offset,
                               std::span<const std::byte> data) = 0;

  // Does the same for a receive WQE, whose PD is that of the queue it was posted to; the PD of an
  // SRQ may be another one than the QP's (clause 10.2.9.1).
  virtual MemoryResult scatter_receive(std::span<const Sge> sges, std::uint64_t offset,
                                       std::span<const std::byte> data) {
    return scatter(sges, offset, data);
  }

  // Whether the peer may access [address, address + length) through rkey with `access`
  // (kRemoteWrite or kRemoteRead). Length 0 is not checked (clause 9.7.4.1.5).
  virtual MemoryResult check_region(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                                    std::uint32_t access) = 0;
  // Places WRITE data; checks as check_region. The last byte is written last.
  virtual MemoryResult write_region(std::uint32_t rkey, std::uint64_t address,
                                    std::span<const std::byte> data) = 0;

  // An atomic of 8 bytes (kCompareSwap, kFetchAdd) on memory that kRemoteAtomic allows; checks as
  // check_region. The address is aligned (the transport checked). Atomic towards all QPs of the
  // device and towards the program's own atomics (IBV_ATOMIC_GLOB).
  virtual MemoryResult atomic(Operation /*operation*/, std::uint32_t /*rkey*/,
                              std::uint64_t /*address*/, std::uint64_t /*compare_add*/,
                              std::uint64_t /*swap*/, std::uint64_t* /*original*/) {
    return MemoryResult::kAccessError;
  }
  // ATOMIC WRITE: 8 bytes in one store; checks kRemoteWrite.
  virtual MemoryResult write_atomic(std::uint32_t /*rkey*/, std::uint64_t /*address*/,
                                    std::span<const std::byte, 8> /*data*/) {
    return MemoryResult::kAccessError;
  }
  // FLUSH (annex A19): when it returns, all writes to the range, or to the whole region of the key,
  // are visible to all (and persistent, if asked for). Checks the right to flush.
  virtual MemoryResult flush_region(const wire::Feth& /*what*/, std::uint32_t /*rkey*/,
                                    std::uint64_t /*address*/, std::uint64_t /*length*/) {
    return MemoryResult::kAccessError;
  }
  // Invalidates a key for SEND with Invalidate (`remote`) or LOCAL_INV. False: this QP may not
  // invalidate the key (clause 10.6.7.2.4).
  virtual bool invalidate(std::uint32_t /*rkey*/, bool /*remote*/) { return false; }
  // kSuccess or kWindowBind.
  virtual Status bind_window(const WindowBinding& /*binding*/) { return Status::kWindowBind; }

  // The RNIC's virtual GID and the place of this QP, for destinations of the family of `address`.
  // False: the RNIC has no address of that family.
  virtual bool place_towards(const port::Address& /*address*/, DatagramSource* /*out*/) const {
    return false;
  }
  // UD: the place of the QP with this virtual GID and QPN, if it is one of this RNIC's own. False:
  // it is not.
  virtual bool own_place(const port::Address& /*gid*/, std::uint32_t /*qpn*/,
                         DatagramPlace* /*out*/) const {
    return false;
  }

  virtual void complete_send(const SendCompletion& completion) = 0;
  virtual void complete_receive(const ReceiveCompletion& completion) = 0;

  // Completes every receive WQE that is still in the RQ (not the SRQ) with kFlush.
  virtual void flush_receives() = 0;

  // Asynchronous affiliated events (clause 11.6.3).
  enum class Event : std::uint8_t {
    kCommunicationEstablished,
    kQpFatal,
    kQpRequestError,
    kQpAccessError,
    kSqDrained
  };
  virtual void raise(Event event) = 0;

  // Nobody answers at the last known place of the RNIC that was opened at `name` (virtual GID, UDP
  // port of the slot). The Host asks the directory, if it can, and gives the answer to
  // Transport::located().
  virtual void seek(const port::Endpoint& /*name*/) {}

  // Uniform random bits, for cookies. Seeded in simulations.
  virtual std::uint64_t random() = 0;

  // window(): how many more bytes may be under way to and from `to`, over all QPs of the RNIC,
  // without overflowing a receiver (port::Port::window_bytes; a packet counts with
  // port::window_charge()). account(): a connection adds the bytes that it sends, and subtracts
  // those that were acknowledged, go back to be sent again, or are given up. The requester of a
  // READ counts its responses when it asks for them: nobody else knows when they have arrived. A
  // connection with nothing in flight sends one packet also when the window is zero or negative.
  virtual std::int64_t window(const port::Endpoint& to) const = 0;
  virtual void account(const port::Endpoint& to, std::int64_t bytes) = 0;
};

}  // namespace ferry::transport
