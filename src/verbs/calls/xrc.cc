#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "verbs/entry.h"
#include "verbs/kernel/fork.h"
#include "verbs/objects.h"
#include "verbs/process.h"

// XRC domains and the sharing of XRC target QPs. A domain is shared by a file: whoever opens it
// with a descriptor of the same file, in the same context, gets the same one.
//
// On a device of the kernel, other contexts and processes get it as well. On one of Ferry's, other
// contexts are RNICs of their own, and no RNIC takes receive WQEs from another one's SRQ. So a
// second context of the process and device is refused a file that names a domain of the first; and
// other processes, of which this one knows nothing, get domains of their own.
namespace ferry::verbs {

XrcDomain::~XrcDomain() {
  if (descriptor < 0) return;
  // Before the file is closed, and another one can have its inode.
  if (Process* p = process_if_any()) p->xrc_names.leave(*this);
  ::close(descriptor);
}

namespace {

bool same_file(int a, const struct stat& b) {
  struct stat s;
  return ::fstat(a, &s) == 0 && s.st_dev == b.st_dev && s.st_ino == b.st_ino;
}

void fill_shell(Context& context, Xrcd& xrcd, XrcDomain* domain) {
  xrcd.xrcd.context = context.application();
  xrcd.domain = domain;
  ++domain->references;
}

// The context's own domain that the file names; null: there is none. With the context's mutex.
XrcDomain* find_domain(Context& context, const struct stat& file) {
  for (auto& domain : context.xrc_domains) {
    if (domain->descriptor >= 0 && same_file(domain->descriptor, file)) return domain.get();
  }
  return nullptr;
}

// Gives `domain`, which the context is about to make, the file as its name, if no other context of the device has a
// domain of that name. 0 or an errno value.
int name_domain(const Context& context, XrcDomain& domain, int file, const struct stat& status,
                int flags) {
  XrcNames& names = process().xrc_names;
  const int elsewhere = flags & O_EXCL ? EINVAL : EOPNOTSUPP;
  if (!domain.is_shared && !(flags & O_CREAT))
    return names.have(context.rnic->name(), status) ? elsewhere : EAGAIN;
  domain.descriptor = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (domain.descriptor < 0) return errno;
  if (domain.is_shared || names.enter(domain, context.rnic->name(), status)) return 0;
  return elsewhere;
}

// 0 or an errno value: the same values as the kernel gives (ib_uverbs_open_xrcd), and EOPNOTSUPP for a
// domain of another context.
int open_domain(Context& context, int file, int flags, Xrcd** out) {
  if (int error = usable(context)) return error;
  auto xrcd = std::make_unique<Xrcd>();
  auto domain = std::make_unique<XrcDomain>();
  domain->is_shared = file != -1 && context.device->shares_xrcds();
  struct stat wanted {};
  if (file != -1 && ::fstat(file, &wanted) != 0) return errno;
  std::lock_guard lock(context.mutex);
  if (file != -1) {
    if (XrcDomain* known = find_domain(context, wanted)) {
      if (flags & O_EXCL) return EINVAL;
      fill_shell(context, *xrcd, known);
      *out = xrcd.release();
      return 0;
    }
    if (int error = name_domain(context, *domain, file, wanted, flags)) return error;
  }
  context.xrc_domains.reserve(context.xrc_domains.size() + 1);
  if (int error = context.device->open_xrcd({file, flags}, &domain->device)) return error;
  fill_shell(context, *xrcd, domain.get());
  context.xrc_domains.push_back(std::move(domain));
  *out = xrcd.release();
  return 0;
}

int close_domain(Context& context, Xrcd* xrcd) {
  if (int error = usable(context)) return error;
  std::lock_guard lock(context.mutex);
  if (xrcd->users != 0) return EBUSY;
  XrcDomain* domain = xrcd->domain;
  if (domain->references == 1) {
    if (int error = context.device->destroy(domain->device)) return error;
    std::erase_if(context.xrc_domains, [&](const auto& d) { return d.get() == domain; });
  } else {
    --domain->references;
  }
  delete xrcd;
  return 0;
}

// Opens a target of a domain that other contexts and processes have, too.
int open_others_qp(Context& context, const ibv_qp_open_attr& attributes, Xrcd& xrcd, Qp** out) {
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  if (attributes.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) init.qp_context = attributes.qp_context;
  device::Qp* device = nullptr;
  if (int error = context.device->open_qp(xrcd.domain->device, attributes.qp_num, &device)) {
    return error;
  }
  *out = wrap_qp(context, device, nullptr, &xrcd, init);
  return 0;
}

int open_shared_qp(Context& context, const ibv_qp_open_attr& attributes, Qp** out) {
  constexpr std::uint32_t kRequired =
      IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (int error = usable(context)) return error;
  if (attributes.comp_mask & ~(kRequired | IBV_QP_OPEN_ATTR_CONTEXT)) return EOPNOTSUPP;
  if ((attributes.comp_mask & kRequired) != kRequired) return EINVAL;
  if (!attributes.xrcd || attributes.xrcd->context != context.application()) return EINVAL;
  if (attributes.qp_type != IBV_QPT_XRC_RECV) return EINVAL;
  Xrcd* xrcd = to_xrcd(attributes.xrcd);
  std::unique_lock lock(context.mutex);
  for (auto& core : context.shareable) {
    if (core->device->qpn() != attributes.qp_num) continue;
    auto qp = std::make_unique<Qp>();
    std::lock_guard shells(core->mutex);
    if (core->shells.empty() || core->shells[0]->xrcd->domain != xrcd->domain) continue;
    qp->init.qp_type = IBV_QPT_XRC_RECV;
    if (attributes.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) {
      qp->init.qp_context = attributes.qp_context;
    }
    fill_qp(context, *qp, core, nullptr, xrcd);
    core->shells.push_back(qp.get());
    *out = qp.release();
    return 0;
  }
  lock.unlock();
  return xrcd->domain->is_shared ? open_others_qp(context, attributes, *xrcd, out) : EINVAL;
}

}  // namespace

Xrcd* wrap_xrcd(Context& context, device::Xrcd* device) {
  return adopt<Xrcd>(context, device, [&](Xrcd& xrcd) {
    std::lock_guard lock(context.mutex);
    auto& domain = context.xrc_domains.emplace_back(std::make_unique<XrcDomain>());
    domain->device = device;
    fill_shell(context, xrcd, domain.get());
  });
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes) {
  constexpr std::uint32_t kRequired = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  Xrcd* xrcd = nullptr;
  const int error = guarded([&] {
    if (!attributes) return EINVAL;
    if (attributes->comp_mask & ~kRequired) return EOPNOTSUPP;
    if (attributes->comp_mask != kRequired) return EINVAL;
    if (attributes->oflags & ~(O_CREAT | O_EXCL)) return EINVAL;
    return open_domain(*context_of(context), attributes->fd, attributes->oflags, &xrcd);
  });
  return pointer_or_errno(error, error ? nullptr : &xrcd->xrcd);
}

int close_xrcd(ibv_xrcd* xrcd) {
  return guarded([&] { return close_domain(*context_of(xrcd->context), to_xrcd(xrcd)); });
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
  Qp* qp = nullptr;
  const int error = guarded([&] {
    if (!attributes) return EINVAL;
    return open_shared_qp(*context_of(context), *attributes, &qp);
  });
  return pointer_or_errno(error, error ? nullptr : &qp->qp);
}

}  // namespace ferry::verbs
