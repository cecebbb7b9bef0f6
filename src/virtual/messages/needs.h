#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "device/objects.h"

namespace ferry::virt {

// What contexts need of the device with which they go on: how many objects of which size, which GIDs, MTU
// and limits. The needs go as text to the destination of a move, where ferry-device-trial (src/trial)
// tries them out before anything is stopped.
struct Needs {
  struct Qp {
    ibv_qp_type type = IBV_QPT_RC;
    bool has_srq = false;
    ibv_qp_cap cap{};
    auto key() const {
      return std::tuple(type, has_srq, cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge,
                        cap.max_recv_sge, cap.max_inline_data);
    }
    bool operator<(const Qp& other) const { return key() < other.key(); }
  };
  struct Srq {
    std::uint32_t max_wr = 0, max_sge = 0;
    bool is_xrc = false;
    auto operator<=>(const Srq&) const = default;
  };

  std::uint32_t pds = 0, mrs = 0;
  std::uint32_t xrcds = 0;                     // XRC domains
  std::map<ibv_mw_type, std::uint32_t> mws;    // how many memory windows, by their type
  std::map<std::uint32_t, std::uint32_t> cqs;  // how many CQs, by their number of entries
  // What some devices refuse: the ibv_access_flags of MRs, MRs without memory, and CQs with these features.
  std::set<std::uint32_t> accesses;
  bool null_mrs = false;
  enum CqFeatures : std::uint32_t { kTimestamps = 1, kWallclock = 2, kIgnoreOverrun = 4 };
  std::set<std::uint32_t> cq_features;
  std::map<Srq, std::uint32_t> srqs;
  std::map<Qp, std::uint32_t> qps;
  std::vector<ibv_gid_entry> gids;  // the sources of connected QPs and of AHs: port, type and GID
  ibv_mtu mtu = IBV_MTU_256;        // the largest of connected QPs, and of the ports of UD QPs
  // The most READs and atomics that a QP has under way (reads), and that a QP serves (served_reads).
  std::uint32_t reads = 0, served_reads = 0;
  bool atomics = false;

  void need_gid(const ibv_gid_entry& entry);
};

std::string encode(const Needs& needs);
// Adds what the text says to *needs. False: it is malformed.
bool parse(std::string_view text, Needs* needs);

// Makes all objects that are needed with the device, and destroys them again. Gives one line that says
// what the device refuses; empty: the device refuses nothing.
std::string try_out(const Needs& needs, device::Context& device);

}  // namespace ferry::virt
