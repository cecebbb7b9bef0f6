#include "rootfs/pack.h"

#include <fcntl.h>
#include <fts.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "rootfs/frames.h"
#include "rootfs/libarchive.h"

namespace ferry::rootfs {
namespace {

constexpr std::size_t kPiece = 128 << 10;
constexpr time_t kSettles = 2;  // seconds: file systems keep times as coarsely as that

struct CloseWalk {
  void operator()(FTS* walk) const { ::fts_close(walk); }
};

struct File {
  explicit File(int opened) : descriptor(opened) {}
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  File(const File&) = delete;
  int descriptor;
};

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_mode == b.st_mode &&
         a.st_size == b.st_size && same_time(a.st_mtim, b.st_mtim) &&
         same_time(a.st_ctim, b.st_ctim);
}

std::string parent_of(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string::npos ? name : name.substr(0, slash);
}

void need(int result, archive* what) {
  if (result == ARCHIVE_OK) return;
  const int error = ::archive_errno(what);
  throw Error(::archive_error_string(what) != nullptr ? ::archive_error_string(what) : "archive",
              error > 0 ? error : EIO);
}

class Writer {
 public:
  explicit Writer(const Packer::Sink& sink)
      : sink_(sink), out_(::archive_write_new()), disk_(::archive_read_disk_new()) {
    need(::archive_write_set_format_pax(out_.get()), out_.get());
    // Names are bytes, in whatever character set.
    need(::archive_write_set_options(out_.get(), "hdrcharset=BINARY"), out_.get());
    need(::archive_write_set_bytes_per_block(out_.get(), kPiece), out_.get());
    need(::archive_write_set_bytes_in_last_block(out_.get(), 1), out_.get());
    need(::archive_read_disk_set_behavior(disk_.get(), ARCHIVE_READDISK_NO_FFLAGS), disk_.get());
    need(::archive_write_open(out_.get(), this, nullptr, &Writer::put, nullptr), out_.get());
  }

  void add_gone(const std::string& names) {
    const Entry entry(::archive_entry_new());
    ::archive_entry_set_pathname(entry.get(), kGone);
    ::archive_entry_set_filetype(entry.get(), AE_IFREG);
    ::archive_entry_set_size(entry.get(), static_cast<la_int64_t>(names.size()));
    need(::archive_write_header(out_.get(), entry.get()), out_.get());
    write(names.data(), names.size());
  }

  // A file that has gone meanwhile is left out: that is a change for the next pass.
  void add(const std::string& name, const struct stat& looked) {
    const bool is_file = S_ISREG(looked.st_mode);
    const File file(is_file ? ::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                            : -1);
    struct stat status = looked;
    if (is_file && (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0)) {
      if (errno == ENOENT || errno == ELOOP || errno == ENXIO) return;
      throw Error("cannot read " + name, errno);
    }
    if (is_file && !S_ISREG(status.st_mode)) return;
    const Entry entry(::archive_entry_new());
    ::archive_entry_copy_pathname(entry.get(), name.c_str());
    ::archive_entry_copy_sourcepath(entry.get(), name.c_str());
    ::archive_entry_copy_stat(entry.get(), &status);
    if (is_file && status.st_nlink > 1) {
      const auto [first, is_new] = links_.emplace(std::pair(status.st_dev, status.st_ino), name);
      if (!is_new) {
        ::archive_entry_copy_hardlink(entry.get(), first->second.c_str());
        ::archive_entry_unset_size(entry.get());
        need(::archive_write_header(out_.get(), entry.get()), out_.get());
        return;
      }
    }
    if (::archive_read_disk_entry_from_file(disk_.get(), entry.get(), file.descriptor, &status) !=
        ARCHIVE_OK) {
      if (::faccessat(AT_FDCWD, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
        links_.erase({status.st_dev, status.st_ino});
        return;
      }
      need(ARCHIVE_FAILED, disk_.get());
    }
    need(::archive_write_header(out_.get(), entry.get()), out_.get());
    if (is_file) write_content(file.descriptor, static_cast<std::size_t>(status.st_size), name);
  }

  void close() { need(::archive_write_close(out_.get()), out_.get()); }

 private:
  static la_ssize_t put(archive* what, void* self, const void* data, size_t size) {
    try {
      static_cast<Writer*>(self)->sink_({static_cast<const std::byte*>(data), size});
      return static_cast<la_ssize_t>(size);
    } catch (const Error& error) {
      ::archive_set_error(what, error.code, "%s", error.what());
      return -1;
    }
  }

  void write(const void* data, std::size_t size) {
    if (::archive_write_data(out_.get(), data, size) != static_cast<la_ssize_t>(size)) {
      need(ARCHIVE_FATAL, out_.get());
    }
  }

  // Writes as many bytes as the header says. If a file is shorter by now the rest is zeros: the
  // file will be sent again.
  void write_content(int file, std::size_t size, const std::string& name) {
    while (size > 0) {
      const ssize_t got = ::read(file, buffer_.data(), std::min(size, buffer_.size()));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw Error("cannot read " + name, errno);
      if (got == 0) return;
      write(buffer_.data(), static_cast<std::size_t>(got));
      size -= static_cast<std::size_t>(got);
    }
  }

  const Packer::Sink& sink_;
  Archive out_, disk_;
  std::map<std::pair<dev_t, ino_t>, std::string> links_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kPiece);
};

}  // namespace

Packer::Files Packer::look() {
  char here[] = ".";
  char* const roots[] = {here, nullptr};
  const std::unique_ptr<FTS, CloseWalk> walk(
      ::fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, nullptr));
  if (!walk) throw Error("cannot read the folder", errno);
  Files files;
  errno = 0;
  for (const FTSENT* at; (at = ::fts_read(walk.get())) != nullptr; errno = 0) {
    if (at->fts_info == FTS_DP) continue;
    const bool has_failed = at->fts_info == FTS_DNR || at->fts_info == FTS_ERR ||
                            at->fts_info == FTS_NS || at->fts_info == FTS_DC;
    if (has_failed && at->fts_errno == ENOENT) continue;  // it has just gone
    if (has_failed) throw Error(std::string("cannot read ") + at->fts_path, at->fts_errno);
    if (S_ISSOCK(at->fts_statp->st_mode)) continue;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const struct stat& status = *at->fts_statp;
    files[at->fts_path] = {status, status.st_ctim.tv_sec + kSettles < now.tv_sec};
  }
  if (errno != 0) throw Error("cannot read the folder", errno);
  return files;
}

// The names that have to be sent. All names of one file are sent together, or they would not share
// it.
std::set<std::string> Packer::changed(const Files& now, const std::set<std::string>& anyway) const {
  std::set<std::string> names;
  std::set<std::pair<dev_t, ino_t>> linked;
  for (const auto& [name, file] : now) {
    const auto found = before_.find(name);
    const bool is_known = found != before_.end() && found->second.is_settled &&
                          is_same(found->second.status, file.status) && !anyway.contains(name);
    if (is_known) continue;
    names.insert(name);
    if (file.status.st_nlink > 1 && S_ISREG(file.status.st_mode)) {
      linked.emplace(file.status.st_dev, file.status.st_ino);
    }
  }
  if (linked.empty()) return names;
  for (const auto& [name, file] : now) {
    if (S_ISREG(file.status.st_mode) && linked.contains({file.status.st_dev, file.status.st_ino})) {
      names.insert(name);
    }
  }
  return names;
}

// The names of files that are gone, or are of another kind now. What was in a folder goes with it.
std::string Packer::gone(const Files& now, std::set<std::string>* parents) const {
  std::string names;
  std::set<std::string> folders;
  for (const auto& [name, file] : before_) {
    const auto found = now.find(name);
    if (found != now.end() &&
        (found->second.status.st_mode & S_IFMT) == (file.status.st_mode & S_IFMT)) {
      continue;
    }
    const bool is_in_one = folders.contains(parent_of(name));
    if (S_ISDIR(file.status.st_mode)) folders.insert(name);
    if (is_in_one) continue;
    names += name + '\0';
    parents->insert(parent_of(name));
  }
  return names;
}

void Packer::pass(const std::set<std::string>& anyway, const Sink& sink) {
  Files now = look();
  std::set<std::string> names = changed(now, anyway), parents;
  const std::string gone = this->gone(now, &parents);
  // Writing into a folder changes its times.
  for (const auto& name : names) parents.insert(parent_of(name));
  for (const auto& parent : parents) {
    if (now.contains(parent)) names.insert(parent);
  }
  Writer writer(sink);
  if (!gone.empty()) writer.add_gone(gone);
  // Folders that are there already come after what is written into them, which changes their times.
  std::vector<std::string> folders;
  for (const auto& name : names) {
    const auto found = before_.find(name);
    const bool is_there =
        name == "." || (found != before_.end() && S_ISDIR(found->second.status.st_mode));
    if (is_there && S_ISDIR(now.at(name).status.st_mode))
      folders.push_back(name);
    else
      writer.add(name, now.at(name).status);
  }
  for (auto name = folders.rbegin(); name != folders.rend(); ++name) {
    writer.add(*name, now.at(*name).status);
  }
  writer.close();
  before_ = std::move(now);
}

}  // namespace ferry::rootfs
