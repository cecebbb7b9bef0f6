#include "answers.h"

#include <cstring>
#include <string>

#include "../carriers/failure.h"

namespace nf_chain {
namespace {

[[noreturn]] void wrong(std::size_t number, const char* what) {
  carriers::give_up_plainly(("request " + std::to_string(number) + " " + what).c_str());
}

}  // namespace

void Answers::take(std::size_t worker, const Header& header, const char* content) {
  const std::size_t number = header.number;
  if (number >= traffic_.count()) wrong(number, "was never sent");
  if (answered_[number]) wrong(number, "was answered twice");
  if (traffic_.is_denied(number)) wrong(number, "is denied, and has passed the firewall");
  if (header.size != sizeof header + traffic_.content_size() ||
      std::memcmp(content, traffic_.content(number), traffic_.content_size()) != 0) {
    wrong(number, "has come with another content");
  }
  const std::uint64_t flow = std::uint64_t{header.source} << 16 | header.port;
  if (workers_of_flows_.try_emplace(flow, worker).first->second != worker) {
    wrong(number, "was given to another worker than the request before it of the same flow");
  }
  answered_[number] = true;
  ++of_worker_[worker];
  ++count_;
}

void Answers::check() const {
  for (std::size_t number = 0; number < traffic_.count(); ++number) {
    if (!answered_[number] && !traffic_.is_denied(number)) wrong(number, "was not answered");
  }
  // Few flows may go anywhere.
  const std::size_t share = count_ / of_worker_.size();
  const bool are_many = workers_of_flows_.size() >= 100 * of_worker_.size();
  for (std::size_t worker = 0; are_many && worker < of_worker_.size(); ++worker) {
    if (of_worker_[worker] >= share / 4) continue;
    carriers::give_up_plainly(("the balancer has given worker " + std::to_string(worker) + " " +
                               std::to_string(of_worker_[worker]) + " requests, and others " +
                               std::to_string(share))
                                  .c_str());
  }
}

}  // namespace nf_chain
