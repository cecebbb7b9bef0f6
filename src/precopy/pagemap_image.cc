#include "precopy/pagemap_image.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "precopy/page_ranges.h"

namespace ferry::precopy {
namespace {

constexpr std::uint32_t kMagic = 0x54564319, kPagemapMagic = 0x56084025;
constexpr std::uint64_t kLazy = 1 << 1, kIsPresent = 1 << 2;  // PE_LAZY, PE_PRESENT

[[noreturn]] void malformed(const std::string& path) {
  throw std::runtime_error(path + " is not as CRIU 4.2 writes it");
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  const char* position() const { return bytes_.data(); }
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

struct Entry {
  std::uint64_t flags = 0;
  std::size_t flags_end = 0;  // behind them in the file
};

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(in), {}};
  if (!in) malformed(path);
  return content;
}

std::vector<Entry> entries_of(const std::string& path, const std::string& content) {
  Reader file(content);
  if (file.word() != kMagic || file.word() != kPagemapMagic) malformed(path);
  std::vector<Entry> entries;
  for (bool head = true; !file.empty(); head = false) {
    const auto length = file.word();
    const auto message = length ? file.take(*length) : std::nullopt;
    if (!message) malformed(path);
    if (head) continue;
    Entry entry;
    std::uint64_t address = 0, old_count = 0, count = 0;
    for (Reader fields(*message); !fields.empty();) {
      const auto key = fields.varint();
      const auto value = key && (*key & 7) == 0 ? fields.varint() : std::nullopt;
      if (!value) malformed(path);
      switch (*key >> 3) {
        case 1: address = *value; break;
        case 2: old_count = *value; break;
        case 4:
          entry.flags = *value;
          entry.flags_end = static_cast<std::size_t>(fields.position() - content.data());
          break;
        case 5: count = *value; break;
        default: break;
      }
    }
    if (count == 0) count = old_count;
    if (address % kPage != 0 || address >= kAddressEnd || count > (kAddressEnd - address) / kPage) {
      malformed(path);
    }
    entries.push_back(entry);
  }
  return entries;
}

// The images of private memory.
std::vector<std::string> pagemaps_in(const std::string& directory) {
  constexpr std::string_view kPrefix = "pagemap-", kSuffix = ".img";
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const char* last = name.data() + name.size() - kSuffix.size();
    std::int32_t process = 0;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), last, process);
    if (error != std::errc() || end != last) continue;  // of shared memory: always complete
    all.push_back(entry.path());
  }
  return all;
}

}  // namespace

void let_criu_restore(const std::string& directory) {
  for (const auto& path : pagemaps_in(directory)) {
    std::string content = content_of(path);
    bool has_changed = false;
    for (const auto& entry : entries_of(path, content)) {
      if ((entry.flags & kLazy) == 0) continue;
      if ((entry.flags & kIsPresent) == 0) throw std::runtime_error(path + " leaves out pages");
      char& flags = content[entry.flags_end - 1];
      // In one byte, the last of what may be several.
      if (static_cast<unsigned char>(flags) != entry.flags) malformed(path);
      flags = static_cast<char>(entry.flags & ~kLazy);
      has_changed = true;
    }
    if (!has_changed) continue;
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << content;
    out.close();
    if (!out) throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace ferry::precopy
