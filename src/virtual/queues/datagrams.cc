#include "virtual/queues/datagrams.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "virtual/queues/queue_pair.h"
#include "virtual/shadows/address_handle.h"
#include "virtual/shadows/objects.h"
#include "wire/grh.h"

namespace ferry::virt {
namespace {

constexpr std::chrono::seconds kUnderWay{2};

using Grh = std::array<std::byte, wire::kGrhSize>;

// Copies the first bytes of a receive, which can be in several elements, to *grh, or *grh to them. False:
// the receive is shorter, or memory_of() does not know its memory.
template <typename MemoryOf>
bool copy_grh(std::span<const ibv_sge> elements, Grh* grh, bool to_elements, MemoryOf memory_of) {
  std::size_t done = 0;
  for (const ibv_sge& element : elements) {
    const std::size_t length = std::min<std::size_t>(element.length, grh->size() - done);
    std::byte* const memory = memory_of(element, length);
    if (memory == nullptr) return false;
    std::byte* const here = grh->data() + done;
    if (to_elements) {
      std::memcpy(memory, here, length);
    } else {
      std::memcpy(here, memory, length);
    }
    done += length;
    if (done == grh->size()) return true;
  }
  return false;
}

}  // namespace

// --- Objects

void Datagrams::add(Ah& ah) {
  std::lock_guard lock(mutex_);
  ahs_[ah.handle()] = &ah;
}

void Datagrams::remove(const Ah& ah) {
  std::lock_guard lock(mutex_);
  // The device may have given the number of this AH to another one.
  const auto found = ahs_.find(ah.handle());
  if (found != ahs_.end() && found->second == &ah) ahs_.erase(found);
}

bool Datagrams::has_ah(std::uint32_t handle) const {
  std::shared_lock lock(mutex_);
  return ahs_.count(handle) > 0;
}

void Datagrams::add(Qp& qp) {
  std::lock_guard lock(mutex_);
  taken_.set(qp.qpn(), 0);
  qps_[qp.qpn()] = &qp;
}

void Datagrams::remove(const Qp& qp) {
  std::lock_guard lock(mutex_);
  const auto found = qps_.find(qp.qpn());
  if (found == qps_.end() || found->second != &qp) return;
  taken_.erase(qp.qpn());
  qps_.erase(found);
}

void Datagrams::add(const Mr& mr) {
  if (mr.is_null) return;
  std::lock_guard lock(mutex_);
  regions_[mr.lkey()] = {&mr, mr.init.address, mr.init.iova, mr.init.length};
}

void Datagrams::remove(const Mr& mr) {
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(mr.lkey());
  if (found != regions_.end() && found->second.mr == &mr) regions_.erase(found);
}

// --- Names

Datagrams::Ways Datagrams::ways_of(const std::vector<device::DatagramQps>& qps) {
  Ways ways;
  for (const device::DatagramQps& of_context : qps) {
    for (const auto& gid : of_context.gids) {
      for (const auto& qpn : of_context.qpns) {
        const Name known{gid.known, qpn.known}, real{gid.real, qpn.real};
        ways.real.emplace(known, real);
        ways.known.emplace(real, known);
      }
    }
  }
  return ways;
}

void Datagrams::set_others(const std::vector<device::DatagramQps>& qps) {
  Ways ways = ways_of(qps);
  std::lock_guard lock(mutex_);
  std::swap(others_, ways);
  formerly_known_ = std::move(ways.known);
  changed_at_ = Clock::now();
  if (!others_.real.empty()) are_used_.store(true, std::memory_order_release);
}

void Datagrams::set_own(const device::DatagramQps& qps) {
  Ways ways = ways_of({qps});
  std::map<port::Address, port::Address> gids;
  for (const auto& gid : qps.gids) gids.emplace(gid.real, gid.known);
  std::lock_guard lock(mutex_);
  std::swap(own_, ways);
  std::swap(own_gids_, gids);
  are_used_.store(true, std::memory_order_release);
}

bool Datagrams::has(const Name& known) const {
  std::shared_lock lock(mutex_);
  return others_.real.count(known) > 0;
}

std::vector<port::Address> Datagrams::places_of(const port::Address& known) const {
  std::set<port::Address> places;
  std::shared_lock lock(mutex_);
  for (const Names* names : {&others_.real, &own_.real}) {
    for (auto at = names->lower_bound({known, 0}); at != names->end() && at->first.gid == known;
         ++at) {
      if (at->second.gid != known) places.insert(at->second.gid);
    }
  }
  return {places.begin(), places.end()};
}

void Datagrams::add_way(Ah& ah, const port::Address& gid, device::Ah& object) {
  std::lock_guard lock(mutex_);
  ah.add_way(gid, object);
}

std::vector<device::Ah*> Datagrams::take_ways(Ah& ah) {
  std::lock_guard lock(mutex_);
  return ah.leave_ways();
}

void Datagrams::enter_device(Ah& ah, device::Ah& object) {
  std::lock_guard lock(mutex_);
  ah.enter_device(object);
}

const Datagrams::Name* Datagrams::real_of(const Name& known) const {
  for (const Names* names : {&own_.real, &others_.real}) {
    if (const auto found = names->find(known); found != names->end()) return &found->second;
  }
  return nullptr;
}

const Datagrams::Name* Datagrams::known_of(const Name& real) const {
  for (const Names* names : {&own_.known, &others_.known}) {
    if (const auto found = names->find(real); found != names->end()) return &found->second;
  }
  const auto formerly = formerly_known_.find(real);
  const bool counts = formerly != formerly_known_.end() && Clock::now() - changed_at_ < kUnderWay;
  return counts ? &formerly->second : nullptr;
}

// --- Data path

bool Datagrams::address(ibv_send_wr* request) const {
  auto& ud = request->wr.ud;
  if (ud.ah == nullptr) return false;
  std::shared_lock lock(mutex_);
  const auto found = ahs_.find(ud.ah->handle);
  if (found == ahs_.end()) return false;
  Ah& ah = *found->second;
  const Name* const real = real_of({ah.destination(), ud.remote_qpn});
  ibv_ah* const way = real != nullptr ? ah.way_to(real->gid) : nullptr;
  if (way != nullptr) ud.remote_qpn = real->qpn;
  // A datagram to a place for which the device gave no AH goes to the former place of the QP, and is lost,
  // as datagrams may be.
  ud.ah = way != nullptr ? way : ah.direct_way();
  return true;
}

std::byte* Datagrams::memory_of(const ibv_sge& element, std::size_t length) const {
  const auto found = regions_.find(element.lkey);
  if (found == regions_.end()) return nullptr;
  const Region& region = found->second;
  const std::uint64_t offset = element.addr - region.iova;
  if (element.addr < region.iova || offset > region.length || length > region.length - offset)
    return nullptr;
  return static_cast<std::byte*>(region.address) + offset;
}

void Datagrams::arrived(ibv_wc* completion) const {
  if (completion->status != IBV_WC_SUCCESS || (completion->opcode & IBV_WC_RECV) == 0 ||
      (completion->wc_flags & IBV_WC_GRH) == 0)
    return;
  std::shared_lock lock(mutex_);
  const auto found = qps_.find(completion->qp_num);
  if (found == qps_.end()) return;
  const auto receive = found->second->posted_receive(taken_[completion->qp_num], completion->wr_id);
  if (!receive) return;
  const auto memory = [&](const ibv_sge& element, std::size_t length) {
    return memory_of(element, length);
  };
  Grh grh;
  if (!copy_grh(receive->elements, &grh, false, memory)) return;
  auto addresses = wire::parse_grh(grh);
  if (!addresses) return;
  const Name* const sender = known_of({addresses->source, completion->src_qp});
  const auto own = own_gids_.find(addresses->destination);
  if (sender == nullptr && own == own_gids_.end()) return;
  if (sender != nullptr) {
    completion->src_qp = sender->qpn;
    addresses->source = sender->gid;
  }
  if (own != own_gids_.end()) addresses->destination = own->second;
  wire::readdress_grh(*addresses, grh);
  copy_grh(receive->elements, &grh, true, memory);
}

}  // namespace ferry::virt
