// Chooses a worker for each request: all requests of a flow, which is a source and a port, go to the same one.

#include "function.h"

namespace nf_chain {
namespace {

class Balancer : public Function {
 public:
  const char* name() const override { return "balancer"; }

  bool process(const Header& header, const char* payload, std::vector<Output>& outputs) override {
    outputs[hash(header) % outputs.size()].copy(header, payload);
    return true;
  }

 private:
  // Flows that differ in some bits only go anywhere: a multiplication carries them to the upper bits.
  static std::uint32_t hash(const Header& header) {
    const std::uint64_t flow = std::uint64_t{header.source} << 16 | header.port;
    return static_cast<std::uint32_t>((flow * 0x9E3779B97F4A7C15u) >> 32);
  }
};

}  // namespace

std::unique_ptr<Function> make_balancer() {
  return std::make_unique<Balancer>();
}

}  // namespace nf_chain
