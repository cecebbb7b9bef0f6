// ibv_query_gid_type() is for the other libraries of rdma-core alone: its version changes with the
// private interface between them. Debian 12 and 13 have IBVERBS_PRIVATE_34 (query.cc), forky 65.

#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

FERRY_EXPORT int ferry_query_gid_type_65(ibv_context* context, uint8_t port, unsigned index,
                                         int* type);
__asm__(".symver ferry_query_gid_type_65, ibv_query_gid_type@IBVERBS_PRIVATE_65");

FERRY_EXPORT int ferry_query_gid_type_65(ibv_context* context, uint8_t port, unsigned index,
                                         int* type) {
  if (context && !ferry::verbs::context_of(context)) {
    return FERRY_STOCK(ibv_query_gid_type, "IBVERBS_PRIVATE_65")(context, port, index, type);
  }
  return ibv_query_gid_type(context, port, index, type);
}
