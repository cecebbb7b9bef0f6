#include "series.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "failure.h"

namespace stream_check {
namespace {

constexpr int64_t kBucketNs = 10'000'000;
constexpr int64_t kBucketsPerWrite = 10;

}  // namespace

Series::Series(const std::string& path) {
  if (path.empty()) return;
  fd_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw Failure("cannot open the series file " + path + ": " + std::strerror(errno) +
                  "; give a path in a writable folder");
  }
}

Series::~Series() {
  if (fd_ < 0) return;
  close_bucket();
  flush();
  close(fd_);
}

void Series::add(int64_t realtime_ns, uint64_t completions, uint64_t bytes) {
  if (fd_ < 0) return;
  const int64_t bucket = realtime_ns / kBucketNs;
  if (bucket != bucket_) {
    close_bucket();
    bucket_ = bucket;
    if (bucket - last_write_ >= kBucketsPerWrite || bucket < last_write_) {
      flush();
      last_write_ = bucket;
    }
  }
  completions_ += completions;
  bytes_ += bytes;
}

void Series::close_bucket() {
  if (bucket_ == 0) return;
  char line[96];
  const int length = std::snprintf(
      line, sizeof line, "%lld.%02lld %llu %llu\n", static_cast<long long>(bucket_ / 100),
      static_cast<long long>(bucket_ % 100), static_cast<unsigned long long>(completions_),
      static_cast<unsigned long long>(bytes_));
  pending_.append(line, static_cast<size_t>(length));
  completions_ = bytes_ = 0;
}

void Series::flush() {
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t n = write(fd_, pending_.data() + done, pending_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // a full disk must not end the run; the series just has a hole
    done += static_cast<size_t>(n);
  }
  pending_.clear();
}

}  // namespace stream_check
