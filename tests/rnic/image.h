#pragma once

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "sim_pair.h"

// What the tests of images share. FERRY_WRITE_GOLDEN=DIR writes the images of this version to DIR
// as text (hexadecimal, 32 bytes a line) instead of reading them from tests/rnic/golden. Files of
// an older version are never written again: they must load for ever.
namespace ferry::rnic::testing {

inline constexpr std::size_t kImageBytes = 64 * 1024;
inline constexpr std::uintptr_t kMemoryA = 0x4000'0000;  // where also the sanitizers allow it
inline constexpr std::uintptr_t kMemoryB = 0x4010'0000;

// Memory at the addresses that the golden images name.
class FixedMemory {
 public:
  explicit FixedMemory(std::uintptr_t address)
      : data_(static_cast<std::byte*>(
            mmap(reinterpret_cast<void*>(address), kImageBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0))) {}
  ~FixedMemory() { munmap(data_, kImageBytes); }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

struct Restored {
  device::Pd* pd = nullptr;
  device::Mr* mr = nullptr;
  device::Cq* cq = nullptr;
  device::Xrcd* xrcd = nullptr;
  std::vector<device::Cq*> cqs;
  std::vector<device::Srq*> srqs;
  std::vector<device::Qp*> qps;
  std::vector<device::Mw*> mws;
  std::vector<device::Ah*> ahs;
};

// The whole image into a fresh RNIC; the first errno that is not 0.
inline int restore(Context& context, std::span<const std::byte> image, Restored* out) {
  while (!image.empty()) {
    std::span<const std::byte> rest = image;
    device::Record record;
    if (!device::next_record(&rest, &record)) return EINVAL;
    const auto bytes = image.first(image.size() - rest.size());
    image = rest;
    device::Object* object = nullptr;
    if (int error = context.restore(record.type, device::RestoreCommand::kCreate, bytes, &object);
        error != 0) {
      return error;
    }
    int error = 0;
    switch (record.type) {
      case device::ObjectType::kPd: out->pd = static_cast<device::Pd*>(object); break;
      case device::ObjectType::kMr:
        error = context.restore(record.type, device::RestoreCommand::kMrKeys, bytes, &object);
        out->mr = static_cast<device::Mr*>(object);
        break;
      case device::ObjectType::kCq:
        error = context.restore(record.type, device::RestoreCommand::kRefill, bytes, &object);
        out->cq = static_cast<device::Cq*>(object);
        out->cqs.push_back(out->cq);
        break;
      case device::ObjectType::kQp:
        error = context.restore(record.type, device::RestoreCommand::kRefill, bytes, &object);
        out->qps.push_back(static_cast<device::Qp*>(object));
        break;
      case device::ObjectType::kSrq:
        error = context.restore(record.type, device::RestoreCommand::kRefill, bytes, &object);
        out->srqs.push_back(static_cast<device::Srq*>(object));
        break;
      case device::ObjectType::kXrcd: out->xrcd = static_cast<device::Xrcd*>(object); break;
      case device::ObjectType::kMw: out->mws.push_back(static_cast<device::Mw*>(object)); break;
      case device::ObjectType::kAh: out->ahs.push_back(static_cast<device::Ah*>(object)); break;
      default: break;
    }
    if (error != 0) return error;
  }
  return 0;
}

inline std::vector<std::byte> describe(Context& context, int* count) {
  std::uint32_t unacked = 0;
  EXPECT_EQ(context.quiesce(std::chrono::seconds(1), &unacked), 0);
  std::vector<std::byte> image;
  EXPECT_EQ(context.describe(&image, count), 0);
  return image;
}

struct Images {
  std::vector<std::byte> a, b;
};

inline std::string to_text(std::span<const std::byte> bytes) {
  std::string text;
  char digits[4];
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(bytes[i]));
    text += digits;
    if (i % 32 == 31 || i + 1 == bytes.size()) text += '\n';
  }
  return text;
}

inline std::vector<std::byte> from_file(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::byte> bytes;
  std::string line;
  while (std::getline(file, line)) {
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      bytes.push_back(static_cast<std::byte>(std::stoul(line.substr(i, 2), nullptr, 16)));
    }
  }
  return bytes;
}

inline std::string golden_name(const std::string& folder, int version, const std::string& name) {
  return folder + "/image_v" + std::to_string(version) + "_" + name + ".hex";
}

// True: written, because FERRY_WRITE_GOLDEN asks for it.
template <typename Make>
bool write_golden(Make make, const std::string& a, const std::string& b, int version = 1) {
  const char* folder = std::getenv("FERRY_WRITE_GOLDEN");
  if (folder == nullptr) return false;
  const Images images = make();
  std::ofstream(golden_name(folder, version, a)) << to_text(images.a);
  std::ofstream(golden_name(folder, version, b)) << to_text(images.b);
  return true;
}

inline Images read_golden(const std::string& a, const std::string& b, int version = 1) {
  const Images images{from_file(golden_name(FERRY_GOLDEN, version, a)),
                      from_file(golden_name(FERRY_GOLDEN, version, b))};
  EXPECT_FALSE(images.a.empty());
  EXPECT_FALSE(images.b.empty());
  return images;
}

// Opens an RNIC without objects, for an image.
inline void open_fresh(SimPair& pair, Node& node, unsigned host) {
  Context::Options options = pair.options(host);
  options.sink = &node.sink;
  int error = 0;
  node.context = Context::open(options, &error);
  ASSERT_EQ(error, 0);
}

// Bytes of the last record of each type, with its frame.
inline std::map<device::ObjectType, std::size_t> sizes_of_last_records(
    std::span<const std::byte> image) {
  std::map<device::ObjectType, std::size_t> sizes;
  device::Record record;
  while (device::next_record(&image, &record)) {
    sizes[record.type] = device::kRecordHeaderSize + record.body.size();
  }
  return sizes;
}

// Whatever the bytes are, the RNIC neither crashes nor hangs, and can be resumed and closed. How
// many of the images were refused.
inline unsigned change_bytes(SimPair& pair, const std::vector<std::byte>& image, unsigned rounds) {
  port::SplitMix64 random(11);
  unsigned refused = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    auto broken = image;
    for (auto changes = random.between(1, 3); changes > 0; --changes) {
      broken[random.between(0, broken.size() - 1)] = static_cast<std::byte>(random.next());
    }
    Node node;
    open_fresh(pair, node, 50);
    Restored restored;
    if (restore(*node.context, broken, &restored) != 0) ++refused;
    node.context->resume(false);
    Engine::Lock lock(node.context->engine());
    for (int i = 0; i < 10; ++i) {
      pair.network.advance_to(pair.network.now() + std::chrono::milliseconds(1));
      node.context->engine().run(pair.network.now());
    }
  }
  return refused;
}

}  // namespace ferry::rnic::testing
