#include "virtual/receives/receive_index.h"

#include <algorithm>
#include <thread>

namespace ferry::virt {
namespace {

constexpr int kTries = 100;  // to find a receive that is not noted yet

bool are_same(const PostedReceives::Receive& one, const PostedReceives::Receive& other) {
  return std::equal(one.elements.begin(), one.elements.end(), other.elements.begin(),
                    other.elements.end(), [](const ibv_sge& a, const ibv_sge& b) {
                      return a.addr == b.addr && a.length == b.length && a.lkey == b.lkey;
                    });
}

}  // namespace

std::optional<PostedReceives::Receive> ReceiveIndex::recent(PostedReceives& noted,
                                                            std::uint32_t at) {
  return noted.posted() - at <= noted.room() / 2 ? noted.find(at) : std::nullopt;
}

void ReceiveIndex::enter(PostedReceives& noted, std::uint32_t at) {
  const auto receive = recent(noted, at);
  if (!receive) return;
  const auto [found, is_new] = entries_.try_emplace(receive->wr_id, Entry{at, {}});
  if (is_new) return;
  Entry& entry = found->second;
  const auto before = recent(noted, entry.at);
  if (before && !are_same(*before, *receive)) entry.another = entry.at;
  entry.at = at;
}

void ReceiveIndex::catch_up(PostedReceives& noted) {
  const std::uint32_t posted = noted.posted();
  const std::uint32_t half = noted.room() / 2;
  if (posted - entered_ > half) entered_ = posted - half;
  for (; entered_ != posted; ++entered_) enter(noted, entered_);
  if (entries_.size() > noted.room())
    std::erase_if(entries_, [&](const auto& each) { return posted - each.second.at > half; });
}

// Waits a moment: the thread that has posted the receive may not have noted it yet.
std::optional<PostedReceives::Receive> ReceiveIndex::find(PostedReceives& noted,
                                                          std::uint64_t wr_id) {
  std::lock_guard lock(mutex_);
  auto found = entries_.end();
  for (int tries = 0; found == entries_.end() && tries < kTries; ++tries) {
    if (tries > 0) std::this_thread::yield();
    catch_up(noted);
    found = entries_.find(wr_id);
  }
  if (found == entries_.end()) return std::nullopt;
  const Entry& entry = found->second;
  const bool has_another = entry.another && recent(noted, *entry.another);
  return has_another ? std::nullopt : recent(noted, entry.at);
}

}  // namespace ferry::virt
