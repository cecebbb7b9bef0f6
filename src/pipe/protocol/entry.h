#pragma once

#include <cstdint>

// The entry of a command queue, as in figure 6 of the paper. Programs write entries for the driver, the
// driver writes entries for programs, and the engine reads and completes entries of the same form.
namespace ferry::pipe {

enum class EntryType : std::uint8_t {
  kNone = 0,         // the slot is empty
  kSend = 1,         // PD_GENERAL_SEND: copy
  kReceiveDone = 2,  // the program has read: `source` is how much of the stream, from its beginning
  kCompleted = 3,    // PD_GENERAL_COMPLETED
  kFailed = 4,       // of an engine: memory of the copy is gone
};

// Which table `sequence` is an index of.
enum class Table : std::uint8_t { kSend = 0, kReceive = 1 };

// What a completion tells a program of a socket.
enum EntryFlags : std::uint16_t {
  kEnd = 1,        // the peer sends nothing after what `destination` counts
  kReset = 2,      // the connection is gone
  kReadClosed = 4  // nobody reads what is sent
};

// Numbers are in the order of the host's bytes. What a field means depends on who reads the entry:
//
//              from a program                        for an engine   for a program
//   source     kSend: offset in the send ring        address         entries sent that are done, of all
//   destination kSend: which of its sends, from 1    address         bytes received, of all;
//                                                                    listening: connections that have come
//   length     bytes; 0 is 65,536                    likewise
//   container                                        the sender's
//   connection the program's socket                  of the host     the program's socket
//   table      Table::kSend                          whose direction
//   sequence   of the block in the SBT               of the piece in the RBT
//   generation of the socket: its number may have been another socket's before
struct [[gnu::packed]] Entry {
  EntryType type = EntryType::kNone;
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  std::uint16_t length = 0;
  std::uint16_t container = 0;
  std::uint16_t connection = 0;
  Table table = Table::kSend;
  std::uint16_t sequence = 0;
  // Of the paper's six reserved bytes.
  std::uint32_t generation = 0;
  std::uint16_t flags = 0;
};
static_assert(sizeof(Entry) == 32);

inline constexpr std::uint32_t kLongestEntry = 65536;

inline std::uint32_t length_of(const Entry& entry) {
  return entry.length == 0 ? kLongestEntry : entry.length;
}
inline std::uint16_t encoded_length(std::uint32_t length) {
  return static_cast<std::uint16_t>(length);  // 65,536 becomes 0
}

}  // namespace ferry::pipe
