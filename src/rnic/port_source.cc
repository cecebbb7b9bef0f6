#include "rnic/port_source.h"

#include "port/lossy_port.h"
#include "port/udp_port.h"

namespace ferry::rnic {
namespace {

class UdpPortSource final : public PortSource {
 public:
  explicit UdpPortSource(const Settings& settings)
      : loss_(settings.fault_loss), seed_(settings.fault_seed) {}

  std::unique_ptr<port::Port> bind(const port::Address& address, std::uint32_t slot,
                                   int* error) override {
    return wrap(port::UdpPort::bind(address, slot, error));
  }
  std::unique_ptr<port::Port> adopt(int descriptor, int* error) override {
    return wrap(port::UdpPort::adopt(descriptor, error));
  }
  std::unique_ptr<port::Port> join(const port::Address& group, const port::Address& local,
                                   int* error) override {
    return port::UdpPort::join(group, local, error);
  }
  int release(port::Port& port) override {
    if (loss_ > 0)
      return static_cast<port::UdpPort&>(static_cast<port::LossyPort&>(port).inner()).release();
    return static_cast<port::UdpPort&>(port).release();
  }

 private:
  std::unique_ptr<port::Port> wrap(std::unique_ptr<port::UdpPort> port) const {
    if (port == nullptr || loss_ <= 0) return port;
    return std::make_unique<port::LossyPort>(std::move(port), loss_, seed_);
  }
  double loss_;
  unsigned long seed_;
};

}  // namespace

std::unique_ptr<PortSource> udp_port_source(const Settings& settings) {
  return std::make_unique<UdpPortSource>(settings);
}

}  // namespace ferry::rnic
