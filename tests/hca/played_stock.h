#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

// The stock libibverbs, played: one device, whose functions keep account in stock().
namespace ferry::hca {

struct PlayedStock {
  ibv_device device{};
  verbs_context verbs{};                  // of the only context
  std::vector<std::string> calls;         // names, with what identifies their arguments
  std::string fails;                      // the function that fails next, with `error`
  int error = 0;                          // errno value
  std::vector<ibv_send_wr> posted;        // copies, in order
  std::vector<const ibv_send_wr*> lists;  // what post_send() was given
  std::uint64_t refused_wr_id = 0;        // post_send() refuses this request with ENOMEM
  std::deque<ibv_wc> completions;
  std::deque<ibv_async_event> events;  // of ibv_get_async_event()
  std::deque<ibv_cq*> cq_events;
  std::uint64_t wc_flags = 0;  // that ibv_create_cq_ex() was asked for
  ibv_cq* last_cq = nullptr;   // that was made
  ibv_qp* last_qp = nullptr;
  std::uint32_t vendor = 0;  // ibv_device_attr.vendor_id
  int live = 0;              // objects that were made and not destroyed

  std::size_t count(const std::string& call) const;
};

PlayedStock& stock();
// As it is when a test begins.
void reset_stock();

}  // namespace ferry::hca
