#include "unreliable.h"

#include <algorithm>
#include <cstring>

namespace ferry::rnic::testing {
namespace {

using std::chrono::milliseconds;

// Longer than any packet is under way, and than a question for a moved QP takes.
constexpr transport::Time kIdle = milliseconds(200);
constexpr transport::Time kUnderWay = std::chrono::microseconds(100);  // a packet, at most
constexpr std::size_t kHeader = 12;  // of a message: its number and its sender's QPN

std::vector<std::byte> content_of(std::uint64_t id, std::uint32_t qpn, std::size_t length) {
  std::vector<std::byte> content(length);
  port::SplitMix64 bytes(id * 977 + qpn);
  for (std::size_t i = 0; i < length; i += 8) {
    const std::uint64_t value = bytes.next();
    std::memcpy(content.data() + i, &value, std::min<std::size_t>(8, length - i));
  }
  std::memcpy(content.data(), &id, sizeof id);
  std::memcpy(content.data() + sizeof id, &qpn, sizeof qpn);
  return content;
}

}  // namespace

UnreliableParty::UnreliableParty(std::string name, bool datagrams, std::uint64_t seed,
                                 UnreliableWorld* world)
    : name_(std::move(name)),
      datagrams_(datagrams),
      random_(seed),
      world_(world),
      memory_(std::size_t{kAreas} * kSlots * kSlotBytes) {}

void UnreliableParty::error(const std::string& what) {
  world_->errors->push_back(name_ + ": " + what);
}

void UnreliableParty::add_peer(UnreliableParty* peer, device::Ah* ah) {
  peers_.push_back({peer, ah});
}

void UnreliableParty::stopped() {
  absences_.push_back({world_->now() - kUnderWay, transport::kNever});
}

void UnreliableParty::resumed(transport::Time slack) {
  absences_.back().to = world_->now() + slack;
}

void UnreliableParty::moved(std::uint32_t qpn, const MovedObjects& objects) {
  Party::moved(qpn, objects);
  for (Peer& peer : peers_) {
    if (peer.ah != nullptr) peer.ah = objects.ahs.at(peer.ah->handle());
  }
}

void UnreliableParty::post_request(bool last) {
  if (outstanding_.size() >= kMaxOutstanding) return;
  const Peer& peer = peers_[random_.between(0, peers_.size() - 1)];
  const std::uint32_t most = datagrams_ ? std::min(mtu_, kSlotBytes - kGrh) : kSlotBytes;
  const auto length = static_cast<std::uint32_t>(random_.between(kHeader, most));
  const auto index = static_cast<unsigned>(next_id_ % kSlots);
  Sent message{next_id_,
               peer.party,
               content_of(next_id_, qpn_, length),
               !datagrams_ && random_.chance(0.4),
               index,
               static_cast<std::uint32_t>(next_id_),
               random_.chance(0.5),
               world_->now()};
  const bool takes_receive = !message.write || message.has_immediate;
  if (takes_receive && peer.party->credit_ == 0) return;
  std::copy(message.content.begin(), message.content.end(), slot(kSource, index));
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(slot(kSource, index)), length, mr->lkey()};
  ibv_send_wr wr{};
  wr.wr_id = next_id_;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  const bool signaled = last || random_.chance(0.6) || outstanding_.size() + 2 >= kMaxOutstanding;
  wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
  if (length <= 64) wr.send_flags |= IBV_SEND_INLINE;
  wr.imm_data = message.immediate;
  ibv_ah ah{};
  if (message.write) {
    wr.opcode = message.has_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(peer.party->slot(kRegion, index)),
                  peer.party->mr->rkey()};
    peer.party->written_[index] = next_id_;
  } else {
    wr.opcode = message.has_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  }
  if (datagrams_) {
    ah.handle = peer.ah->handle();
    wr.wr.ud = {&ah, peer.party->qpn_, kQkey};
  }
  ibv_send_wr* bad = nullptr;
  if (const int result = qp->post_send(&wr, &bad); result != 0) {
    return error("post_send: " + std::to_string(result));
  }
  if (takes_receive) {
    --peer.party->credit_;
    peer.party->last_use_ = world_->now();
    sent_.emplace(message.id, std::move(message));
  }
  outstanding_.emplace_back(next_id_, signaled);
  ++next_id_;
  ++posted_total_;
}

void UnreliableParty::post_receive() {
  // Messages that were lost have left their WQEs behind.
  if (receives_.size() >= kMaxReceives) {
    if (world_->now() - last_use_ > kIdle) credit_ = kMaxReceives;
    return;
  }
  const auto index = static_cast<unsigned>(next_receive_ % kSlots);
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(slot(kReceive, index)), kSlotBytes, mr->lkey()};
  std::memset(slot(kReceive, index), 0, kSlotBytes);
  ibv_recv_wr wr{};
  wr.wr_id = next_receive_ | 1ull << 63;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int result = qp->post_recv(&wr, &bad); result != 0) {
    return error("post_recv: " + std::to_string(result));
  }
  receives_.emplace_back(wr.wr_id, index);
  ++next_receive_;
  ++credit_;
  last_use_ = world_->now();
}

void UnreliableParty::completed(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    return error("completion with status " + std::to_string(wc.status));
  }
  if (wc.wr_id >> 63 == 0) {
    while (!outstanding_.empty() && outstanding_.front().first <= wc.wr_id) {
      const auto [id, signaled] = outstanding_.front();
      outstanding_.pop_front();
      if (signaled != (id == wc.wr_id)) error("a signalled request did not complete");
      if (const auto at = sent_.find(id); at != sent_.end()) at->second.completed = world_->now();
      if (id == wc.wr_id) return;
    }
    return error("completion of " + std::to_string(wc.wr_id) + " that was not asked for");
  }
  if (receives_.empty() || receives_.front().first != wc.wr_id) {
    return error("receives completed out of order");
  }
  const std::byte* received = slot(kReceive, receives_.front().second);
  receives_.pop_front();
  const bool write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if (write) {
    // The immediate is the message's number, of which the low half is enough.
    UnreliableParty& from = *peers_[0].party;
    const auto at = std::find_if(from.sent_.begin(), from.sent_.end(), [&](const auto& entry) {
      return entry.second.immediate == wc.imm_data && entry.second.write;
    });
    if (at == from.sent_.end()) return error("a message that nobody sent, or a second time");
    return arrive(from, at->first, wc, slot(kRegion, at->second.slot));
  }
  if (datagrams_) received += kGrh;
  std::uint64_t id = 0;
  std::uint32_t qpn = 0;
  std::memcpy(&id, received, sizeof id);
  std::memcpy(&qpn, received + sizeof id, sizeof qpn);
  for (const Peer& peer : peers_) {
    if (peer.party->qpn_ == qpn) return arrive(*peer.party, id, wc, received);
  }
  error("a message from nobody");
}

void UnreliableParty::arrive(UnreliableParty& from, std::uint64_t id, const ibv_wc& wc,
                             const std::byte* data) {
  const auto at = from.sent_.find(id);
  if (at == from.sent_.end() || at->second.to != this) {
    return error("message " + std::to_string(id) + " that was not sent here, or a second time");
  }
  const Sent& message = at->second;
  const std::uint32_t grh = datagrams_ ? kGrh : 0;
  // Of a WRITE with immediate byte_len is its length too (IBTA vol. 1 clause 11.4.2.1).
  if (wc.byte_len != message.content.size() + grh) error("a message of another length");
  const bool same = std::equal(message.content.begin(), message.content.end(), data);
  if (!same && (!message.write || written_[message.slot] == id)) {
    error("message " + std::to_string(id) + " is corrupted, or not whole");
  }
  const bool has_immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (has_immediate != message.has_immediate ||
      (has_immediate && wc.imm_data != message.immediate)) {
    error("another immediate");
  }
  if (datagrams_) {
    if (wc.src_qp != from.qpn_) error("src_qp is not the virtual QPN of the sender");
    const std::byte* header = data - kGrh;
    if (std::memcmp(header + 32, from.gid_.raw + 12, 4) != 0 ||
        std::memcmp(header + 36, gid_.raw + 12, 4) != 0) {
      error("the GRH does not show the virtual GIDs");
    }
  } else {
    if (id <= last_arrived_) error("a message out of order");
    last_arrived_ = id;
  }
  ++world_->delivered;
  from.sent_.erase(at);
}

bool UnreliableParty::done() const {
  const bool all_polled = outstanding_.empty();
  return all_polled && (sent_.empty() || world_->now() - sent_.rbegin()->second.posted > kIdle);
}

bool UnreliableParty::may_be_lost(const Sent& message) const {
  if (world_->lossy) return true;
  const auto meets = [&](const Absence& absence) {
    return message.posted <= absence.to && message.completed >= absence.from;
  };
  const auto& theirs = message.to->absences_;
  return std::any_of(theirs.begin(), theirs.end(), meets);
}

void UnreliableParty::check() {
  for (const auto& [id, message] : sent_) {
    ++world_->lost;
    if (!may_be_lost(message)) {
      error("message " + std::to_string(id) + " is lost, sent from " +
            std::to_string(message.posted.count()) + " to " +
            std::to_string(message.completed.count()) + " ns while its receiver was there");
    }
  }
}

std::string UnreliableParty::describe() const {
  std::string text = name_ + ": " + std::to_string(outstanding_.size()) +
                     " requests outstanding, " + std::to_string(sent_.size()) +
                     " messages not delivered, " + std::to_string(receives_.size()) +
                     " receives posted; away";
  for (const Absence& absence : absences_) {
    text += " " + std::to_string(absence.from.count()) + ".." + std::to_string(absence.to.count());
  }
  return text;
}

}  // namespace ferry::rnic::testing
