#include "device.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "failure.h"

namespace stream_check {
namespace {

constexpr uint32_t kReadsInProgress = 16;

std::string reason() {
  return std::strerror(errno);
}

ibv_context* open_device(const std::string& wanted) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) {
    if (list != nullptr) ibv_free_device_list(list);
    throw Failure("no RDMA device on this host; see ibv_devices");
  }
  ibv_device** chosen = std::find_if(list, list + count, [&](ibv_device* device) {
    return wanted.empty() || wanted == ibv_get_device_name(device);
  });
  ibv_context* context = chosen == list + count ? nullptr : ibv_open_device(*chosen);
  const std::string why = chosen == list + count ? "no such device" : reason();
  ibv_free_device_list(list);
  if (context == nullptr) {
    throw Failure("cannot open RDMA device " + (wanted.empty() ? "(the first)" : wanted) + ": " +
                  why + "; see ibv_devices");
  }
  return context;
}

bool is_ipv4(const ibv_gid& gid) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

}  // namespace

uint32_t mtu_bytes(ibv_mtu mtu) {
  return 128u << static_cast<uint32_t>(mtu);
}

ibv_mtu mtu_code(uint32_t bytes) {
  for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048}) {
    if (mtu_bytes(mtu) >= bytes) return mtu;
  }
  return IBV_MTU_4096;
}

Device::Device(const Options& options)
    : events_(options.events), context_(open_device(options.device)) {
  ibv_port_attr port{};
  if (ibv_query_port(context_.get(), 1, &port) != 0) {
    throw Failure(std::string("cannot query port 1 of ") + name() + ": " + reason());
  }
  if (port.state != IBV_PORT_ACTIVE) {
    throw Failure(std::string("port 1 of ") + name() + " is " + ibv_port_state_str(port.state) +
                  "; bring it up");
  }
  ibv_device_attr limits{};
  if (ibv_query_device(context_.get(), &limits) != 0) {
    throw Failure(std::string("cannot query device ") + name() + ": " + reason());
  }
  endpoint_.lid = port.lid;
  endpoint_.mtu = mtu_bytes(port.active_mtu);
  if (options.mtu > endpoint_.mtu) {
    throw Failure("--mtu " + std::to_string(options.mtu) + ": the port can " +
                  std::to_string(endpoint_.mtu) + " at most");
  }
  if (options.mtu != 0) endpoint_.mtu = options.mtu;
  endpoint_.reads_served =
      std::min(kReadsInProgress, static_cast<uint32_t>(std::max(limits.max_qp_rd_atom, 1)));
  reads_initiated_ =
      std::min(kReadsInProgress, static_cast<uint32_t>(std::max(limits.max_qp_init_rd_atom, 1)));
  choose_gid(options.gid_index, port);
  pd_.reset(ibv_alloc_pd(context_.get()));
  if (!pd_) throw Failure(std::string("cannot allocate a PD on ") + name() + ": " + reason());
}

void Device::choose_gid(int wanted, const ibv_port_attr& port) {
  ibv_gid chosen{};
  if (wanted >= 0) {
    if (ibv_query_gid(context_.get(), 1, wanted, &chosen) != 0) {
      throw Failure("--gid-index " + std::to_string(wanted) + ": no such GID; see ibv_devinfo -v");
    }
    gid_index_ = wanted;
  } else {
    int best = 0;
    for (int i = 0; i < port.gid_tbl_len; ++i) {
      ibv_gid_entry entry{};
      if (ibv_query_gid_ex(context_.get(), 1, static_cast<uint32_t>(i), &entry, 0) != 0) continue;
      const bool v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
      const bool link_local = entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
      const int rank = !v2 ? 1 : is_ipv4(entry.gid) ? 4 : link_local ? 2 : 3;
      if (rank <= best) continue;
      best = rank;
      gid_index_ = i;
      chosen = entry.gid;
    }
    if (best == 0) throw Failure(std::string(name()) + " has no GID; give its port an address");
  }
  std::memcpy(endpoint_.gid, chosen.raw, sizeof endpoint_.gid);
}

void Device::create_completion_queue(uint32_t entries) {
  if (events_) {
    channel_.reset(ibv_create_comp_channel(context_.get()));
    if (!channel_) throw Failure("cannot create a completion channel: " + reason());
    // Every wait is a poll() on several descriptors; ibv_get_cq_event itself must never block.
    fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  }
  fcntl(context_->async_fd, F_SETFL, fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
  cq_.reset(ibv_create_cq(context_.get(), static_cast<int>(entries), nullptr, channel_.get(), 0));
  if (!cq_) {
    throw Failure("cannot create a CQ for " + std::to_string(entries) +
                  " completions: " + reason() + "; use fewer --qps");
  }
}

}  // namespace stream_check
