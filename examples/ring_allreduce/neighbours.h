#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace ring_allreduce {

// What is received in an exchange: it goes to `into`, or where that is null, each part to `take`, in order.
struct Incoming {
  std::size_t size = 0;
  char* into = nullptr;
  std::function<void(const char* part, std::size_t size)> take;
};

// The two neighbours of a rank in the ring. Errors end the program.
class Neighbours {
 public:
  virtual ~Neighbours() = default;
  // Memory to write a message in, which the exchange after the next sends. What is sent from elsewhere may have to
  // be copied.
  virtual char* room() = 0;
  // Sends to the next rank, and receives from the previous one meanwhile.
  virtual void exchange(const char* from, std::size_t size, const Incoming& incoming) = 0;
};

// Where a rank and the next one listen, and how long a message is at most. Ranks start in any order.
struct Place {
  std::string own, next;
  std::size_t message = 0;
};

std::unique_ptr<Neighbours> neighbours_by_sockets(const Place& place);  // TCP, and Unix sockets
std::unique_ptr<Neighbours> neighbours_by_io_uring(const Place& place);
std::unique_ptr<Neighbours> neighbours_by_pipe(const Place& place);

constexpr int kPatience = 30'000;  // milliseconds within which all ranks are to be started

}  // namespace ring_allreduce
