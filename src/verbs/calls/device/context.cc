#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "verbs/chosen_devices.h"
#include "verbs/devices.h"
#include "verbs/entry.h"
#include "verbs/faults.h"
#include "verbs/kernel/fork.h"
#include "verbs/kernel/rdma_cm.h"
#include "verbs/objects.h"
#include "verbs/process.h"
#include "verbs/restart.h"
#include "verbs/stock.h"

namespace ferry::verbs {

static_assert(offsetof(ContextShell, verbs) == 0 &&
              offsetof(verbs_context, context) + sizeof(ibv_context) == sizeof(verbs_context));

namespace {

std::atomic<Process*> the_process{nullptr};

constexpr std::size_t kPrivatePage = 4096;  // bytes

// Every pointer that stays null makes its inline function in verbs.h return EOPNOTSUPP: the pointers for
// flow steering, counters, device memory, work queues and tag matching. docs/verbs.md has all of them.
void fill_shell(Context& context, ibv_device* device) {
  verbs_context& v = context.shell.verbs;
  v.sz = sizeof v;
  v.query_port = query_port;
  v.query_device_ex = query_device_ex;
  v.create_cq_ex = create_cq_ex;
  v.create_qp_ex = create_qp_ex;
  v.query_rt_values = query_rt_values;
  v.modify_cq = modify_cq;
  v.alloc_null_mr = alloc_null_mr;
  v.advise_mr = advise_mr;
  v.alloc_td = alloc_td;
  v.dealloc_td = dealloc_td;
  v.alloc_parent_domain = alloc_parent_domain;
  v.open_xrcd = open_xrcd;
  v.close_xrcd = close_xrcd;
  v.create_srq_ex = create_srq_ex;
  v.get_srq_num = get_srq_num;
  v.open_qp = open_qp;
  v.modify_qp_rate_limit = modify_qp_rate_limit;
  v.priv = reinterpret_cast<verbs_ex_private*>(context.private_page.get());
  ibv_context& c = v.context;
  c.device = device;
  const int events = context.device->asynchronous_descriptor();
  const int commands = context.device->command_descriptor();
  c.cmd_fd = commands >= 0 ? commands : context.async_events.identity();
  c.async_fd = events >= 0 ? events : context.async_events.descriptor();
  c.num_comp_vectors = context.device->completion_vectors();
  c.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&c.mutex, nullptr);
  c.ops._compat_query_device = ibv_query_device;
  c.ops._compat_query_port = ibv_query_port;
  c.ops.poll_cq = poll_cq;
  c.ops.req_notify_cq = request_notify_cq;
  c.ops.post_send = post_send;
  c.ops.post_recv = post_receive;
  c.ops.post_srq_recv = post_srq_receive;
  c.ops.alloc_mw = alloc_mw;
  c.ops.bind_mw = bind_mw;
  c.ops.dealloc_mw = dealloc_mw;
}

int open_context(Device& device, ibv_context** out) {
  Process& p = process();
  install_fault_handlers();
  agent::Registry::Change change(p.registry);
  auto context = std::make_unique<Context>();
  if (int error = context->async_events.open()) return error;
  context->private_page = std::make_unique<std::byte[]>(kPrivatePage);
  context->rnic = rnic_of(device);
  int error = 0;
  {
    rdmacm::Service::Yield yield(rdma_cm_if_any());
    context->device = context->rnic->open_movable(*context, *context, &error);
  }
  if (!context->device) return error ? error : EIO;
  const bool has_own =
      context->device->asynchronous_descriptor() >= 0 && context->device->command_descriptor() >= 0;
  if (has_own) context->async_events.close();
  fill_shell(*context, &device.device);
  say_opened(*context->rnic, device.kernel);
  {
    std::lock_guard lock(p.mutex);
    p.contexts.push_back(context.get());
  }
  change.add({context->device.get(), context->rnic->name(), context->rnic->netdev()});
  p.agent.start();  // without an agent the program runs all the same
  *out = context.release()->application();
  return 0;
}

// Runs when a program ends; it may have open contexts.
__attribute__((destructor)) void leave_contexts() {
  Process* p = process_if_any();
  if (p == nullptr) return;
  std::unique_lock lock(p->mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (Context* context : p->contexts) context->device->leave();
}

// Gives up an imported reference of the context. False: there is none, and nobody imports the context any more.
bool give_up_import(Context& context) {
  std::unique_lock<std::mutex> lock;
  if (!context.abandoned) lock = std::unique_lock(process().mutex);
  if (!context.imported.empty()) {
    const int descriptor = context.imported.back();
    context.imported.pop_back();
    if (lock.owns_lock()) lock.unlock();  // the library answers close()
    ::close(descriptor);
    return true;
  }
  context.is_closing = true;
  return false;
}

// Gives up one reference of the context; the last one ends the context.
void close_context(Context* context) {
  if (give_up_import(*context)) return;
  if (context->abandoned) {
    (void)context->device.release();  // as device::Context::abandon() has it
  } else {
    Process& p = process();
    agent::Registry::Change change(p.registry);
    change.remove(context->device.get());
    const std::lock_guard lock(p.mutex);
    std::erase(p.contexts, context);
  }
  delete context;
}

// Finds a context by the pipe of its asynchronous events, which stays the same file wherever its
// descriptors are duplicated to. 0 or errno.
int import_context(int descriptor, ibv_context** out) {
  struct stat wanted;
  if (::fstat(descriptor, &wanted) != 0) return errno;
  if (!S_ISFIFO(wanted.st_mode)) return ENODEV;
  Process& p = process();
  std::lock_guard lock(p.mutex);
  for (Context* context : p.contexts) {
    if (context->is_closing) continue;
    struct stat s;
    if (::fstat(context->async_events.identity(), &s) != 0 || s.st_dev != wanted.st_dev ||
        s.st_ino != wanted.st_ino) {
      continue;
    }
    context->imported.push_back(descriptor);
    *out = context->application();
    return 0;
  }
  return EOPNOTSUPP;  // the RNIC lives in the process that opened it
}

}  // namespace

Process::Process() : agent(registry, control_block) {}

Process& process() {
  Process* p = the_process.load(std::memory_order_acquire);
  if (p) return *p;
  auto* fresh = new Process;
  if (the_process.compare_exchange_strong(p, fresh, std::memory_order_acq_rel)) {
    register_fork_handlers();
    return *fresh;
  }
  delete fresh;
  return *p;
}

Process* process_if_any() {
  return the_process.load(std::memory_order_acquire);
}

// Threads that do not exist here may hold the parent's locks: the parent's Process is left alone.
void forget_process_in_child() {
  the_process.store(nullptr, std::memory_order_release);
}

Context::Context() {
  shell.self = this;
}
Context::~Context() = default;

void Context::completion(device::Cq& cq) {
  auto* ours = static_cast<Cq*>(cq.cookie);
  if (!ours || !ours->cq.channel) return;
  to_channel(ours->cq.channel)
      ->events.push({&ours->cq, IBV_EVENT_CQ_ERR, &ours->completions_reported});
}

Context* context_of(ibv_context* context) {
  if (!context || context->ops.poll_cq != poll_cq) return nullptr;
  auto* address = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
  return reinterpret_cast<ContextShell*>(address)->self;
}

int usable(const Context& context) {
  return context.abandoned ? ENODEV : 0;
}

Context* common_context(std::initializer_list<ibv_context*> contexts) {
  for (ibv_context* context : contexts) {
    if (context != *contexts.begin()) return nullptr;
  }
  return context_of(*contexts.begin());
}

void wait_for_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& condition,
                               const std::uint32_t& acknowledged,
                               const std::atomic<std::uint32_t>& reported) {
  pthread_mutex_lock(&mutex);
  while (acknowledged != reported) pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  if (!device) return pointer_or_errno<ibv_context>(EINVAL, nullptr);
  Device* ours = device_of(device);
  if (!ours) return FERRY_STOCK(ibv_open_device, "IBVERBS_1.1")(device);
  ibv_context* context = nullptr;
  const int error = guarded([&] { return open_context(*ours, &context); });
  return pointer_or_errno(error, context);
}

FERRY_EXPORT int ibv_close_device(ibv_context* context) {
  if (!context) return minus_one_or_errno(EINVAL);
  Context* ours = context_of(context);
  if (!ours) return FERRY_STOCK(ibv_close_device, "IBVERBS_1.1")(context);
  return minus_one_or_errno(guarded([&] {
    close_context(ours);
    return 0;
  }));
}

// Sharing a context by its command descriptor works within the process. The descriptor is the
// context's from then on (ibv_import_device(3)).
FERRY_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  ibv_context* context = nullptr;
  const int error = guarded([&] { return import_context(cmd_fd, &context); });
  if (error == ENODEV) {  // it is no descriptor of ours
    const StockDevicesOnly guard;
    if (const auto next = FERRY_STOCK(ibv_import_device, "IBVERBS_1.10")) return next(cmd_fd);
  }
  return pointer_or_errno(error, context);
}

FERRY_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  if (!context) return pointer_or_errno<ibv_dm>(EINVAL, nullptr);
  if (context_of(context)) return pointer_or_errno<ibv_dm>(EOPNOTSUPP, nullptr);
  return FERRY_STOCK(ibv_import_dm, "IBVERBS_1.13")(context, handle);
}

FERRY_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  if (dm && !context_of(dm->context)) FERRY_STOCK(ibv_unimport_dm, "IBVERBS_1.13")(dm);
}
