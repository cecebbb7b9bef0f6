#include "rnic/system/port_source.h"

#include "port/udp_port.h"

namespace ferry::rnic {
namespace {

class UdpPortSource final : public PortSource {
 public:
  explicit UdpPortSource(const Settings& settings) : loss_(settings.loss) {}

  std::unique_ptr<port::Port> bind(const port::Address& address, std::uint32_t slot,
                                   int* error) override {
    return loss_.on(port::UdpPort::bind(address, slot, error));
  }
  std::unique_ptr<port::Port> adopt(int descriptor, int* error) override {
    return loss_.on(port::UdpPort::adopt(descriptor, error));
  }
  std::unique_ptr<port::Port> join(const port::Address& group, const port::Address& local,
                                   int* error) override {
    return loss_.on(port::UdpPort::join(group, local, error));
  }
  int release(port::Port& port) override { return port.release(); }
  std::uint64_t injected_losses() const override { return loss_.packets(); }

 private:
  port::Loss loss_;
};

}  // namespace

std::unique_ptr<PortSource> udp_port_source(const Settings& settings) {
  return std::make_unique<UdpPortSource>(settings);
}

}  // namespace ferry::rnic
