#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>

#include "device/objects.h"
#include "hca/table.h"

// The objects of a context. Each has an object of the stock library, which create() makes and end()
// destroys; both give 0 or errno. The context pointers of stock CQs, SRQs and QPs (cq_context and so
// on) point to the objects here, so that events find them.
namespace ferry::hca {

// Gives 0 or errno for the result of a stock function that returns 0, an errno value, or -1 with errno.
int error_of(int result);
// The same for a stock function that returns a pointer, or null with errno.
int error_of(const void* result);

// While an object of this class lives, errno is for the stock functions that are called. It begins
// with 0, because not every function that fails sets errno. Then errno is again the application's.
class StockErrno {
 public:
  StockErrno() : before_(errno) { errno = 0; }
  ~StockErrno() { errno = before_; }
  StockErrno(const StockErrno&) = delete;
  StockErrno& operator=(const StockErrno&) = delete;

 private:
  const int before_;
};

class Ended {
 public:
  virtual ~Ended() = default;
  // Destroys the stock object. 0 or errno: then the stock object lives on.
  virtual int end() = 0;
};

// The AHs, MWs and MRs that requests name by number, and the stock library by pointer.
struct Names {
  Table<ibv_ah> ahs;  // by ibv_ah.handle
  Table<ibv_mw> mws;  // by ibv_mw.handle
  // Whether the context has ever had a window of type 2. Until then no request of a connected QP names a window.
  std::atomic<bool> has_windows{false};

  // MRs by their ibv_mr.lkey.
  void add_mr(ibv_mr* mr);
  void remove_mr(std::uint32_t lkey);
  ibv_mr* find_mr(std::uint32_t lkey);

 private:
  std::mutex mutex_;
  std::map<std::uint32_t, ibv_mr*> mrs_;
};

class Pd final : public device::Pd, public Ended {
 public:
  int create(ibv_context* context);
  int end() override { return error_of(ibv_dealloc_pd(real)); }
  ibv_pd* real = nullptr;
};

class Mr final : public device::Mr, public Ended {
 public:
  explicit Mr(Names& names) : names_(names) {}
  int create(const device::MrInit& init);
  int create_null(device::Pd* pd);
  std::uint32_t lkey() const override { return real_->lkey; }
  std::uint32_t rkey() const override { return real_->rkey; }
  int rereg(int flags, const device::MrInit& init);
  int end() override;

 private:
  int adopt(ibv_mr* mr);
  Names& names_;
  ibv_mr* real_ = nullptr;
};

class Mw final : public device::Mw, public Ended {
 public:
  explicit Mw(Names& names) : names_(names), handle_(names.mws.reserve()) {}
  ~Mw() override { names_.mws.release(handle_); }
  int create(device::Pd* pd, ibv_mw_type type);
  std::uint32_t rkey() const override { return real->rkey; }
  std::uint32_t handle() const override { return handle_; }
  int end() override { return error_of(ibv_dealloc_mw(real)); }
  ibv_mw* real = nullptr;

 private:
  Names& names_;
  const std::uint32_t handle_;
};

class Ah final : public device::Ah, public Ended {
 public:
  explicit Ah(Names& names) : names_(names), handle_(names.ahs.reserve()) {}
  ~Ah() override { names_.ahs.release(handle_); }
  int create(device::Pd* pd, const ibv_ah_attr& attributes);
  std::uint32_t handle() const override { return handle_; }
  int end() override { return error_of(ibv_destroy_ah(real_)); }

 private:
  Names& names_;
  const std::uint32_t handle_;
  ibv_ah* real_ = nullptr;
};

class Xrcd final : public device::Xrcd, public Ended {
 public:
  int open(ibv_context* context, const device::XrcdInit& init);
  int end() override { return error_of(ibv_close_xrcd(real)); }
  ibv_xrcd* real = nullptr;
};

class Srq final : public device::Srq, public Ended {
 public:
  // init->attributes gets what was granted.
  int create(device::SrqInit* init);
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override {
    return real->context->ops.post_srq_recv(real, list, bad);
  }
  int modify(const ibv_srq_attr& attributes, int mask) override;
  int query(ibv_srq_attr* attributes) const override;
  std::uint32_t number() const override { return number_; }
  int end() override { return error_of(ibv_destroy_srq(real)); }
  ibv_srq* real = nullptr;

 private:
  std::uint32_t number_ = 0;
};

}  // namespace ferry::hca
