#include "workload.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ferry::rnic::testing {

int SharedReceives::post() {
  if (posted_.size() == kSlots) return 0;
  unsigned slot = 0;
  for (const auto& [id, taken] : posted_) slot |= 1u << taken;
  slot = static_cast<unsigned>(std::countr_one(slot));
  std::byte* data = memory_.data() + std::size_t{slot} * kSlotBytes;
  std::memset(data, 0, kSlotBytes);
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(data), kSlotBytes, mr->lkey()};
  ibv_recv_wr wr{};
  wr.wr_id = next_id_ | 1ull << 63;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int result = srq->post_recv(&wr, &bad);
  if (result == 0) posted_[wr.wr_id] = slot;
  ++next_id_;
  return result;
}

const std::byte* SharedReceives::take(std::uint64_t id) {
  const auto at = posted_.find(id);
  if (at == posted_.end()) return nullptr;
  const std::byte* data = memory_.data() + std::size_t{at->second} * kSlotBytes;
  posted_.erase(at);
  return data;
}

Endpoint::Endpoint(std::string name, std::uint64_t seed, std::vector<std::string>* errors)
    : name_(std::move(name)),
      random_(seed),
      errors_(errors),
      memory_(std::size_t{kAreas} * kSlots * kSlotBytes),
      meant_(kSlots, std::vector<std::byte>(kSlotBytes)),
      locks_(kSlots),
      window_content_(kSlotBytes) {
  for (unsigned i = 0; i < kSlots; ++i) {
    const auto content = fresh(kSlotBytes);
    std::memcpy(slot(kConstant, i), content.data(), content.size());
  }
}

void Endpoint::error(const std::string& what) {
  errors_->push_back(name_ + ": " + what);
}

std::vector<std::byte> Endpoint::fresh(std::uint32_t length) {
  std::vector<std::byte> content(length);
  port::SplitMix64 bytes(random_.next());
  for (std::size_t i = 0; i < length; i += 8) {
    const std::uint64_t value = bytes.next();
    std::memcpy(content.data() + i, &value, std::min<std::size_t>(8, length - i));
  }
  return content;
}

std::vector<ibv_sge> Endpoint::split(const std::byte* data, std::uint32_t length) {
  std::vector<ibv_sge> sges;
  auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto parts = random_.between(1, 3);
  for (std::uint64_t i = 1; i <= parts; ++i) {
    const auto part = i == parts ? length : static_cast<std::uint32_t>(random_.between(0, length));
    sges.push_back({address, part, mr->lkey()});
    address += part;
    length -= part;
  }
  return sges;
}

// A slot of the peer's region that nobody is going to compare; kSlots: none.
unsigned Endpoint::unlocked_slot() {
  const auto first = static_cast<unsigned>(random_.between(0, kSlots - 1));
  for (unsigned i = 0; i < kSlots; ++i) {
    const unsigned at = (first + i) % kSlots;
    if (peer->locks_[at] == 0) return at;
  }
  return kSlots;
}

void Endpoint::post_request(bool last) {
  if (posted_.size() >= kMaxOutstanding) return;
  Posted posted{};
  posted.id = next_id_;
  posted.length = static_cast<std::uint32_t>(random_.chance(0.3) ? random_.between(0, 64)
                                                                 : random_.between(0, kSlotBytes));
  posted.signaled = last || random_.chance(0.6) || posted_.size() + 4 >= kMaxOutstanding;
  posted.kind = static_cast<Kind>(random_.between(0, 8));
  if (posted.kind >= Kind::kWindowLocal && random_.chance(0.7)) posted.kind = Kind::kWindowWrite;
  const auto own_slot = static_cast<unsigned>(posted.id % kSlots);

  ibv_send_wr wr{};
  wr.wr_id = posted.id;
  wr.send_flags = posted.signaled ? IBV_SEND_SIGNALED : 0;
  std::vector<ibv_sge> sges;
  Expected expected{};
  bool is_expected = false;
  bool with_immediate = random_.chance(0.5);
  ibv_mw mw{};
  ibv_mr beneath{};

  if (posted.kind >= Kind::kWindowWrite) {
    if (!make_window_request(&posted, &wr, &mw, &beneath)) return;
    if (posted.kind == Kind::kWindowWrite || posted.kind == Kind::kWindowRemote) {
      posted.content = fresh(posted.length);
      std::copy(posted.content.begin(), posted.content.end(), slot(kSource, own_slot));
      sges = split(slot(kSource, own_slot), posted.length);
    }
    if (posted.kind == Kind::kWindowRemote) {
      is_expected = true;
      expected = {Kind::kWindowRemote, posted.length,    false, 0, 0,
                  posted.content,      peer->window_key_};
    }
  } else if (posted.kind == Kind::kFetchAdd) {
    // The peer's word is this end's alone, so what each atomic returns is known.
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    posted.length = sizeof peer->counted_;
    posted.peer_slot = kSlots;
    posted.content.resize(sizeof peer->counted_);
    std::memcpy(posted.content.data(), &peer->counted_, sizeof peer->counted_);
    wr.wr.atomic = {reinterpret_cast<std::uintptr_t>(peer->slot(kCounter, 0)), random_.next(), 0,
                    peer->mr->rkey()};
    sges = {
        {reinterpret_cast<std::uintptr_t>(slot(kLanding, own_slot)), posted.length, mr->lkey()}};
    std::memset(slot(kLanding, own_slot), 0, kSlotBytes);
  } else if (posted.kind == Kind::kRead) {
    wr.opcode = IBV_WR_RDMA_READ;
    posted.peer_slot = unlocked_slot();
    const bool region = posted.peer_slot < kSlots && random_.chance(0.6);
    if (!region) posted.peer_slot = kSlots + static_cast<unsigned>(random_.between(0, kSlots - 1));
    const std::byte* remote = region ? peer->slot(kRegion, posted.peer_slot)
                                     : peer->slot(kConstant, posted.peer_slot - kSlots);
    const std::byte* truth = region ? peer->meant_[posted.peer_slot].data() : remote;
    posted.content.assign(truth, truth + posted.length);
    if (region) ++peer->locks_[posted.peer_slot];
    wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(remote), peer->mr->rkey()};
    sges = split(slot(kLanding, own_slot), posted.length);
    std::memset(slot(kLanding, own_slot), 0, kSlotBytes);
    if (random_.chance(0.2)) wr.send_flags |= IBV_SEND_FENCE;
  } else {
    posted.content = fresh(posted.length);
    std::copy(posted.content.begin(), posted.content.end(), slot(kSource, own_slot));
    sges = split(slot(kSource, own_slot), posted.length);
    if (posted.length <= 64 && random_.chance(0.5)) wr.send_flags |= IBV_SEND_INLINE;
    if (random_.chance(0.2)) wr.send_flags |= IBV_SEND_SOLICITED;
    if (posted.kind == Kind::kSend) {
      wr.opcode = with_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
      is_expected = true;
    } else {
      posted.peer_slot = unlocked_slot();
      if (posted.peer_slot == kSlots) return;
      with_immediate = posted.kind == Kind::kWriteImm;
      wr.opcode = with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
      wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(peer->slot(kRegion, posted.peer_slot)),
                    peer->mr->rkey()};
      is_expected = with_immediate;
    }
    expected = {posted.kind,      posted.length,
                with_immediate,   static_cast<std::uint32_t>(random_.next()),
                posted.peer_slot, posted.content};
    wr.imm_data = expected.immediate;
  }
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  if (peer->target != nullptr) wr.qp_type.xrc.remote_srqn = peer->shared->srq->number();
  ibv_send_wr* bad = nullptr;
  const int result = qp->post_send(&wr, &bad);
  if (result != 0) {
    error("post_send: " + std::to_string(result));
    return;
  }
  if ((wr.send_flags & IBV_SEND_INLINE) != 0)
    std::memset(slot(kSource, own_slot), 0xEE, kSlotBytes);
  if (posted.kind == Kind::kWrite || posted.kind == Kind::kWriteImm) {
    std::copy(posted.content.begin(), posted.content.end(), peer->meant_[posted.peer_slot].begin());
    if (posted.kind == Kind::kWriteImm) ++peer->locks_[posted.peer_slot];
  }
  if (posted.kind == Kind::kFetchAdd) peer->counted_ += wr.wr.atomic.compare_add;
  switch (posted.kind) {
    case Kind::kWindowWrite:
      std::copy(posted.content.begin(), posted.content.end(), peer->window_content_.begin());
      ++peer->writes_under_way_;
      break;
    case Kind::kWindowBind: window_ = Window::kBinding; break;
    case Kind::kWindowLocal: window_ = Window::kEnding; break;
    case Kind::kWindowRemote: peer->window_ = Window::kEnding; break;
    default: break;
  }
  if (is_expected) peer->expected_.push_back(std::move(expected));
  posted_.push_back(std::move(posted));
  ++next_id_;
  ++requests_posted_;
}

// A request of the window's life that makes sense now. False: none.
bool Endpoint::make_window_request(Posted* posted, ibv_send_wr* wr, ibv_mw* mw, ibv_mr* beneath) {
  const auto base = reinterpret_cast<std::uintptr_t>(slot(kWindow, 0));
  switch (posted->kind) {
    case Kind::kWindowWrite:
      if (peer->window_ != Window::kBound) return false;
      wr->opcode = IBV_WR_RDMA_WRITE;
      wr->wr.rdma = {reinterpret_cast<std::uintptr_t>(peer->slot(kWindow, 0)), peer->window_key_};
      return true;
    case Kind::kWindowBind:
      if (window == nullptr || window_ != Window::kUnbound) return false;
      window_key_ = ibv_inc_rkey(window->rkey());
      mw->handle = window->handle();
      beneath->lkey = mr->lkey();
      wr->opcode = IBV_WR_BIND_MW;
      wr->bind_mw = {mw, window_key_, {beneath, base, kSlotBytes, IBV_ACCESS_REMOTE_WRITE}};
      break;
    case Kind::kWindowLocal:
      // The peer's writes must have come before; only it knows when they are done.
      if (window_ != Window::kBound || writes_under_way_ > 0) return false;
      wr->opcode = IBV_WR_LOCAL_INV;
      wr->invalidate_rkey = window_key_;
      break;
    default:
      if (peer->window_ != Window::kBound) return false;
      wr->opcode = IBV_WR_SEND_WITH_INV;
      wr->invalidate_rkey = peer->window_key_;
      return true;
  }
  posted->signaled = true;
  wr->send_flags |= IBV_SEND_SIGNALED;
  return true;
}

void Endpoint::moved(std::uint32_t qpn, const MovedObjects& objects) {
  Party::moved(qpn, objects);
  window = objects.mws.at(window->handle());
}

void Endpoint::post_receive() {
  if (shared != nullptr) {
    if (const int result = shared->post(); result != 0) {
      error("post_srq_recv: " + std::to_string(result));
    }
    return;
  }
  if (receives_.size() >= kMaxReceives) return;
  const auto at = static_cast<unsigned>(next_receive_ % kSlots);
  std::memset(slot(kReceive, at), 0, kSlotBytes);
  auto sges = split(slot(kReceive, at), kSlotBytes);
  ibv_recv_wr wr{};
  wr.wr_id = next_receive_ | 1ull << 63;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  if (const int result = qp->post_recv(&wr, &bad); result != 0) {
    error("post_recv: " + std::to_string(result));
    return;
  }
  receives_.push_back({wr.wr_id, at});
  ++next_receive_;
}

// A request is known to be done: its own completion, or a later one's.
void Endpoint::retire(const Posted& posted) {
  switch (posted.kind) {
    case Kind::kWindowWrite:
      --peer->writes_under_way_;
      ++window_writes_;
      return;
    case Kind::kWindowBind: window_ = Window::kBound; return;
    case Kind::kWindowLocal:
      window_ = Window::kUnbound;
      ++window_endings_;
      return;
    default: break;
  }
  if (posted.kind != Kind::kRead && posted.kind != Kind::kFetchAdd) return;
  const auto own_slot = static_cast<unsigned>(posted.id % kSlots);
  if (!std::equal(posted.content.begin(), posted.content.end(), slot(kLanding, own_slot))) {
    error("READ or atomic " + std::to_string(posted.id) + " brought other bytes");
  }
  if (posted.peer_slot < kSlots) --peer->locks_[posted.peer_slot];
}

bool Endpoint::try_ended_window() {
  if (peer->window_ != Window::kUnbound || peer->window_endings_ == 0) return false;
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(slot(kSource, 0)), 64, mr->lkey()};
  std::memset(slot(kSource, 0), 0xDD, 64);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = next_id_;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(peer->slot(kWindow, 0)), peer->window_key_};
  if (qp->post_send(&wr, &bad) != 0) error("post_send");
  refusal_ = peer->refusal_ = Refusal::kWanted;
  return true;
}

void Endpoint::completed(const ibv_wc& wc) {
  if (refusal_ != Refusal::kNone) {
    if (wc.wr_id >> 63 == 0 && wc.status == IBV_WC_REM_ACCESS_ERR) {
      refusal_ = Refusal::kSeen;
    } else if (wc.status != IBV_WC_WR_FLUSH_ERR) {
      error("a write through an ended window has status " + std::to_string(wc.status));
    }
    return;
  }
  if (wc.status != IBV_WC_SUCCESS) {
    error("completion " + std::to_string(wc.wr_id) + " with status " + std::to_string(wc.status));
    return;
  }
  const bool is_received = wc.wr_id >> 63 != 0 || (wc.opcode & IBV_WC_RECV) != 0;
  const device::Qp* const by = target != nullptr && is_received ? target : qp;
  if (wc.qp_num != by->qpn()) error("completion of another QP");
  if (wc.wr_id >> 63 == 0) {
    // Requests that were not signalled complete silently with the next one that was.
    while (!posted_.empty() && !posted_.front().signaled && posted_.front().id < wc.wr_id) {
      retire(posted_.front());
      posted_.pop_front();
    }
    if (posted_.empty() || posted_.front().id != wc.wr_id) {
      error("completion of " + std::to_string(wc.wr_id) +
            " out of order, doubled, or not asked for");
      return;
    }
    const Posted& posted = posted_.front();
    static constexpr ibv_wc_opcode kOpcodes[] = {
        IBV_WC_SEND,       IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD,
        IBV_WC_RDMA_WRITE, IBV_WC_BIND_MW,    IBV_WC_LOCAL_INV,  IBV_WC_SEND};
    const ibv_wc_opcode wanted = kOpcodes[static_cast<std::size_t>(posted.kind)];
    if (wc.opcode != wanted) error("opcode " + std::to_string(wc.opcode));
    retire(posted);
    posted_.pop_front();
    return;
  }
  const std::byte* received = nullptr;
  if (shared != nullptr) {
    received = shared->take(wc.wr_id);
  } else if (!receives_.empty()) {
    received = slot(kReceive, receives_.front().slot);
    if (wc.wr_id != receives_.front().id) error("receives completed out of order");
    receives_.pop_front();
  }
  if (received == nullptr || expected_.empty()) {
    error("a message that nobody sent");
    return;
  }
  const Expected expected = std::move(expected_.front());
  expected_.pop_front();
  if (wc.byte_len != expected.length) error("a message of another length");
  if (((wc.wc_flags & IBV_WC_WITH_IMM) != 0) != expected.has_immediate ||
      (expected.has_immediate && wc.imm_data != expected.immediate)) {
    error("another immediate");
  }
  const bool invalidates = expected.kind == Kind::kWindowRemote;
  if (((wc.wc_flags & IBV_WC_WITH_INV) != 0) != invalidates ||
      (invalidates && wc.invalidated_rkey != expected.invalidated)) {
    error("another key was invalidated");
  }
  if (invalidates) {
    window_ = Window::kUnbound;
    ++window_endings_;
  }
  const bool write = expected.kind == Kind::kWriteImm;
  if (wc.opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
    error("a message of another kind");
  const std::byte* got = write ? slot(kRegion, expected.slot) : received;
  if (!std::equal(expected.content.begin(), expected.content.end(), got)) {
    error("a message with other bytes, or in another order");
  }
  if (write) --locks_[expected.slot];
}

void Endpoint::check() {
  for (unsigned i = 0; i < kSlots; ++i) {
    if (std::memcmp(slot(kRegion, i), meant_[i].data(), kSlotBytes) != 0) {
      error("region " + std::to_string(i) + " differs from what was written");
    }
  }
  if (std::memcmp(slot(kCounter, 0), &counted_, sizeof counted_) != 0) {
    error("atomics were lost or doubled");
  }
  if (std::memcmp(slot(kWindow, 0), window_content_.data(), kSlotBytes) != 0) {
    error("the window differs from what was written through it");
  }
  if (!expected_.empty()) error(std::to_string(expected_.size()) + " messages lost");
}

std::string Endpoint::describe() const {
  return name_ + ": " + std::to_string(posted_.size()) + " requests outstanding, " +
         std::to_string(receives_.size()) + " receives posted, " +
         std::to_string(expected_.size()) + " messages to come";
}

}  // namespace ferry::rnic::testing
