#include "hca/objects.h"

#include "hca/completion_queue.h"

namespace ferry::hca {
namespace {

ibv_pd* real_pd(device::Pd* pd) {
  return pd != nullptr ? static_cast<Pd*>(pd)->real : nullptr;
}

}  // namespace

int error_of(int result) {
  if (result >= 0) return result;
  return errno != 0 ? errno : EIO;
}

int error_of(const void* result) {
  if (result != nullptr) return 0;
  return errno != 0 ? errno : ENOMEM;
}

void Names::add_mr(ibv_mr* mr) {
  std::lock_guard lock(mutex_);
  mrs_[mr->lkey] = mr;
}

void Names::remove_mr(std::uint32_t lkey) {
  std::lock_guard lock(mutex_);
  mrs_.erase(lkey);
}

ibv_mr* Names::find_mr(std::uint32_t lkey) {
  std::lock_guard lock(mutex_);
  const auto found = mrs_.find(lkey);
  return found == mrs_.end() ? nullptr : found->second;
}

int Pd::create(ibv_context* context) {
  return error_of(real = ibv_alloc_pd(context));
}

int Mr::create(const device::MrInit& init) {
  return adopt(
      ibv_reg_mr_iova2(real_pd(init.pd), init.address, init.length, init.iova, init.access));
}

int Mr::create_null(device::Pd* pd) {
  return adopt(ibv_alloc_null_mr(real_pd(pd)));
}

int Mr::adopt(ibv_mr* mr) try {
  if (mr == nullptr) return error_of(mr);
  names_.add_mr(mr);
  real_ = mr;
  return 0;
} catch (...) {
  ibv_dereg_mr(mr);
  throw;
}

int Mr::rereg(int flags, const device::MrInit& init) {
  const std::uint32_t before = real_->lkey;
  const StockErrno stock_errno;
  if (ibv_rereg_mr(real_, flags, real_pd(init.pd), init.address, init.length,
                   static_cast<int>(init.access)) != 0) {
    return errno != 0 ? errno : EIO;
  }
  if (real_->lkey != before) {
    names_.remove_mr(before);
    names_.add_mr(real_);
  }
  return 0;
}

int Mr::end() {
  names_.remove_mr(real_->lkey);  // the kernel may give the key to another MR at once
  const int error = error_of(ibv_dereg_mr(real_));
  if (error != 0) names_.add_mr(real_);
  return error;
}

int Mw::create(device::Pd* pd, ibv_mw_type type) {
  real = ibv_alloc_mw(real_pd(pd), type);
  if (real == nullptr) return error_of(real);
  names_.mws.set(handle_, real);
  if (type == IBV_MW_TYPE_2) names_.has_windows = true;
  return 0;
}

int Ah::create(device::Pd* pd, const ibv_ah_attr& attributes) {
  ibv_ah_attr wanted = attributes;
  real_ = ibv_create_ah(real_pd(pd), &wanted);
  if (real_ == nullptr) return error_of(real_);
  names_.ahs.set(handle_, real_);
  return 0;
}

int Xrcd::open(ibv_context* context, const device::XrcdInit& init) {
  ibv_xrcd_init_attr wanted{};
  wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  wanted.fd = init.file;
  wanted.oflags = init.flags;
  return error_of(real = ibv_open_xrcd(context, &wanted));
}

int Srq::create(device::SrqInit* init) {
  ibv_srq_init_attr_ex wanted{};
  wanted.srq_context = this;
  wanted.attr = init->attributes;
  wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  wanted.srq_type = IBV_SRQT_BASIC;
  wanted.pd = real_pd(init->pd);
  if (init->xrcd != nullptr) {
    wanted.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    wanted.srq_type = IBV_SRQT_XRC;
    wanted.xrcd = static_cast<Xrcd*>(init->xrcd)->real;
    wanted.cq = static_cast<Cq*>(init->cq)->real;
  }
  // ibv_create_srq(), if the SRQ is a basic one.
  real = ibv_create_srq_ex(wanted.pd->context, &wanted);
  if (real == nullptr) return error_of(real);
  if (init->xrcd != nullptr) {
    if (const int error = error_of(ibv_get_srq_num(real, &number_))) {
      ibv_destroy_srq(real);
      return error;
    }
  }
  init->attributes = wanted.attr;
  return 0;
}

int Srq::modify(const ibv_srq_attr& attributes, int mask) {
  ibv_srq_attr wanted = attributes;
  return error_of(ibv_modify_srq(real, &wanted, mask));
}

int Srq::query(ibv_srq_attr* attributes) const {
  return error_of(ibv_query_srq(real, attributes));
}

}  // namespace ferry::hca
