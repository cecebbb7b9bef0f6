#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <memory>

// What libarchive gives, for owners.
namespace ferry::rootfs {

struct FreeArchive {
  void operator()(archive* what) const { ::archive_free(what); }
  void operator()(archive_entry* what) const { ::archive_entry_free(what); }
};
using Archive = std::unique_ptr<archive, FreeArchive>;
using Entry = std::unique_ptr<archive_entry, FreeArchive>;

}  // namespace ferry::rootfs
