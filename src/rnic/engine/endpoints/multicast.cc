#include "rnic/engine/endpoints/multicast.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ferry::rnic {

std::vector<std::unique_ptr<MulticastGroups::Group>>::iterator MulticastGroups::find(
    const port::Address& group) {
  return std::find_if(groups_.begin(), groups_.end(),
                      [&](const auto& known) { return known->address == group; });
}

int MulticastGroups::attach(QueuePair* qp, const port::Address& group, const port::Address* local) {
  const auto known = find(group);
  if (known != groups_.end()) {
    auto& members = (*known)->members;
    if (std::count(members.begin(), members.end(), qp) > 0) return 0;
    if (members.size() >= kMaxMembers) return ENOMEM;
    members.push_back(qp);
    return 0;
  }
  if (groups_.size() >= kMaxGroups) return ENOMEM;
  auto made = std::make_unique<Group>();
  made->address = group;
  made->members.push_back(qp);
  if (local != nullptr) {
    int error = EOPNOTSUPP;
    if (join_) made->port = join_(group, *local, &error);
    if (made->port == nullptr) return error;
  }
  groups_.push_back(std::move(made));
  return 0;
}

int MulticastGroups::detach(QueuePair* qp, const port::Address& group) {
  const auto known = find(group);
  if (known == groups_.end() || std::erase((*known)->members, qp) == 0) return EINVAL;
  if ((*known)->members.empty()) groups_.erase(known);
  return 0;
}

void MulticastGroups::forget(QueuePair* qp) {
  for (const auto& group : groups_) std::erase(group->members, qp);
  std::erase_if(groups_, [](const auto& group) { return group->members.empty(); });
}

std::vector<port::Address> MulticastGroups::groups_of(const QueuePair* qp) const {
  std::vector<port::Address> result;
  for (const auto& group : groups_) {
    if (std::count(group->members.begin(), group->members.end(), qp) > 0) {
      result.push_back(group->address);
    }
  }
  return result;
}

void MulticastGroups::close() {
  for (const auto& group : groups_) group->port.reset();
}

void MulticastGroups::abandon() {
  for (const auto& group : groups_) {
    if (group->port == nullptr) continue;
    ::close(group->port->descriptor());
    (void)group->port.release();
  }
}

void MulticastGroups::open(const port::Address& local) {
  for (const auto& group : groups_) {
    if (group->port != nullptr || group->address.is_ipv4() != local.is_ipv4() || !join_) continue;
    int error = 0;
    group->port = join_(group->address, local, &error);
  }
}

}  // namespace ferry::rnic
