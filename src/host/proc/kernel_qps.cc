#include "host/proc/kernel_qps.h"

#include <linux/netlink.h>
#include <netlink/attr.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <rdma/rdma_netlink.h>

#include <functional>
#include <set>

#include "base/failure.h"
#include "host/proc/netlink.h"
#include "host/proc/process_facts.h"

namespace ferry::host {
namespace {

using Attributes = nlattr* [RDMA_NLDEV_ATTR_MAX];
using Take = std::function<void(nlattr** attributes)>;

constexpr int kLast = RDMA_NLDEV_ATTR_MAX - 1;

// The RDMA part of the kernel.
class RdmaNetlink {
 public:
  // Gives `take` the attributes of each message of a dump. `device`: the index of a device; negative: all devices.
  // Throws Failure.
  void dump(int command, std::int64_t device, const Take& take) {
    need(try_dump(command, device, take));
  }
  // Gives `take` the attributes of each entry of the table `table`, in the messages about one device. Returns libnl's
  // error, if there is one (negative): an old kernel does not know all tables.
  int try_dump_entries(int command, int table, std::uint32_t device, const Take& take) {
    return try_dump(command, device, [&](nlattr** attributes) {
      if (attributes[table] == nullptr) return;
      const nlattr* entry = nullptr;
      int left = 0;
      nla_for_each_nested(entry, attributes[table], left) {
        Attributes parsed{};
        if (::nla_parse_nested(parsed, kLast, const_cast<nlattr*>(entry), nullptr) == 0)
          take(parsed);
      }
    });
  }
  void dump_entries(int command, int table, std::uint32_t device, const Take& take) {
    need(try_dump_entries(command, table, device, take));
  }

 private:
  static void need(int error) {
    if (error >= 0) return;
    throw Failure(std::string("the kernel does not tell of RDMA devices: ") + ::nl_geterror(error));
  }

  int try_dump(int command, std::int64_t device, const Take& take) {
    if (!kernel_.is_there()) return 0;
    const auto request = netlink_request(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), NLM_F_DUMP);
    if (device >= 0) {
      ::nla_put_u32(request.get(), RDMA_NLDEV_ATTR_DEV_INDEX, static_cast<std::uint32_t>(device));
    }
    return kernel_.dump(*request, [&](nlmsghdr* message) {
      Attributes attributes{};
      if (::nlmsg_parse(message, 0, attributes, kLast, nullptr) == 0) take(attributes);
    });
  }

  Netlink kernel_{NETLINK_RDMA};
};

bool has_u32(const nlattr* attribute) {
  return attribute != nullptr && ::nla_len(attribute) >= static_cast<int>(sizeof(std::uint32_t));
}

std::optional<std::uint32_t> number_in(nlattr** attributes, int attribute) {
  if (!has_u32(attributes[attribute])) return std::nullopt;
  return ::nla_get_u32(attributes[attribute]);
}

pid_t thread_in(nlattr** attributes) {
  return static_cast<pid_t>(number_in(attributes, RDMA_NLDEV_ATTR_RES_PID).value_or(0));
}

// Nothing for a QP of the kernel's own, which has the name of a module in the place of a thread.
std::optional<KernelQp> qp_of(nlattr** attributes) {
  const auto qpn = number_in(attributes, RDMA_NLDEV_ATTR_RES_LQPN);
  if (!qpn || attributes[RDMA_NLDEV_ATTR_RES_KERN_NAME] != nullptr) return std::nullopt;
  KernelQp qp;
  qp.qpn = *qpn;
  qp.thread = thread_in(attributes);
  qp.peer_qpn = number_in(attributes, RDMA_NLDEV_ATTR_RES_RQPN).value_or(0);
  qp.pd = number_in(attributes, RDMA_NLDEV_ATTR_RES_PDN);
  return qp;
}

// The indexes and names of the kernel's RDMA devices. Throws Failure.
std::vector<std::pair<std::uint32_t, std::string>> devices_of(RdmaNetlink* kernel) {
  std::vector<std::pair<std::uint32_t, std::string>> devices;
  kernel->dump(RDMA_NLDEV_CMD_GET, -1, [&](nlattr** attributes) {
    const nlattr* const index = attributes[RDMA_NLDEV_ATTR_DEV_INDEX];
    const nlattr* const name = attributes[RDMA_NLDEV_ATTR_DEV_NAME];
    if (has_u32(index) && name != nullptr)
      devices.emplace_back(::nla_get_u32(index), ::nla_get_string(name));
  });
  return devices;
}

// The process of each thread of these processes.
std::map<pid_t, pid_t> processes_of_threads(const std::set<pid_t>& pids) {
  std::map<pid_t, pid_t> processes;
  for (const pid_t pid : pids) {
    for (const pid_t thread : threads_of(pid)) processes[thread] = pid;
  }
  return processes;
}

// An object of a device as the kernel tells of it.
struct KernelObject {
  std::uint32_t number = 0;
  pid_t thread = 0;  // 0: it has ended
  std::optional<std::uint32_t> context = {};
};

// The PDs and QPs of a device, with the contexts that these belong to.
struct KernelObjects {
  std::string device;
  std::vector<KernelObject> contexts, pds;
  std::vector<KernelQp> qps;
};

KernelObjects objects_of(RdmaNetlink* kernel, std::uint32_t index, const std::string& device) {
  KernelObjects objects{device, {}, {}, {}};
  kernel->try_dump_entries(RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_ATTR_RES_CTX, index,
                           [&](nlattr** entry) {
                             const auto context = number_in(entry, RDMA_NLDEV_ATTR_RES_CTXN);
                             if (context) objects.contexts.push_back({*context, thread_in(entry)});
                           });
  kernel->dump_entries(RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, index,
                       [&](nlattr** entry) {
                         const auto pd = number_in(entry, RDMA_NLDEV_ATTR_RES_PDN);
                         if (pd)
                           objects.pds.push_back(
                               {*pd, thread_in(entry), number_in(entry, RDMA_NLDEV_ATTR_RES_CTXN)});
                       });
  kernel->dump_entries(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, index,
                       [&](nlattr** entry) {
                         auto qp = qp_of(entry);
                         if (!qp) return;
                         qp->device = device;
                         objects.qps.push_back(std::move(*qp));
                       });
  return objects;
}

pid_t found_in(const std::map<pid_t, pid_t>& processes, pid_t thread) {
  const auto found = processes.find(thread);
  return thread != 0 && found != processes.end() ? found->second : 0;
}

pid_t found_in(const std::map<std::uint32_t, pid_t>& processes,
               const std::optional<std::uint32_t>& number) {
  const auto found = number ? processes.find(*number) : processes.end();
  return found != processes.end() ? found->second : 0;
}

void add_qps(KernelObjects&& objects, const std::map<pid_t, pid_t>& of_threads,
             std::map<pid_t, std::vector<KernelQp>>* qps) {
  std::map<std::uint32_t, pid_t> of_contexts, of_pds;
  for (const auto& context : objects.contexts) {
    if (const pid_t pid = found_in(of_threads, context.thread)) of_contexts[context.number] = pid;
  }
  for (const auto& pd : objects.pds) {
    pid_t pid = found_in(of_threads, pd.thread);
    if (pid == 0) pid = found_in(of_contexts, pd.context);
    if (pid != 0) of_pds[pd.number] = pid;
  }
  for (auto& qp : objects.qps) {
    const pid_t pid = qp.thread != 0 ? found_in(of_threads, qp.thread) : found_in(of_pds, qp.pd);
    if (pid != 0) (*qps)[pid].push_back(std::move(qp));
  }
}

}  // namespace

std::optional<KernelQp> parse_kernel_qp(std::span<const std::byte> attributes) {
  Attributes parsed{};
  // libnl reads only, though its parameter is not const.
  auto* const head = reinterpret_cast<nlattr*>(const_cast<std::byte*>(attributes.data()));
  if (::nla_parse(parsed, kLast, head, static_cast<int>(attributes.size()), nullptr) != 0)
    return std::nullopt;
  return qp_of(parsed);
}

std::map<std::string, std::set<std::uint32_t>> all_kernel_qpns() {
  RdmaNetlink kernel;
  std::map<std::string, std::set<std::uint32_t>> all;
  for (const auto& [index, name] : devices_of(&kernel)) {
    auto& qpns = all[name];
    kernel.dump_entries(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, index,
                        [&](nlattr** entry) {
                          if (const auto qp = qp_of(entry)) qpns.insert(qp->qpn);
                        });
  }
  return all;
}

std::map<pid_t, std::vector<KernelQp>> kernel_qps(const std::set<pid_t>& pids) {
  RdmaNetlink kernel;
  std::vector<KernelObjects> all;
  for (const auto& [index, name] : devices_of(&kernel))
    all.push_back(objects_of(&kernel, index, name));
  std::map<pid_t, std::vector<KernelQp>> qps;
  if (all.empty()) return qps;
  const auto of_threads = processes_of_threads(pids);
  for (auto& objects : all) add_qps(std::move(objects), of_threads, &qps);
  return qps;
}

}  // namespace ferry::host
