// A second device beside ours, whose contexts we leave alone: every entry point, called with an
// object of another provider, must reach the stock library with its arguments as they are. The
// stock library is played (played_stock.cmake): run under
// LD_PRELOAD=libferry.so:libplayed_stock.so, with the list of our symbols as argument.
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kResult = 0x1234'5678;

struct Call {
  std::string name;
  std::uint64_t arguments[6];
};
std::vector<Call> calls;
int failures = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}

// What the entry points take: a context, an object of a context (all begin with it), a device, an
// event, bytes of memory, numbers of 8, 16, 32 and 64 bits, and the
// descriptor of a character device. A name that begins
// with '-' returns nothing.
const std::map<std::string, const char*> kSignatures = {
    {"_ibv_query_gid_ex", "c44m48"},
    {"_ibv_query_gid_table", "cm848"},
    {"-ibv_ack_async_event", "e"},
    {"-ibv_ack_cq_events", "o4"},
    {"ibv_alloc_pd", "c"},
    {"ibv_attach_mcast", "om2"},
    {"ibv_close_device", "c"},
    {"ibv_create_ah", "om"},
    {"ibv_create_ah_from_wc", "omm1"},
    {"ibv_create_comp_channel", "c"},
    {"ibv_create_cq", "c4mm4"},
    {"ibv_create_qp", "om"},
    {"ibv_create_srq", "om"},
    {"ibv_dealloc_pd", "o"},
    {"ibv_dereg_mr", "o"},
    {"ibv_destroy_ah", "o"},
    {"ibv_destroy_comp_channel", "o"},
    {"ibv_destroy_cq", "o"},
    {"ibv_destroy_qp", "o"},
    {"ibv_destroy_srq", "o"},
    {"ibv_detach_mcast", "om2"},
    {"ibv_get_async_event", "cm"},
    {"ibv_get_cq_event", "omm"},
    {"ibv_get_device_guid", "d"},
    {"ibv_get_device_index", "d"},
    {"ibv_get_pkey_index", "c12"},
    {"ibv_import_device", "n"},
    {"ibv_import_dm", "c4"},
    {"ibv_import_mr", "o4"},
    {"ibv_import_pd", "c4"},
    {"ibv_init_ah_from_wc", "c1mmm"},
    {"ibv_modify_qp", "om4"},
    {"ibv_modify_srq", "om4"},
    {"ibv_open_device", "d"},
    {"ibv_qp_to_qp_ex", "o"},
    {"ibv_query_device", "cm"},
    {"ibv_query_ece", "om"},
    {"ibv_query_gid", "c14m"},
    {"ibv_query_gid_type", "c14m"},
    {"ibv_query_pkey", "c14m"},
    {"ibv_query_port", "c1m"},
    {"ibv_query_qp", "om4m"},
    {"ibv_query_qp_data_in_order", "o44"},
    {"ibv_query_srq", "om"},
    {"ibv_reg_dmabuf_mr", "o88844"},
    {"ibv_reg_mr", "om84"},
    {"ibv_reg_mr_iova", "om884"},
    {"ibv_reg_mr_iova2", "om884"},
    {"ibv_rereg_mr", "o4om84"},
    {"ibv_resize_cq", "o4"},
    {"ibv_resolve_eth_l2_from_gid", "cmmm"},
    {"ibv_set_ece", "om"},
    {"-ibv_unimport_dm", "o"},
    {"-ibv_unimport_mr", "o"},
    {"-ibv_unimport_pd", "o"},
};
// These have no context to look at.
const std::map<std::string, const char*> kOthers = {
    {"ibv_fork_init", "the stock library's, then ours"},
    {"ibv_free_device_list", "a list of ours, around the stock library's"},
    {"ibv_get_device_list", "a list of ours, around the stock library's"},
    {"ibv_get_device_name", "in the same place of every device"},
};

// Big and zero, as a context of a provider that we do not know.
struct Foreign {
  alignas(16) std::byte device[2048]{};
  alignas(16) std::byte context_memory[8192]{};
  alignas(16) std::byte object[2048]{};
  std::byte memory[4096]{};
  ibv_async_event event{};
  int node = ::open("/dev/null", O_RDWR);

  Foreign() {
    std::strcpy(reinterpret_cast<ibv_device*>(device)->name, "other0");
    context()->device = reinterpret_cast<ibv_device*>(device);
    ibv_context* owner = context();
    std::memcpy(object, &owner, sizeof owner);
    event.event_type = IBV_EVENT_QP_FATAL;
    event.element.qp = reinterpret_cast<ibv_qp*>(object);
  }
  ibv_context* context() { return reinterpret_cast<ibv_context*>(context_memory + 1024); }

  std::uint64_t argument(char kind, unsigned position) {
    switch (kind) {
      case 'c': return reinterpret_cast<std::uintptr_t>(context());
      case 'd': return reinterpret_cast<std::uintptr_t>(device);
      case 'o': return reinterpret_cast<std::uintptr_t>(object);
      case 'e': return reinterpret_cast<std::uintptr_t>(&event);
      case 'm': return reinterpret_cast<std::uintptr_t>(memory) + 512 * position;
      case 'n': return static_cast<std::uint64_t>(node);
      case '8': return 0x1'0000'0001 + position;
      default: return 1 + position;
    }
  }
};

std::uint64_t mask_of(char kind) {
  switch (kind) {
    case '1': return 0xff;
    case '2': return 0xffff;
    case 'n':
    case '4': return 0xffff'ffff;
    default: return ~std::uint64_t{0};
  }
}

void check(const std::string& name, const std::string& version, const char* signature,
           bool returns) {
  using Entry = std::uint64_t (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                                  std::uint64_t, std::uint64_t);
  void* symbol = ::dlvsym(RTLD_DEFAULT, name.c_str(), version.c_str());
  Dl_info info{};
  if (!symbol || !::dladdr(symbol, &info) || !std::strstr(info.dli_fname, "libferry.so")) {
    expect(false, name + " is not ours");
    return;
  }
  Foreign foreign;
  Foreign untouched = foreign;
  std::uint64_t arguments[6] = {};
  for (unsigned i = 0; signature[i] != 0; ++i) {
    arguments[i] = foreign.argument(signature[i], i);
  }
  calls.clear();
  const std::uint64_t result = reinterpret_cast<Entry>(symbol)(
      arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
  expect(calls.size() == 1 && calls[0].name == name,
         name + " did not call the stock function, once");
  if (calls.empty()) return;
  for (unsigned i = 0; signature[i] != 0; ++i) {
    expect(((calls[0].arguments[i] ^ arguments[i]) & mask_of(signature[i])) == 0,
           name + ": argument " + std::to_string(i) + " is another");
  }
  expect(!returns || (result & 0xffff'ffff) == kResult, name + " returns something else");
  expect(!std::memcmp(foreign.memory, untouched.memory, sizeof foreign.memory) &&
             !std::memcmp(foreign.device, untouched.device, sizeof foreign.device),
         name + " wrote to what is not ours");
}

}  // namespace

extern "C" std::uint64_t played_call(const char* name, const std::uint64_t* arguments) {
  Call call{name, {}};
  std::memcpy(call.arguments, arguments, sizeof call.arguments);
  calls.push_back(call);
  return std::string(name) == "ibv_get_device_list" ? 0 : kResult;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream symbols(argv[1]);
  unsigned checked = 0;
  for (std::string line; std::getline(symbols, line);) {
    const std::size_t at = line.find("@@IBVERBS_");
    if (at == std::string::npos) continue;
    const std::string name = line.substr(0, at), version = line.substr(at + 2);
    if (kOthers.contains(name)) continue;
    const auto plain = kSignatures.find(name), silent = kSignatures.find("-" + name);
    if (plain == kSignatures.end() && silent == kSignatures.end()) {
      expect(false, "say what " + name + " takes: it is new");
      continue;
    }
    const bool returns = plain != kSignatures.end();
    check(name, version, returns ? plain->second : silent->second, returns);
    ++checked;
  }
  expect(checked > 40, "too few symbols");
  std::printf("%u entry points checked, %d failures\n", checked, failures);
  return failures != 0;
}
