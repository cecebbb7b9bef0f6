#include "pipe/policy/access_list.h"

#include <algorithm>

namespace ferry::pipe {

std::uint32_t AccessList::add(Rule rule, std::uint32_t before) {
  const auto place = std::find_if(rules_.begin(), rules_.end(),
                                  [&](const Rule& each) { return each.number == before; });
  if (rules_.size() >= kMost || (before != 0 && place == rules_.end())) return 0;
  rule.number = next_number_++;
  return rules_.insert(place, rule)->number;
}

bool AccessList::remove(std::uint32_t number) {
  return std::erase_if(rules_, [&](const Rule& each) { return each.number == number; }) != 0;
}

bool AccessList::allows(const SocketAddress& from, const SocketAddress& to) const {
  const auto met = std::find_if(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    return (rule.port == 0 || rule.port == to.port) && rule.from.has(from) && rule.to.has(to);
  });
  return met == rules_.end() || met->allows;
}

}  // namespace ferry::pipe
