// Drops the requests that a rule denies.

#include <algorithm>

#include "function.h"

namespace nf_chain {
namespace {

class Firewall : public Function {
 public:
  explicit Firewall(Rules denied) : denied_(std::move(denied)) {}
  const char* name() const override { return "firewall"; }

  bool process(const Header& header, const char* payload, std::vector<Output>& outputs) override {
    const bool denied = std::any_of(denied_.begin(), denied_.end(), [&](const Rule& rule) {
      return rule.matches(header.source, header.port);
    });
    if (denied) return false;
    outputs[0].copy(header, payload);
    return true;
  }

 private:
  const Rules denied_;
};

}  // namespace

std::unique_ptr<Function> make_firewall(Rules denied) {
  return std::make_unique<Firewall>(std::move(denied));
}

}  // namespace nf_chain
