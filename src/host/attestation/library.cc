#include "host/attestation/library.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/build_id.h"
#include "base/failure.h"
#include "base/net.h"
#include "base/unique_fd.h"

namespace ferry::host {
namespace {

constexpr std::size_t kPiece = 1 << 16;
constexpr char kName[] = "/libferry.so";
constexpr std::string_view kDeleted = " (deleted)";

// Executable memory of the library.
struct Code {
  std::string range;  // as in /proc/PID/maps
  std::uint64_t begin = 0, end = 0, offset = 0;
  std::string file;  // device and inode
};

std::vector<Code> code_of(pid_t pid) {
  std::vector<Code> found;
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    Code code;
    std::string rights, device, inode, path;
    char dash = 0;
    words >> code.range >> rights >> std::hex >> code.offset >> device >> inode >> std::ws;
    std::getline(words, path);
    if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
    if (rights.find('x') == std::string::npos || !path.ends_with(kName)) continue;
    std::istringstream(code.range) >> std::hex >> code.begin >> dash >> code.end;
    code.file = device + " " + inode;
    found.push_back(std::move(code));
  }
  return found;
}

UniqueFd opened(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw Failure(fmt::format("cannot read {}: {}", path, error_text(errno)));
  return file;
}

bool is_intact(const UniqueFd& memory, const UniqueFd& file, const Code& code) {
  std::vector<char> here(kPiece), there(kPiece);
  for (std::uint64_t done = 0; done < code.end - code.begin;) {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, code.end - code.begin - done));
    const auto in_memory =
        ::pread(memory.get(), here.data(), size, static_cast<off_t>(code.begin + done));
    const auto in_file =
        ::pread(file.get(), there.data(), size, static_cast<off_t>(code.offset + done));
    if (in_memory != static_cast<ssize_t>(size) || in_file < 0) return false;
    // Behind the end of a file its last page is filled with zeros.
    std::memset(there.data() + in_file, 0, size - static_cast<std::size_t>(in_file));
    if (std::memcmp(here.data(), there.data(), size) != 0) return false;
    done += size;
  }
  return true;
}

}  // namespace

Library library_of(pid_t pid) {
  const std::vector<Code> codes = code_of(pid);
  std::set<std::string> files;
  for (const auto& code : codes) files.insert(code.file);
  if (files.size() != 1) {
    throw Failure(
        fmt::format("process {} has {} libferry.so", pid, files.empty() ? "no" : "more than one"));
  }
  const auto mapped = [&](const Code& code) {
    return fmt::format("/proc/{}/map_files/{}", pid, code.range);
  };
  Library library;
  library.build_id = build_id_of(mapped(codes.front()));
  library.digest = digest_of(mapped(codes.front()));
  const UniqueFd memory = opened(fmt::format("/proc/{}/mem", pid));
  library.is_intact = true;
  for (const auto& code : codes) {
    if (!is_intact(memory, opened(mapped(code)), code)) library.is_intact = false;
  }
  return library;
}

std::string digest_of(const std::string& path) {
  const UniqueFd file = opened(path);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> sum(::EVP_MD_CTX_new(),
                                                               ::EVP_MD_CTX_free);
  ::EVP_DigestInit_ex(sum.get(), ::EVP_sha256(), nullptr);
  std::vector<char> piece(kPiece);
  ssize_t size = 0;
  while ((size = ::read(file.get(), piece.data(), piece.size())) > 0)
    ::EVP_DigestUpdate(sum.get(), piece.data(), static_cast<std::size_t>(size));
  if (size < 0) throw Failure(fmt::format("cannot read {}: {}", path, error_text(errno)));
  std::vector<unsigned char> bytes(EVP_MAX_MD_SIZE);
  unsigned length = 0;
  ::EVP_DigestFinal_ex(sum.get(), bytes.data(), &length);
  bytes.resize(length);
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace ferry::host
