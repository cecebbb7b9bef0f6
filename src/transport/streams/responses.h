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

// The answer to a READ, an atomic, an ATOMIC WRITE or a FLUSH: packets with the PSNs first_psn ..
// first_psn + psns - 1, the first `sent` of which have left.
struct Response {
  RequestKind kind = RequestKind::kRead;
  bool duplicate = false;  // the request came again
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

// The responder resources (clause 9.7.5.1.2) keep the results of the last max_dest_rd_atomic
// requests that get a response. A requester has no more of those outstanding, so every one
// that it repeats is here. READs are executed again; they only take a place.
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
  // The newest result, since PSNs come round; null: there is none.
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

// What the responder owes the peer. The record of a UC QP, which owes nothing, has an empty one.
struct ResponsesDue {
  enum class NakState : std::uint8_t { kNone, kSequence, kRnr };

  // Responses leave before the acknowledgement.
  std::vector<Response> responses;  // in the order of PSNs; at most max_dest_rd_atomic
  SavedResults saved;
  // If not kNone: a NAK was given for the expected PSN, and packets after it are dropped silently.
  NakState nak_state = NakState::kNone;
  bool ack_due = false;
  bool unanswered = false;  // requests came since the last acknowledgement, whether they ask or not
  bool nak_due = false;
  bool nak_fatal = false;  // the NAK, and the responses before it, are sent in ERROR, too
  std::uint8_t nak_syndrome = 0;
  bool advertised_zero = false;  // the last AETH gave no credits
  std::uint32_t nak_psn = 0;
};

// Sends the answers of the responder (IBTA vol. 1 clauses 9.7.5.1.3 to 9.7.5.1.9, 9.7.7.2). They
// leave in the order of their PSNs: to the requester, a response that an acknowledgement overtakes
// is lost.
struct Responses : ResponsesDue {
  explicit Responses(ReceiveStream& stream) : stream_(stream) {}

  void reserve(std::size_t most);
  bool due() const { return !responses.empty() || ack_due || nak_due; }
  bool acknowledgement_due() const { return responses.empty() && (nak_due || ack_due); }
  void nak(std::uint8_t syndrome, std::uint32_t psn);
  // False: all responder resources are in use (clause 9.7.4.1).
  bool has_room();
  void push(Response response);  // answers the request with the expected PSN
  // Adds a duplicate in place of responses with the same PSNs; without room it is dropped.
  void repeat(const Response& response);
  // Sends at most `budget` response packets and returns their number. When the memory of a response
  // cannot be read, *failed gets its PSN and all responses are dropped; a duplicate is only
  // dropped.
  unsigned transmit(unsigned budget, std::optional<std::uint32_t>* failed);
  // Sends the NAK or ACK that is due. Returns the number of packets, 0 or 1.
  unsigned transmit_acknowledgement() {
    return acknowledgement_due() && send_acknowledgement() == EmitResult::kOk ? 1 : 0;
  }
  // Drops all that is due but `saved`: the requester asks again for what it misses.
  void forget();
  void enter_error();

 private:
  EmitResult send(Response& response);
  EmitResult send_acknowledgement();
  wire::Aeth ack_aeth(std::uint32_t msn);

  ReceiveStream& stream_;
};

}  // namespace ferry::transport
