#include "rnic/discover.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "device/own_names.h"
#include "gsi/local.h"
#include "rnic/attributes.h"
#include "rnic/context.h"

namespace ferry::rnic {
namespace {

class NetdevRnic final : public device::MovableRnic {
 public:
  NetdevRnic(std::string name, Netdev netdev, const Settings& settings)
      : name_(std::move(name)), netdev_(std::move(netdev)), settings_(settings) {}

  const std::string& name() const override { return name_; }
  const std::string& netdev() const override { return netdev_.name; }
  std::uint64_t guid() const override { return netdev_.guid; }

  int query(device::PortFacts* out) override {
    describe_port(netdev_, payload_mtu(netdev_.mtu), netdev_.addresses.size(), &out->attributes);
    for (const port::Address& address : netdev_.addresses) {
      const auto index = static_cast<unsigned>(out->gids.size());
      describe_gid(netdev_, address, index, &out->gids.emplace_back());
    }
    return 0;
  }

  std::vector<ibv_gid> addresses() const override {
    std::vector<ibv_gid> gids;
    for (const port::Address& address : netdev_.all_addresses) {
      std::memcpy(gids.emplace_back().raw, address.bytes.data(), address.bytes.size());
    }
    return gids;
  }

  std::unique_ptr<device::MovableContext> open_movable(device::EventSink& sink,
                                                       device::MoveSink& moves, int* error) override
      try {
    Context::Options options;
    options.sink = &sink;
    options.moves = &moves;
    options.environment = &system_environment();
    options.ports = udp_port_source(settings_);
    options.settings = settings_;
    options.netdev = netdev_;
    options.management = gsi::take;
    return Context::open(options, error);
  } catch (const std::bad_alloc&) {
    *error = ENOMEM;
    return nullptr;
  }

 private:
  const std::string name_;
  const Netdev netdev_;
  const Settings settings_;
};

std::vector<std::unique_ptr<device::MovableRnic>> discover_by(const Settings& settings) try {
  std::vector<std::unique_ptr<device::MovableRnic>> rnics;
  for (Netdev& netdev : list_netdevs(settings)) {
    rnics.push_back(
        std::make_unique<NetdevRnic>(device::own_name(rnics.size()), std::move(netdev), settings));
  }
  return rnics;
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace

std::vector<std::unique_ptr<device::MovableRnic>> discover() try {
  return discover_by(settings_from_environment());
} catch (const std::bad_alloc&) {
  return {};
}

std::unique_ptr<device::MovableRnic> find(const std::string& name) try {
  Settings settings = settings_from_environment();
  settings.netdevs.clear();
  settings.use_ipv4 = settings.use_ipv6 = true;
  for (auto& rnic : discover_by(settings)) {
    if (rnic->name() == name) return std::move(rnic);
  }
  return nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

}  // namespace ferry::rnic
