#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "port/endpoint.h"

// What the two ends of a connection tell each other around a move, in device::Letter::bytes. M is
// the end that moves, P its peer; when both move, each is both. Letters have no version: a library
// refuses one of more bytes or of another kind than it knows.
//
//   M                      P
//   SUSPEND    ->               its requests are held; those that the device has are done
//              <-  SUSPENDED
//                               M leaves its device, and enters another one
//   SWITCH     ->               receives come back; the QP is connected with the new one of M
//              <-  SWITCHED
//   READY      ->               M's QP is connected as well, so requests go out again
//
// GO_ON in the place of SWITCH: M has not left its device.
//
// The same makes a connection under a GID from before a move. M has moved, and the program connects
// the QP now. SEEK comes from a P that knows of the move; an M that has not moved answers GO_ON:
//
//   M                      P
//              <-  SEEK         its QP is not connected yet, its requests are held
//   SUSPEND    ->               and so on, as above
namespace ferry::virt {

enum class LetterKind : std::uint8_t {
  kSuspend = 1,
  kSuspended = 2,
  kGoOn = 3,
  kSwitch = 4,
  kSwitched = 5,
  kReady = 6,
  kSeek = 7
};

// Of SWITCH and SWITCHED: the sender's QP as its device has it, and its keys, which the receiver's
// application knows by the virtual ones.
struct Introduction {
  struct Key {
    std::uint32_t known = 0, real = 0;
  };
  std::uint32_t qpn = 0;
  ibv_gid gid{};
  std::vector<Key> rkeys;
};

struct LetterBody {
  LetterKind kind = LetterKind::kSuspend;
  // Of SUSPEND: the how manieth it is of its sender, modulo 2^30; SUSPENDED repeats it. A sender that
  // has given up and begun anew can so tell the answers apart.
  std::uint32_t attempt = 0;
  // Of SUSPEND: the sender wants to know is_in_use; SUSPENDED repeats it. Both are upper bits of the attempt,
  // which a library that does not know them repeats.
  bool asks_for_use = false;
  bool is_in_use = false;     // of SUSPENDED: the QP had something to do when it was suspended
  Introduction introduction;  // of SWITCH and SWITCHED
};

std::vector<std::byte> encode(const LetterBody& body);
// False: malformed, or of no bytes: a letter that ferryd gives back has none.
bool parse(std::span<const std::byte> bytes, LetterBody* out);

}  // namespace ferry::virt
