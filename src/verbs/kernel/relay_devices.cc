#include "verbs/kernel/relay_devices.h"

#include <endian.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/gids.h"
#include "device/parcel.h"
#include "verbs/devices.h"
#include "verbs/kernel/fork.h"
#include "verbs/process.h"

namespace ferry::verbs {
namespace {

// As ibv_get_device_guid() gives it in the byte order of the host; 0: there is no such device.
std::uint64_t guid_here(const std::string& device) {
  std::ifstream file("/sys/class/infiniband/" + device + "/node_guid");  // 5054:00ff:fe12:3456
  std::string text;
  std::getline(file, text);
  std::erase(text, ':');
  return std::strtoull(text.c_str(), nullptr, 16);
}

// A device as the program knows it, and its name on this host.
struct KnownDevice {
  std::uint64_t guid = 0;
  int index = 0;
  std::string name_here;
};

std::vector<KnownDevice> known_devices() {
  std::vector<KnownDevice> devices;
  if (Process* p = process_if_any()) {
    std::lock_guard lock(p->mutex);
    for (Context* context : p->contexts) {
      const std::string name = device::device_behind(context->device->place());
      if (!name.empty()) devices.push_back({context->rnic->guid(), context->rnic->index(), name});
    }
  }
  visit_kernel_devices([&](device::Rnic& rnic) {
    const bool is_open =
        std::any_of(devices.begin(), devices.end(),
                    [&](const KnownDevice& device) { return device.guid == rnic.guid(); });
    if (!is_open) devices.push_back({rnic.guid(), rnic.index(), rnic.name()});
  });
  return devices;
}

// Calls `use` with the open contexts of the device, if there are some. None of them ends meanwhile.
template <typename Use>
void with_contexts(__be64 guid, Use use) {
  Process* p = process_if_any();
  if (p == nullptr) return;
  std::lock_guard lock(p->mutex);
  std::vector<device::MovableContext*> contexts;
  for (Context* context : p->contexts) {
    if (context->rnic->guid() == be64toh(guid)) contexts.push_back(context->device.get());
  }
  if (!contexts.empty()) use(contexts);
}

}  // namespace

void RelayDevices::rename_device(__be64* guid, std::uint32_t* index) {
  const std::uint64_t here = be64toh(*guid);
  const std::vector<KnownDevice> devices = known_devices();
  // Devices of several VLANs have one GUID.
  const auto is_this = [&](const KnownDevice& device) {
    return device.guid == here && device.index == static_cast<int>(*index);
  };
  if (std::any_of(devices.begin(), devices.end(), is_this)) return;
  const auto is_it = [&](const KnownDevice& device) { return device.guid == here; };
  auto found = std::find_if(devices.begin(), devices.end(), is_it);
  if (found == devices.end()) {
    found = std::find_if(devices.begin(), devices.end(), [&](const KnownDevice& device) {
      return guid_here(device.name_here) == here;
    });
  }
  if (found == devices.end()) return;
  *guid = htobe64(found->guid);
  *index = static_cast<std::uint32_t>(found->index);
}

void RelayDevices::rename_path(__be64 guid, ib_uverbs_ah_attr* path) {
  if (path->is_global == 0) return;
  with_contexts(guid, [&](const std::vector<device::MovableContext*>& contexts) {
    path->grh.sgid_index = device::name_gid(contexts, path->port_num, path->grh.sgid_index);
  });
}

relay::Connections RelayDevices::connections() {
  relay::Connections connections;
  Process* p = process_if_any();
  if (p == nullptr) return connections;
  std::lock_guard lock(p->mutex);
  for (Context* context : p->contexts) {
    std::vector<device::QpStatus> qps;
    context->device->status(&qps);
    for (const device::QpStatus& qp : qps) {
      if (qp.peer_qpn == 0) continue;
      const relay::Ends ends{{qp.local.address, qp.qpn}, {qp.peer.address, qp.peer_qpn}};
      connections.emplace(std::pair(htobe64(context->rnic->guid()), qp.qpn), ends);
    }
  }
  return connections;
}

void RelayDevices::tell_peer(__be64 guid, const relay::Ends& ends, device::CmNews news) {
  with_contexts(guid, [&](const std::vector<device::MovableContext*>& contexts) {
    // Any context can write the letter. What the peer hears later, the context of the QP has to know.
    if (news == device::CmNews::kDisconnected) {
      contexts.front()->tell_peer(ends.own, ends.peer, news);
      return;
    }
    for (device::MovableContext* context : contexts) context->tell_peer(ends.own, ends.peer, news);
  });
}

}  // namespace ferry::verbs
