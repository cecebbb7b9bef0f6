#include "virtual/stop/returns.h"

namespace ferry::virt {

std::uint64_t Returns::add_marker(bool asks) {
  std::lock_guard lock(mutex_);
  // The upper bits are the address of this object of Ferry's: no application counts that far, and none
  // has a pointer of this form.
  if (next_marker_ == 0) next_marker_ = reinterpret_cast<std::uintptr_t>(this) << 16;
  const std::uint64_t marker = ++next_marker_;
  markers_.emplace(marker, asks);
  update();
  return marker;
}

void Returns::withdraw(std::uint64_t marker) {
  std::lock_guard lock(mutex_);
  markers_.erase(marker);
  update();
}

bool Returns::is_out(std::uint64_t marker) const {
  std::lock_guard lock(mutex_);
  return markers_.count(marker) > 0;
}

bool Returns::has_failed(std::uint64_t marker) {
  std::lock_guard lock(mutex_);
  return failed_.erase(marker) > 0;
}

void Returns::count_flushed(std::uint32_t qpn, std::uint32_t* flushed) {
  std::lock_guard lock(mutex_);
  if (flushed != nullptr) {
    flushed_[qpn] = flushed;
  } else {
    flushed_.erase(qpn);
  }
  update();
}

void Returns::count_taken(std::uint32_t qpn) {
  std::lock_guard lock(mutex_);
  taken_[qpn] = 0;
  update();
}

std::uint32_t Returns::taken(std::uint32_t qpn) const {
  std::lock_guard lock(mutex_);
  return taken_.at(qpn);
}

void Returns::forget_taken(std::uint32_t qpn) {
  std::lock_guard lock(mutex_);
  taken_.erase(qpn);
  update();
}

void Returns::note_use(std::uint32_t qpn) {
  std::lock_guard lock(mutex_);
  used_[qpn] = false;
  update();
}

void Returns::keep_use(std::uint32_t qpn) {
  std::lock_guard lock(mutex_);
  if (const auto used = used_.find(qpn); used != used_.end()) used->second = true;
}

bool Returns::forget_use(std::uint32_t qpn) {
  std::lock_guard lock(mutex_);
  const auto found = used_.find(qpn);
  const bool was_used = found != used_.end() && found->second;
  if (found != used_.end()) used_.erase(found);
  update();
  return was_used;
}

void Returns::update() {
  sifts_.store(!markers_.empty() || !flushed_.empty() || !taken_.empty() || !used_.empty(),
               std::memory_order_release);
}

bool Returns::is_ours(const ibv_wc& completion) {
  const auto marker = markers_.find(completion.wr_id);
  if (marker != markers_.end()) {
    if (marker->second && completion.status != IBV_WC_SUCCESS) failed_.insert(marker->first);
    markers_.erase(marker);
    update();
    return true;
  }
  if (const auto taken = taken_.find(completion.qp_num); taken != taken_.end()) {
    ++taken->second;
    return true;
  }
  // Of a failed completion only wr_id, status, qp_num and vendor_err mean something. The send queue of a
  // QP is empty before the QP is flushed, so all flushed completions are of receives.
  if (completion.status != IBV_WC_WR_FLUSH_ERR) return false;
  const auto counted = flushed_.find(completion.qp_num);
  if (counted == flushed_.end()) return false;
  ++*counted->second;
  return true;
}

int Returns::sift(ibv_wc* completions, int count) {
  std::lock_guard lock(mutex_);
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    ibv_wc& completion = completions[i];
    if (is_ours(completion)) continue;
    if (const auto used = used_.find(completion.qp_num); used != used_.end()) used->second = true;
    completions[kept++] = completion;
  }
  return kept;
}

}  // namespace ferry::virt
