#pragma once

#include <cstddef>
#include <cstdint>

namespace nf_chain {

// What goes from function to function: this, and the rest of `size` bytes.
struct Header {
  enum Kind : std::uint16_t { kRequest, kEnd };
  std::uint32_t size;    // of all, with the header
  std::uint32_t number;  // of the request
  std::uint32_t source;  // the IPv4 address of who asks, in host order
  std::uint16_t port;    // of the service that is asked
  std::uint16_t kind;
};

// A message kEnd is the last one. It gathers one of these from each function.
struct Report {
  char function[16];
  std::uint64_t requests, passed;
  double processor_seconds;
};

constexpr std::size_t kBatch = 65536;  // bytes of requests that go from thread to thread at once
constexpr std::size_t kMostPayload = 32 * 1024;
constexpr int kPatience = 30'000;  // milliseconds within which all functions are to be started

// How many of the first `size` bytes are whole messages. Ends the program where there is none.
std::size_t whole_messages(const char* bytes, std::size_t size);

}  // namespace nf_chain
