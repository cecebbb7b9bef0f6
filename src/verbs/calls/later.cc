// Functions of libibverbs that are newer than Debian 12's: a container's image may have a newer
// library. The stock functions look into private parts of a context, which ours does not have.

#include <sys/mman.h>

#include <memory>

#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

// Opaque to programs. The stock library's struct begins with these fields; the stock
// ibv_export_buf_dmabuf_fd() looks at no others, and gives ENODATA for ours.
struct ibv_buf {
  void* address;
  size_t length;
  ibv_pd* pd;
  int dmabuf;
};
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

// All newer functions that can be called with an object of ours. Buffers are plain memory; the
// other functions fail with EOPNOTSUPP.
extern "C" {
ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attributes);
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attributes);
int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed);
void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** out);
void ibv_free_buf(ibv_buf* buffer);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, size_t length, int access);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attributes);
int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter,
                            ibv_qp_attach_comp_cntr_attr* attributes);
int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps, size_t size);
}

using namespace ferry::verbs;

FERRY_EXPORT ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attributes) {
  if (!context_of(context)) return FERRY_STOCK(ibv_alloc_dmah, "IBVERBS_1.15")(context, attributes);
  return pointer_or_errno<ibv_dmah>(EOPNOTSUPP, nullptr);
}

FERRY_EXPORT ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attributes) {
  if (!context_of(pd->context)) return FERRY_STOCK(ibv_reg_mr_ex, "IBVERBS_1.15")(pd, attributes);
  return pointer_or_errno<ibv_mr>(EOPNOTSUPP, nullptr);
}

FERRY_EXPORT int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  if (!context_of(context)) {
    return FERRY_STOCK(ibv_query_port_speed, "IBVERBS_1.16")(context, port, speed);
  }
  return EOPNOTSUPP;
}

FERRY_EXPORT void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** out) {
  if (!context_of(pd->context)) return FERRY_STOCK(ibv_alloc_buf, "IBVERBS_1.17")(pd, size, out);
  void* memory = nullptr;
  const int error = guarded([&] {
    if (size == 0 || out == nullptr) return EINVAL;
    auto buffer = std::make_unique<ibv_buf>();
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno;
    *buffer = {memory, size, pd, -1};
    *out = buffer.release();
    return 0;
  });
  return pointer_or_errno(error, memory);
}

FERRY_EXPORT void ibv_free_buf(ibv_buf* buffer) {
  if (!context_of(buffer->pd->context)) {
    return FERRY_STOCK(ibv_free_buf, "IBVERBS_1.17")(buffer);
  }
  ::munmap(buffer->address, buffer->length);
  delete buffer;
}

FERRY_EXPORT ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, size_t length,
                                    int access) {
  if (!context_of(pd->context)) {
    return FERRY_STOCK(ibv_reg_buf_mr, "IBVERBS_1.17")(pd, buffer, address, length, access);
  }
  const auto offset = static_cast<char*>(address) - static_cast<char*>(buffer->address);
  if (offset < 0 || static_cast<size_t>(offset) > buffer->length ||
      length > buffer->length - static_cast<size_t>(offset)) {
    return pointer_or_errno<ibv_mr>(EINVAL, nullptr);
  }
  return ibv_reg_mr(pd, address, length, access);
}

FERRY_EXPORT ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context,
                                                 ibv_comp_cntr_init_attr* attributes) {
  if (!context_of(context)) {
    return FERRY_STOCK(ibv_create_comp_cntr, "IBVERBS_1.18")(context, attributes);
  }
  return pointer_or_errno<ibv_comp_cntr>(EOPNOTSUPP, nullptr);
}

FERRY_EXPORT int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter,
                                         ibv_qp_attach_comp_cntr_attr* attributes) {
  if (!context_of(qp->context)) {
    return FERRY_STOCK(ibv_qp_attach_comp_cntr, "IBVERBS_1.18")(qp, counter, attributes);
  }
  return EOPNOTSUPP;
}

FERRY_EXPORT int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps,
                                           size_t size) {
  if (!context_of(context)) {
    return FERRY_STOCK(_ibv_query_comp_cntr_caps, "IBVERBS_1.18")(context, caps, size);
  }
  return EOPNOTSUPP;
}
