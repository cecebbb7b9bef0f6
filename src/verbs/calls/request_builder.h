#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

namespace ferry::verbs {

// What the calls from ibv_wr_start() to ibv_wr_complete() collect (ibv_wr_post(3)). One thread at a time holds `mutex`,
// from start to complete or abort.
struct RequestBuilder {
  std::mutex mutex;
  std::vector<ibv_send_wr> requests;
  std::vector<ibv_sge> sges;
  std::deque<std::vector<std::byte>> inline_data;  // which the setters copy at once
  std::vector<std::size_t> first_sge;              // for each request an index in `sges`
  int error = 0;                                   // the first error of a builder or setter
};

}  // namespace ferry::verbs
