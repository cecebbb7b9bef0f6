// Throughput over time, as a text file that may be read while it grows.
//
//   file = *(seconds SP completions SP bytes LF)
//
// One line per 10 ms in which the process ran: the wall-clock time at which these 10 ms begin
// (seconds with two decimals), the completions seen and the payload bytes received, or sent and
// completed, in them. 10 ms in which the process was frozen have no line.
#pragma once

#include <cstdint>
#include <string>

namespace stream_check {

class Series {
 public:
  // Does nothing without a path. Throws Failure when the file cannot be opened.
  explicit Series(const std::string& path);
  ~Series();
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;

  void add(int64_t realtime_ns, uint64_t completions, uint64_t bytes);

 private:
  void close_bucket();
  void flush();

  int fd_ = -1;
  int64_t bucket_ = 0;  // in 10 ms since the epoch; 0: none yet
  int64_t last_write_ = 0;
  uint64_t completions_ = 0;
  uint64_t bytes_ = 0;
  std::string pending_;
};

}  // namespace stream_check
