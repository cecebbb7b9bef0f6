#include "virtual/messages/needs.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <sstream>
#include <system_error>

#include "device/gids.h"
#include "virtual/shadows/gids.h"

namespace ferry::virt {
namespace {

// The most objects of one kind, and the largest number in a line: a text that asks for more is refused.
constexpr std::uint32_t kMostNeeded = 1u << 24;
constexpr std::uint32_t kAllCqFeatures =
    Needs::kTimestamps | Needs::kWallclock | Needs::kIgnoreOverrun;

void put_hex(std::ostream& out, const ibv_gid& gid) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const std::uint8_t byte : gid.raw) out << kDigits[byte >> 4] << kDigits[byte & 15];
}

bool get_hex(const std::string& text, ibv_gid* gid) {
  if (text.size() != 2 * sizeof gid->raw) return false;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < sizeof gid->raw; ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    gid->raw[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return true;
}

// Reads the numbers of a line; each is `most` at most.
struct Line {
  std::istringstream words;
  bool good = true;
  std::uint32_t number(std::uint32_t most = kMostNeeded) {
    std::string word;
    std::uint32_t value = 0;
    words >> word;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    good = good && error == std::errc() && end == word.data() + word.size() && value <= most;
    return good ? value : 0;
  }
  bool is_over() {
    std::string rest;
    return good && !(words >> rest);
  }
};

bool add(std::uint32_t more, std::uint32_t* to) {
  if (more > kMostNeeded - *to) return false;
  *to += more;
  return true;
}

bool parse_gid(Line& line, Needs* needs) {
  ibv_gid_entry entry{};
  entry.port_num = line.number(std::numeric_limits<std::uint8_t>::max());
  entry.gid_type = line.number(IBV_GID_TYPE_ROCE_V2);
  std::string hex;
  if (!line.good || !(line.words >> hex) || !get_hex(hex, &entry.gid)) return false;
  needs->need_gid(entry);
  return line.is_over();
}

bool parse_qp(Line& line, Needs* needs) {
  Needs::Qp qp;
  const std::uint32_t type = line.number(IBV_QPT_DRIVER);
  qp.type = static_cast<ibv_qp_type>(type);
  qp.has_srq = line.number(1) != 0;
  for (auto* value : {&qp.cap.max_send_wr, &qp.cap.max_recv_wr, &qp.cap.max_send_sge,
                      &qp.cap.max_recv_sge, &qp.cap.max_inline_data}) {
    *value = line.number();
  }
  const std::uint32_t count = line.number();
  const bool is_known = type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
                        type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
  return line.is_over() && is_known && add(count, &needs->qps[qp]);
}

bool parse_line(const std::string& text, Needs* needs) {
  Line line{std::istringstream(text)};
  std::string kind;
  line.words >> kind;
  if (kind == "gid") return parse_gid(line, needs);
  if (kind == "qps") return parse_qp(line, needs);
  if (kind == "srqs" || kind == "xrc_srqs") {
    const Needs::Srq srq{line.number(), line.number(), kind == "xrc_srqs"};
    const std::uint32_t count = line.number();
    return line.is_over() && add(count, &needs->srqs[srq]);
  }
  if (kind == "cqs") {
    const std::uint32_t entries = line.number(), count = line.number();
    return line.is_over() && add(count, &needs->cqs[entries]);
  }
  if (kind == "mws") {
    const std::uint32_t type = line.number(IBV_MW_TYPE_2), count = line.number();
    return line.is_over() && type >= IBV_MW_TYPE_1 &&
           add(count, &needs->mws[static_cast<ibv_mw_type>(type)]);
  }
  const std::uint32_t value = line.number();
  if (!line.is_over()) return false;
  if (kind == "pds") return add(value, &needs->pds);
  if (kind == "mrs") return add(value, &needs->mrs);
  if (kind == "xrcds") return add(value, &needs->xrcds);
  if (kind == "reads") return needs->reads = std::max(needs->reads, value), true;
  if (kind == "served_reads")
    return needs->served_reads = std::max(needs->served_reads, value), true;
  if (kind == "atomics") return needs->atomics |= value != 0, true;
  if (kind == "access") return needs->accesses.insert(value), true;
  if (kind == "null_mrs") return needs->null_mrs |= value != 0, true;
  if (kind == "cq_features") return needs->cq_features.insert(value), value <= kAllCqFeatures;
  if (kind != "mtu" || value < IBV_MTU_256 || value > IBV_MTU_4096) return false;
  needs->mtu = std::max(needs->mtu, static_cast<ibv_mtu>(value));
  return true;
}

device::QpInit target_of(device::Xrcd* xrcd) {
  device::QpInit init;
  init.type = IBV_QPT_XRC_RECV;
  init.xrcd = xrcd;
  return init;
}

device::QpInit sender_of(device::Pd* pd, device::Cq* cq, ibv_qp_type type) {
  device::QpInit init;
  init.type = type;
  init.pd = pd;
  init.send_cq = cq;
  if (type != IBV_QPT_XRC_SEND) init.recv_cq = cq;
  return init;
}

int bytes_of(ibv_mtu mtu) {
  return 128 << mtu;
}

// Makes objects, and destroys them in the reverse order.
class Trial {
 public:
  Trial(const Needs& needs, device::Context& device) : needs_(needs), device_(device) {}
  ~Trial() {
    while (!made_.empty()) {
      device_.destroy(made_.back());
      made_.pop_back();
    }
  }

  std::string run() {
    if (const std::string refusal = limits(); !refusal.empty()) return refusal;
    if (const std::string refusal = ports(); !refusal.empty()) return refusal;
    device::Pd* pd = nullptr;
    const std::string refusal = make("PDs", std::max(needs_.pds, 1u), &pd,
                                     [&](device::Pd** out) { return device_.alloc_pd(out); });
    return refusal.empty() ? objects(*pd) : refusal;
  }

 private:
  std::string limits() {
    ibv_device_attr_ex attributes{};
    if (const int error = device_.query_device(&attributes)) return std::strerror(error);
    const ibv_device_attr& has = attributes.orig_attr;
    if (needs_.mrs > static_cast<std::uint32_t>(has.max_mr)) return "it has not as many MRs";
    if (needs_.reads > static_cast<std::uint32_t>(has.max_qp_init_rd_atom) ||
        needs_.served_reads > static_cast<std::uint32_t>(has.max_qp_rd_atom))
      return "its QPs have fewer READs and atomics under way";
    if (needs_.atomics && has.atomic_cap == IBV_ATOMIC_NONE) return "it has no atomics";
    return {};
  }

  std::string ports() {
    const std::vector<ibv_gid_entry> here = device_.gids();
    for (const ibv_gid_entry& wanted : needs_.gids) {
      if (!std::any_of(here.begin(), here.end(),
                       [&](const auto& entry) { return is_of_kind(entry, wanted); }))
        return "port " + std::to_string(wanted.port_num) + " has no GID " + kind_of(wanted);
      ibv_port_attr port{};
      const auto number = static_cast<std::uint8_t>(wanted.port_num);
      if (const int error = device_.query_port(number, &port)) return std::strerror(error);
      if (port.state != IBV_PORT_ACTIVE)
        return "port " + std::to_string(wanted.port_num) + " is down";
      if (port.active_mtu < needs_.mtu)
        return "port " + std::to_string(wanted.port_num) + " has an MTU of " +
               std::to_string(bytes_of(port.active_mtu)) + " bytes, a QP one of " +
               std::to_string(bytes_of(needs_.mtu));
    }
    return {};
  }

  std::string objects(device::Pd& pd) {
    device::MrInit region;
    region.pd = &pd;
    region.address = &byte_;
    region.length = sizeof byte_;
    region.iova = reinterpret_cast<std::uintptr_t>(&byte_);
    region.access = IBV_ACCESS_LOCAL_WRITE;
    device::Mr* mr = nullptr;
    std::string refusal = make("MRs", std::min(needs_.mrs, kMostRegions), &mr,
                               [&](device::Mr** out) { return device_.reg_mr(region, out); });
    if (refusal.empty()) refusal = features(region);
    device::Mw* mw = nullptr;
    for (const auto& [type, count] : needs_.mws) {
      if (!refusal.empty()) return refusal;
      refusal =
          make("MWs of type " + std::to_string(type), std::min(count, kMostRegions), &mw,
               [&, type = type](device::Mw** out) { return device_.alloc_mw(&pd, type, out); });
    }
    device::Cq* cq = nullptr;
    for (const auto& [entries, count] : needs_.cqs) {
      if (!refusal.empty()) return refusal;
      device::CqInit init;
      init.cqe = static_cast<int>(entries);
      refusal = make("CQs of " + std::to_string(entries) + " entries", count, &cq,
                     [&](device::Cq** out) { return device_.create_cq(init, out); });
    }
    device::Xrcd* xrcd = nullptr;
    if (refusal.empty())
      refusal = make("XRC domains", needs_.xrcds, &xrcd,
                     [&](device::Xrcd** out) { return device_.open_xrcd({}, out); });
    device::Srq* srq = nullptr;
    device::Srq* xrc_srq = nullptr;
    for (const auto& [size, count] : needs_.srqs) {
      if (!refusal.empty()) return refusal;
      if (size.is_xrc && (xrcd == nullptr || cq == nullptr)) return "XRC SRQs without their domain";
      refusal = make(
          (size.is_xrc ? "XRC SRQs of " : "SRQs of ") + std::to_string(size.max_wr) + " requests",
          count, size.is_xrc ? &xrc_srq : &srq, [&, size = size](device::Srq** out) {
            device::SrqInit init;
            init.pd = &pd;
            init.attributes.max_wr = size.max_wr;
            init.attributes.max_sge = size.max_sge;
            if (size.is_xrc) {
              init.xrcd = xrcd;
              init.cq = cq;
            }
            return device_.create_srq(&init, out);
          });
    }
    device::Qp* qp = nullptr;
    for (const auto& [wanted, count] : needs_.qps) {
      if (!refusal.empty()) return refusal;
      const bool is_target = wanted.type == IBV_QPT_XRC_RECV;
      if (is_target ? xrcd == nullptr : cq == nullptr || (wanted.has_srq && srq == nullptr))
        return "QPs without their queues";
      refusal = make("QPs of " + std::to_string(wanted.cap.max_send_wr) + " send requests", count,
                     &qp, [&, wanted = wanted](device::Qp** out) {
                       device::QpInit init =
                           is_target ? target_of(xrcd) : sender_of(&pd, cq, wanted.type);
                       init.srq = wanted.has_srq ? srq : nullptr;
                       init.cap = wanted.cap;
                       return device_.create_qp(&init, out);
                     });
    }
    return refusal;
  }

  // One object of each kind that some devices refuse.
  std::string features(device::MrInit region) {
    std::string refusal;
    device::Mr* mr = nullptr;
    for (const std::uint32_t access : needs_.accesses) {
      if (!refusal.empty()) return refusal;
      region.access = access;
      region.iova =
          (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(&byte_);
      refusal = make("MRs with the access flags " + std::to_string(access), 1, &mr,
                     [&](device::Mr** out) { return device_.reg_mr(region, out); });
    }
    if (refusal.empty() && needs_.null_mrs)
      refusal = make("MRs without memory", 1, &mr,
                     [&](device::Mr** out) { return device_.alloc_null_mr(region.pd, out); });
    device::Cq* cq = nullptr;
    for (const std::uint32_t features : needs_.cq_features) {
      if (!refusal.empty()) return refusal;
      device::CqInit init;
      init.cqe = 1;
      init.timestamps = (features & Needs::kTimestamps) != 0;
      init.wallclock = (features & Needs::kWallclock) != 0;
      init.ignore_overrun = (features & Needs::kIgnoreOverrun) != 0;
      refusal = make("CQs with timestamps or without overrun", 1, &cq,
                     [&](device::Cq** out) { return device_.create_cq(init, out); });
    }
    return refusal;
  }

  // Makes `count` objects; *last gets one of them. Gives what the device refuses; empty: nothing.
  template <typename T, typename Make>
  std::string make(const std::string& what, std::uint32_t count, T** last, Make make) {
    for (std::uint32_t i = 0; i < count; ++i) {
      T* object = nullptr;
      if (const int error = make(&object)) {
        return std::to_string(i) + " of " + std::to_string(count) + ' ' + what + ": " +
               std::strerror(error);
      }
      made_.push_back(object);
      *last = object;
    }
    return {};
  }

  // The most MRs that are made, because each costs the kernel time.
  static constexpr std::uint32_t kMostRegions = 4096;

  const Needs& needs_;
  device::Context& device_;
  std::vector<device::Object*> made_;
  std::byte byte_{};
};

}  // namespace

void Needs::need_gid(const ibv_gid_entry& entry) {
  const bool is_known = std::any_of(gids.begin(), gids.end(), [&](const ibv_gid_entry& known) {
    return is_of_kind(known, entry);
  });
  if (!is_known) gids.push_back(entry);
}

std::string encode(const Needs& needs) {
  std::ostringstream out;
  out << "pds " << needs.pds << "\nmrs " << needs.mrs << '\n';
  if (needs.xrcds != 0) out << "xrcds " << needs.xrcds << '\n';
  for (const auto& [type, count] : needs.mws) out << "mws " << type << ' ' << count << '\n';
  for (const auto& [entries, count] : needs.cqs) out << "cqs " << entries << ' ' << count << '\n';
  for (const auto& [srq, count] : needs.srqs)
    out << (srq.is_xrc ? "xrc_srqs " : "srqs ") << srq.max_wr << ' ' << srq.max_sge << ' ' << count
        << '\n';
  for (const auto& [qp, count] : needs.qps) {
    const ibv_qp_cap& cap = qp.cap;
    out << "qps " << qp.type << ' ' << qp.has_srq << ' ' << cap.max_send_wr << ' '
        << cap.max_recv_wr << ' ' << cap.max_send_sge << ' ' << cap.max_recv_sge << ' '
        << cap.max_inline_data << ' ' << count << '\n';
  }
  for (const auto& entry : needs.gids) {
    out << "gid " << entry.port_num << ' ' << entry.gid_type << ' ';
    put_hex(out, entry.gid);
    out << '\n';
  }
  for (const std::uint32_t access : needs.accesses) out << "access " << access << '\n';
  for (const std::uint32_t features : needs.cq_features) out << "cq_features " << features << '\n';
  if (needs.null_mrs) out << "null_mrs 1\n";
  out << "mtu " << needs.mtu << "\nreads " << needs.reads << "\nserved_reads " << needs.served_reads
      << "\natomics " << needs.atomics << '\n';
  return out.str();
}

bool parse(std::string_view text, Needs* needs) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (!parse_line(line, needs)) return false;
  }
  return true;
}

std::string try_out(const Needs& needs, device::Context& device) {
  return Trial(needs, device).run();
}

}  // namespace ferry::virt
