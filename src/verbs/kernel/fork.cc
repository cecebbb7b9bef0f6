#include "verbs/kernel/fork.h"

#include <pthread.h>

#include "verbs/devices.h"
#include "verbs/entry.h"
#include "verbs/faults.h"
#include "verbs/kernel/rdma_cm.h"
#include "verbs/process.h"
#include "verbs/restart.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

// The lists of devices and contexts must not change while the child is made: the child reads both, and
// goes on with the list of devices.
void before() {
  rdma_cm_before_fork();
  lock_devices();
  if (Process* p = process_if_any()) {
    p->mutex.lock();
    for (Context* context : p->contexts) context->device->before_fork();
  }
  fault_handlers_before_fork();
}

void after_in_parent() {
  fault_handlers_after_fork();
  if (Process* p = process_if_any()) {
    for (Context* context : p->contexts) context->device->after_fork();
    p->mutex.unlock();
  }
  unlock_devices();
  rdma_cm_in_parent();
}

void after_in_child() {
  fault_handlers_after_fork();
  unlock_devices();
  rdma_cm_in_child();
  Process* p = process_if_any();
  if (!p) return;
  fault_handlers_in_child();
  for (Context* context : p->contexts) {
    context->device->after_fork();
    if (context->device->survives_fork()) continue;
    context->abandoned = true;
    context->device->abandon();
  }
  p->agent.abandon_in_child();
  control_block = agent::ControlBlock{};
  forget_process_in_child();
}

}  // namespace

void register_fork_handlers() {
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(before, after_in_parent, after_in_child); });
}

}  // namespace ferry::verbs

// Memory registered with us is never pinned: copy-on-write does not harm it. Stock devices may
// still need the preparation.
FERRY_EXPORT int ibv_fork_init() {
  if (const auto next = FERRY_STOCK(ibv_fork_init, "IBVERBS_1.1")) next();
  return 0;
}
