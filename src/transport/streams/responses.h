#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/host.h"
#include "transport/opcodes.h"
#include "transport/streams/receive_stream.h"
#include "wire/header.h"

namespace ferry::transport {

// What answers a READ, an atomic, an ATOMIC WRITE or a FLUSH: PSNs first_psn .. first_psn + psns -
// 1, `sent` of them already.
struct Response {
  RequestKind kind = RequestKind::kRead;
  bool duplicate = false;
  std::uint32_t first_psn = 0;
  std::uint32_t psns = 1;
  std::uint32_t sent = 0;
  std::uint32_t msn = 0;
  std::uint32_t srqn = 0;     // XRC
  std::uint64_t address = 0;  // kRead
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
  std::uint64_t original = 0;  // kAtomic
};

// The responder resources (clause 9.7.5.1.2): what the last max_dest_rd_atomic requests that take
// one returned. A requester has no more of them outstanding, so whatever it repeats is here, or was
// never an atomic. READs are executed again; they only take their place.
struct SavedResult {
  std::uint32_t psn = 0;
  RequestKind kind = RequestKind::kRead;
  std::uint64_t original = 0;  // kAtomic
};
class SavedResults {
 public:
  void push(const SavedResult& result, std::size_t most) {
    while (results_.size() >= most) results_.erase(results_.begin());
    results_.push_back(result);
  }
  // The newest: a PSN may have come round.
  const SavedResult* find(std::uint32_t psn, RequestKind kind) const {
    const auto found = std::find_if(results_.rbegin(), results_.rend(), [&](const auto& result) {
      return result.psn == psn && result.kind == kind;
    });
    return found == results_.rend() ? nullptr : &*found;
  }
  const std::vector<SavedResult>& all() const { return results_; }  // oldest first
  void reserve(std::size_t most) { results_.reserve(most); }

 private:
  std::vector<SavedResult> results_;
};

// What the responder owes the peer, besides how far it has come. A record has it of UC, too, which
// owes nothing.
struct ResponsesDue {
  enum class NakState : std::uint8_t { kNone, kSequence, kRnr };

  // First these, then one acknowledgement.
  std::vector<Response> responses;  // in the order of PSNs; at most max_dest_rd_atomic
  SavedResults saved;
  // A NAK was given for the expected PSN; packets after it are dropped silently.
  NakState nak_state = NakState::kNone;
  bool ack_due = false;
  bool unanswered = false;  // received since the last acknowledgement, asked for or not
  bool nak_due = false;
  bool nak_fatal = false;  // sent in ERROR still
  std::uint8_t nak_syndrome = 0;
  bool advertised_zero = false;  // the last AETH gave no credits
  std::uint32_t nak_psn = 0;
};

// What the responder sends (IBTA vol. 1 clauses 9.7.5.1.3 to 9.7.5.1.9, 9.7.7.2). It leaves in the
// order of the PSNs: an acknowledgement that overtook a response would mean that the response was
// lost.
struct Responses : ResponsesDue {
  explicit Responses(ReceiveStream& stream) : stream_(stream) {}

  void reserve(std::size_t most);
  bool due() const { return !responses.empty() || ack_due || nak_due; }
  bool acknowledgement_due() const { return responses.empty() && (nak_due || ack_due); }
  void nak(std::uint8_t syndrome, std::uint32_t psn);
  // False: all responder resources are in use (clause 9.7.4.1).
  bool has_room();
  void push(Response response);  // to the request with the expected PSN
  // It takes the place of what it repeats.
  void repeat(const Response& response);
  // Stops with the PSN of a response that cannot be sent for ever.
  unsigned transmit(unsigned budget, std::optional<std::uint32_t>* failed);
  // The number of packets, 0 or 1.
  unsigned transmit_acknowledgement() {
    return acknowledgement_due() && send_acknowledgement() == EmitResult::kOk ? 1 : 0;
  }
  // The requester will ask again for what it misses.
  void forget();
  void enter_error();

 private:
  EmitResult send(Response& response);
  EmitResult send_acknowledgement();
  wire::Aeth ack_aeth(std::uint32_t msn);

  ReceiveStream& stream_;
};

}  // namespace ferry::transport
