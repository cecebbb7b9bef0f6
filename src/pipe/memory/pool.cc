#include "pipe/memory/pool.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

namespace ferry::pipe {
namespace {

// Of a ring. The thread of the control calls clears them, which is not to keep others waiting.
constexpr std::size_t kMostHuge = 64 << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

bool Account::take(std::size_t size) {
  const std::size_t limit = limit_;
  std::size_t used = used_;
  do {
    if (size > limit || used > limit - size) return false;
  } while (!used_.compare_exchange_weak(used, used + size));
  return true;
}

std::optional<Share> Share::take(Accounts accounts, std::size_t size) {
  for (std::size_t taken = 0; taken < accounts.size(); ++taken) {
    if (accounts[taken]->take(size)) continue;
    while (taken > 0) accounts[--taken]->give_back(size);
    return std::nullopt;
  }
  return Share(std::move(accounts), size);
}

Share Share::keep(Accounts accounts, std::size_t size) {
  for (const auto& account : accounts) account->keep(size);
  return Share(std::move(accounts), size);
}

Share::~Share() {
  for (const auto& account : accounts_) account->give_back(size_);
}

Ring::Ring(UniqueFd memory, std::byte* base, std::size_t size, Share share)
    : memory_(std::move(memory)), base_(base), size_(size), share_(std::move(share)) {}

Ring::~Ring() {
  ::munmap(base_, size_);
}

UniqueFd sealed_memory(const char* name, std::size_t size, unsigned flags) {
  UniqueFd memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) {
    return {};
  }
  return memory;
}

std::size_t size_of_sealed(int memory) {
  // Nothing but memory has seals, so that nothing else is asked for its size.
  struct stat status {};
  const int seals = ::fcntl(memory, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(memory, &status) != 0) return 0;
  return static_cast<std::size_t>(status.st_size);
}

UniqueFd copy_of(int descriptor) {
  return UniqueFd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
}

Pool::Pool(Settings settings)
    : huge_pages_(settings.huge_pages), all_(std::make_shared<Account>(settings.limit)) {}

std::optional<Share> Pool::share(std::size_t size, Accounts owners, std::optional<Share>* kept) {
  if (kept != nullptr && *kept && (*kept)->size() == size) {
    std::optional<Share> taken(std::move(**kept));
    kept->reset();
    return taken;
  }
  owners.push_back(all_);
  return Share::take(std::move(owners), size);
}

Share Pool::keep(std::size_t size, Accounts owners) {
  owners.push_back(all_);
  return Share::keep(std::move(owners), size);
}

std::shared_ptr<Ring> Pool::make(std::size_t size, const Accounts& owners, int* error) {
  *error = ENOBUFS;
  if (size == 0 || size > (std::size_t{1} << 40)) return nullptr;
  size = (size + kHugePage - 1) / kHugePage * kHugePage;
  auto taken = share(size, owners);
  if (!taken) return nullptr;
  for (const unsigned flags : {unsigned{MFD_HUGETLB | MFD_HUGE_2MB}, 0U}) {
    if (flags != 0 && (!huge_pages_ || size > kMostHuge)) continue;
    UniqueFd memory = sealed_memory("ferry-pipe-ring", size, flags);
    if (!memory) continue;
    // Huge pages are reserved here, or there are too few.
    void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (base == MAP_FAILED) continue;
    // They count for the cgroup of whoever touches them first: where a program's allows none, it would get SIGBUS.
    if (flags != 0 && ::madvise(base, size, MADV_POPULATE_WRITE) != 0) {
      ::munmap(base, size);
      continue;
    }
    return std::make_shared<Ring>(std::move(memory), static_cast<std::byte*>(base), size,
                                  std::move(*taken));
  }
  return nullptr;
}

std::shared_ptr<Ring> Pool::adopt(int memory, const Accounts& owners, std::optional<Share>* kept,
                                  int* error) {
  const std::size_t size = size_of_sealed(memory);
  *error = EINVAL;
  if (size == 0 || size % kHugePage != 0 || size > kLargestRing) return nullptr;
  *error = ENOBUFS;
  auto taken = share(size, owners, kept);
  if (!taken) return nullptr;
  UniqueFd copy = copy_of(memory);
  if (!copy) return nullptr;
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (base == MAP_FAILED) return nullptr;
  return std::make_shared<Ring>(std::move(copy), static_cast<std::byte*>(base), size,
                                std::move(*taken));
}

bool reserve_huge_pages(std::size_t size) {
  constexpr char kFile[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
  const std::size_t wanted = size / kHugePage;
  std::size_t there = 0;
  if (!(std::ifstream(kFile) >> there)) return false;
  if (there >= wanted) return true;
  std::ofstream(kFile) << wanted << std::flush;
  return (std::ifstream(kFile) >> there) && there >= wanted;
}

}  // namespace ferry::pipe
