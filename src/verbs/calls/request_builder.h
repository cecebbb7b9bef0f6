#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

namespace ferry::verbs {

// What ibv_wr_start() to ibv_wr_complete() collect (ibv_wr_post(3)). Held by one thread at a time:
// from start to complete or abort.
struct RequestBuilder {
  std::mutex mutex;
  std::vector<ibv_send_wr> requests;
  std::vector<ibv_sge> sges;
  std::deque<std::vector<std::byte>> inline_data;  // by the setters, copied at once
  std::vector<std::size_t> first_sge;              // of each request, an index in `sges`
  int error = 0;                                   // the first that a builder or setter met
};

}  // namespace ferry::verbs
