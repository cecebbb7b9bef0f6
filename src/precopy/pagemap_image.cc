#include "precopy/pagemap_image.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace ferry::precopy {
namespace {

constexpr std::uint32_t kMagic = 0x54564319, kPagemapMagic = 0x56084025;
constexpr std::uint64_t kLazy = 1 << 1, kPresent = 1 << 2;  // PE_LAZY, PE_PRESENT

[[noreturn]] void malformed(const std::string& path) {
  throw std::runtime_error(path + " is not as CRIU 4.2 writes it");
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::optional<std::uint32_t> word() {
    std::uint32_t value = 0;
    if (bytes_.size() < sizeof value) return std::nullopt;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::optional<std::string_view> take(std::size_t size) {
    if (bytes_.size() < size) return std::nullopt;
    const auto taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

 private:
  std::string_view bytes_;
};

PageRanges lazy_pages(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  Reader file(content);
  if (!in || file.word() != kMagic || file.word() != kPagemapMagic) malformed(path);
  PageRanges pages;
  for (bool head = true; !file.empty(); head = false) {
    const auto length = file.word();
    const auto message = length ? file.take(*length) : std::nullopt;
    if (!message) malformed(path);
    if (head) continue;
    std::uint64_t address = 0, old_count = 0, count = 0, flags = 0;
    for (Reader fields(*message); !fields.empty();) {
      const auto key = fields.varint();
      const auto value = key && (*key & 7) == 0 ? fields.varint() : std::nullopt;
      if (!value) malformed(path);
      switch (*key >> 3) {
        case 1: address = *value; break;
        case 2: old_count = *value; break;
        case 4: flags = *value; break;
        case 5: count = *value; break;
        default: break;
      }
    }
    if (count == 0) count = old_count;
    if (address % kPage != 0 || address >= kAddressEnd || count > (kAddressEnd - address) / kPage) {
      malformed(path);
    }
    if ((flags & kLazy) != 0 && (flags & kPresent) == 0)
      pages.add(address, address + count * kPage);
  }
  return pages;
}

}  // namespace

std::map<std::int32_t, PageRanges> pages_left_out(const std::string& directory) {
  constexpr std::string_view kPrefix = "pagemap-", kSuffix = ".img";
  std::map<std::int32_t, PageRanges> all;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const char* last = name.data() + name.size() - kSuffix.size();
    std::int32_t process = 0;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), last, process);
    if (error != std::errc() || end != last) continue;  // of shared memory: always complete
    auto pages = lazy_pages(entry.path());
    if (!pages.empty()) all.emplace(process, std::move(pages));
  }
  return all;
}

}  // namespace ferry::precopy
