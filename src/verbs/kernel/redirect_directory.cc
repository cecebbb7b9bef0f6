#include "verbs/kernel/redirect.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "verbs/stock.h"

// Lists the directories of virtual_files.h: what the system has there, and what is ours.
namespace ferry::verbs {
namespace {

static_assert(sizeof(dirent) == sizeof(dirent64) &&
              offsetof(dirent, d_name) == offsetof(dirent64, d_name));

struct Listing {
  std::vector<dirent> entries;
  std::size_t next = 0;
};

// The open listings, so that functions that get a DIR* know ours. The array has no lock, which a
// child after fork() might find held; the child has the parent's listings.
std::array<std::atomic<Listing*>, 64> open_listings;
std::atomic<int> open_count{0};

Listing* listing_of(DIR* directory) {
  if (open_count.load(std::memory_order_relaxed) == 0) return nullptr;
  auto* wanted = reinterpret_cast<Listing*>(directory);
  const auto at = std::find_if(open_listings.begin(), open_listings.end(),
                               [&](const auto& slot) { return slot.load() == wanted; });
  return wanted && at != open_listings.end() ? wanted : nullptr;
}

unsigned char type_of(PathKind kind) {
  switch (kind) {
    case PathKind::kDirectory: return DT_DIR;
    case PathKind::kLink: return DT_LNK;
    case PathKind::kDevice: return DT_CHR;
    default: return DT_REG;
  }
}

void add(Listing& listing, const std::string& name, unsigned char type) {
  const bool there = std::any_of(listing.entries.begin(), listing.entries.end(),
                                 [&](const dirent& entry) { return name == entry.d_name; });
  if (there) return;
  dirent entry{};
  entry.d_ino = listing.entries.size() + 1;
  entry.d_reclen = sizeof entry;
  entry.d_type = type;
  strncpy(entry.d_name, name.c_str(), sizeof entry.d_name - 1);
  listing.entries.push_back(entry);
}

void add_systems(Listing& listing, const char* path) {
  DIR* directory = FERRY_NEXT(opendir)(path);
  if (!directory) return;
  while (const dirent* entry = FERRY_NEXT(readdir)(directory)) {
    add(listing, entry->d_name, entry->d_type);
  }
  FERRY_NEXT(closedir)(directory);
}

int enter(std::unique_ptr<Listing> listing, DIR** out) {
  for (auto& slot : open_listings) {
    Listing* none = nullptr;
    if (!slot.compare_exchange_strong(none, listing.get())) continue;
    open_count.fetch_add(1);
    *out = reinterpret_cast<DIR*>(listing.release());
    return 0;
  }
  return EMFILE;
}

int close_listing(Listing* listing) {
  for (auto& slot : open_listings) {
    if (slot.load() == listing) slot.store(nullptr);
  }
  open_count.fetch_sub(1);
  delete listing;
  return 0;
}

int list(const char* path, const VirtualFile& found, DIR** out) {
  if (found.kind != PathKind::kDirectory) return ENOTDIR;
  auto listing = std::make_unique<Listing>();
  add(*listing, ".", DT_DIR);
  add(*listing, "..", DT_DIR);
  if (found.shared) add_systems(*listing, path);
  for (const VirtualEntry& entry : found.entries) add(*listing, entry.name, type_of(entry.kind));
  return enter(std::move(listing), out);
}

dirent* next_entry(Listing& listing) {
  if (listing.next == listing.entries.size()) return nullptr;
  dirent& entry = listing.entries[listing.next++];
  entry.d_off = static_cast<off_t>(listing.next);
  return &entry;
}

// Does what scandir(3) does, for a Listing, which it closes. The caller frees what it gets.
template <typename Entry>
int scan(DIR* directory, Entry*** out, int (*filter)(const Entry*),
         int (*compare)(const Entry**, const Entry**)) {
  std::vector<Entry*> kept;
  Listing& listing = *reinterpret_cast<Listing*>(directory);
  int error = guarded([&] {
    while (dirent* raw = next_entry(listing)) {
      auto* entry = reinterpret_cast<Entry*>(raw);
      if (filter && !filter(entry)) continue;
      kept.reserve(kept.size() + 1);
      auto* copy = static_cast<Entry*>(::malloc(sizeof(Entry)));
      if (!copy) return ENOMEM;
      memcpy(copy, entry, sizeof(Entry));
      kept.push_back(copy);
    }
    return 0;
  });
  close_listing(&listing);
  auto** names = static_cast<Entry**>(::malloc((kept.size() + 1) * sizeof(Entry*)));
  if (!names) error = ENOMEM;
  if (error != 0) {
    for (Entry* entry : kept) ::free(entry);
    ::free(names);
    return minus_one_or_errno(error);
  }
  if (compare) {
    std::sort(kept.begin(), kept.end(),
              [&](const Entry* a, const Entry* b) { return compare(&a, &b) < 0; });
  }
  std::copy(kept.begin(), kept.end(), names);
  *out = names;
  return static_cast<int>(kept.size());
}

}  // namespace
}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT DIR* opendir(const char* path) {
  if (!may_be_virtual(path)) return FERRY_NEXT(opendir)(path);
  VirtualFile found;
  int error = find_file(path, true, &found);
  if (error == 0 && is_systems(found, &path)) return FERRY_NEXT(opendir)(path);
  DIR* directory = nullptr;
  const int saved_errno = errno;
  if (error == 0) error = guarded([&] { return list(path, found, &directory); });
  errno = saved_errno;
  return pointer_or_errno(error, directory);
}

FERRY_EXPORT int closedir(DIR* directory) {
  Listing* listing = listing_of(directory);
  return listing ? close_listing(listing) : FERRY_NEXT(closedir)(directory);
}

FERRY_EXPORT dirent* readdir(DIR* directory) {
  Listing* listing = listing_of(directory);
  return listing ? next_entry(*listing) : FERRY_NEXT(readdir)(directory);
}
FERRY_EXPORT dirent64* readdir64(DIR* directory) {
  Listing* listing = listing_of(directory);
  return listing ? reinterpret_cast<dirent64*>(next_entry(*listing))
                 : FERRY_NEXT(readdir64)(directory);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // programs call them all the same
#define FERRY_READDIR_R(function, type)                                   \
  FERRY_EXPORT int function(DIR* directory, type* entry, type** result) { \
    Listing* listing = listing_of(directory);                             \
    if (!listing) return FERRY_NEXT(function)(directory, entry, result);  \
    const dirent* next = next_entry(*listing);                            \
    if (next) memcpy(entry, next, sizeof *entry);                         \
    *result = next ? entry : nullptr;                                     \
    return 0;                                                             \
  }
FERRY_READDIR_R(readdir_r, dirent)
FERRY_READDIR_R(readdir64_r, dirent64)
#pragma GCC diagnostic pop

FERRY_EXPORT void rewinddir(DIR* directory) noexcept {
  Listing* listing = listing_of(directory);
  if (!listing) return FERRY_NEXT(rewinddir)(directory);
  listing->next = 0;
}
FERRY_EXPORT long telldir(DIR* directory) noexcept {
  Listing* listing = listing_of(directory);
  return listing ? static_cast<long>(listing->next) : FERRY_NEXT(telldir)(directory);
}
FERRY_EXPORT void seekdir(DIR* directory, long position) noexcept {
  Listing* listing = listing_of(directory);
  if (!listing) return FERRY_NEXT(seekdir)(directory, position);
  listing->next =
      std::min(static_cast<std::size_t>(std::max(position, 0L)), listing->entries.size());
}
// POSIX allows for a directory stream without a descriptor.
FERRY_EXPORT int dirfd(DIR* directory) noexcept {
  return listing_of(directory) ? minus_one_or_errno(ENOTSUP) : FERRY_NEXT(dirfd)(directory);
}

#define FERRY_SCANDIR(function, type)                                                   \
  FERRY_EXPORT int function(const char* path, type*** out, int (*filter)(const type*),  \
                            int (*compare)(const type**, const type**)) {               \
    if (!may_be_virtual(path)) return FERRY_NEXT(function)(path, out, filter, compare); \
    DIR* directory = opendir(path);                                                     \
    if (!directory) return -1;                                                          \
    if (listing_of(directory)) return scan(directory, out, filter, compare);            \
    FERRY_NEXT(closedir)(directory);                                                    \
    return FERRY_NEXT(function)(path, out, filter, compare);                            \
  }
FERRY_SCANDIR(scandir, dirent)
FERRY_SCANDIR(scandir64, dirent64)
