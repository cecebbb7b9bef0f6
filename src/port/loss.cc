#include "port/loss.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ferry::port {

class Loss::LossyPort final : public Port {
 public:
  LossyPort(std::unique_ptr<Port> inner, Loss& loss) : inner_(std::move(inner)), loss_(loss) {}

  Endpoint local() const override { return inner_->local(); }
  std::span<std::byte> reserve(const Endpoint& to, std::size_t length,
                               std::uint16_t* ip_identification) override {
    last_was_lost_ = length <= kMaxPacket && loss_.random_.chance(loss_.settings_.sending);
    if (!last_was_lost_) return inner_->reserve(to, length, ip_identification);
    ++loss_.packets_;
    *ip_identification = 0;
    return std::span(discarded_).first(length);
  }
  bool use_multicast_hops(std::uint8_t hops) override { return inner_->use_multicast_hops(hops); }
  void unreserve() override {
    if (last_was_lost_) {
      --loss_.packets_;
    } else {
      inner_->unreserve();
    }
  }
  bool flush() override { return inner_->flush(); }
  std::size_t receive(std::span<Received> out) override {
    return loss_.settings_.receiving > 0 ? receive_some(out) : inner_->receive(out);
  }
  int descriptor() const override { return inner_->descriptor(); }
  std::size_t window_bytes() const override { return inner_->window_bytes(); }
  int release() override { return inner_->release(); }

 private:
  // Callers take fewer packets than they asked for to mean that no more wait. So the inner port is
  // asked again in place of lost packets; kept_ has copies of the others, which that overwrites.
  std::size_t receive_some(std::span<Received> out) {
    if (kept_.size() < out.size()) kept_.resize(out.size());
    std::size_t count = 0;
    while (count < out.size()) {
      const auto arrived = out.subspan(count);
      const std::size_t asked = arrived.size();
      const std::size_t got = inner_->receive(arrived);
      for (const Received& packet : arrived.first(got)) {
        if (loss_.random_.chance(loss_.settings_.receiving)) {
          ++loss_.packets_;
          continue;
        }
        auto& kept = kept_[count];
        std::copy(packet.bytes.begin(), packet.bytes.end(), kept.begin());
        out[count++] = {packet.from, std::span(kept).first(packet.bytes.size()),
                        packet.ip_identification};
      }
      if (got == 0 || (got < asked && count > 0)) break;
    }
    return count;
  }

  const std::unique_ptr<Port> inner_;
  Loss& loss_;
  std::array<std::byte, kMaxPacket> discarded_;
  bool last_was_lost_ = false;
  std::vector<std::array<std::byte, kMaxPacket>> kept_;
};

std::unique_ptr<Port> Loss::on(std::unique_ptr<Port> port) {
  if (port == nullptr || (settings_.sending <= 0 && settings_.receiving <= 0)) return port;
  return std::make_unique<LossyPort>(std::move(port), *this);
}

}  // namespace ferry::port
