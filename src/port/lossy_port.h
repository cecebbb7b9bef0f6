#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "port/port.h"
#include "port/random.h"

namespace ferry::port {

// A port that loses each outgoing packet with the same probability: faults on demand where no link
// can be made lossy.
class LossyPort : public Port {
 public:
  LossyPort(std::unique_ptr<Port> inner, double probability, std::uint64_t seed)
      : inner_(std::move(inner)), probability_(probability), random_(seed) {}

  Endpoint local() const override { return inner_->local(); }
  std::span<std::byte> reserve(const Endpoint& to, std::size_t length,
                               std::uint16_t* ip_identification) override {
    last_was_lost_ = length <= kMaxPacket && random_.chance(probability_);
    if (!last_was_lost_) return inner_->reserve(to, length, ip_identification);
    ++packets_lost_;
    *ip_identification = 0;
    return std::span(discarded_).first(length);
  }
  bool use_multicast_hops(std::uint8_t hops) override { return inner_->use_multicast_hops(hops); }
  void unreserve() override {
    if (last_was_lost_) {
      --packets_lost_;
    } else {
      inner_->unreserve();
    }
  }
  bool flush() override { return inner_->flush(); }
  std::size_t receive(std::span<Received> out) override { return inner_->receive(out); }
  int descriptor() const override { return inner_->descriptor(); }
  std::size_t window_bytes() const override { return inner_->window_bytes(); }

  Port& inner() { return *inner_; }
  std::uint64_t packets_lost() const { return packets_lost_; }

 private:
  std::unique_ptr<Port> inner_;
  double probability_;
  SplitMix64 random_;
  std::array<std::byte, kMaxPacket> discarded_;
  bool last_was_lost_ = false;
  std::uint64_t packets_lost_ = 0;
};

}  // namespace ferry::port
