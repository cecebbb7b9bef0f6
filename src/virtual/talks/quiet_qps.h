#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "virtual/queues/queue_pair.h"

namespace ferry::virt {

// Finds the QPs over which nothing goes: the device tells the PSNs of a QP, and numbers each packet that it sends, and
// each that it receives. So the data path does not have to count anything. No QP is destroyed while a function runs;
// the QPs have objects behind.
class QuietQps {
 public:
  // Notes where these QPs are now, and forgets all others.
  void look(const std::vector<Qp*>& qps);
  // Whether look() has noted the QP, and no packet has gone over it since.
  bool is_quiet(const Qp& qp) const;

 private:
  struct Psns {
    std::uint32_t sent = 0, received = 0;
    bool operator==(const Psns&) const = default;
  };
  // Nothing: the device does not tell.
  static std::optional<Psns> psns_of(const Qp& qp);

  std::unordered_map<std::uint32_t, Psns> noted_;  // by QPN, as the application knows it
};

}  // namespace ferry::virt
