#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "port/endpoint.h"

// What the two ends of a connection tell each other around a move, in device::Letter::bytes. M is
// the end that moves, P its peer; when both move, each is both. Letters have no version: a library
// refuses a letter that has more bytes, or another kind, than the library knows.
//
//   M                      P
//   SUSPEND    ->               P's requests are held; those that P's device has are done
//              <-  SUSPENDED
//                               M leaves its device, and enters another one
//   SWITCH     ->               P's receives come back; P's QP is connected with the new one of M
//              <-  SWITCHED
//   READY      ->               M's QP is connected as well, so requests go out again
//
// GO_ON in the place of SWITCH: M has not left its device.
//
// The same letters make a connection under a GID from before a move. M has moved, and its program connects
// the QP now. SEEK comes from a P that knows of the move; an M that has not moved answers GO_ON:
//
//   M                      P
//              <-  SEEK         P's QP is not connected yet, its requests are held
//   SUSPEND    ->               and so on, as above
//
// If rdma_cm of the kernel has made the connection, SWITCH tells whether the kernel of M still knows it
// (Introduction::is_detached). From either end this comes besides, at any time:
//
//   DISCONNECTED  ->            the program of M has disconnected
namespace ferry::virt {

enum class LetterKind : std::uint8_t {
  kSuspend = 1,
  kSuspended = 2,
  kGoOn = 3,
  kSwitch = 4,
  kSwitched = 5,
  kReady = 6,
  kSeek = 7,
  kDisconnected = 8
};

// In SWITCH and SWITCHED: the QPN and the GID of the sender's QP as the sender's device has them, and the
// device's rkey (`real`) for each rkey that the receiver's application knows (`known`).
struct Introduction {
  struct Key {
    std::uint32_t known = 0, real = 0;
  };
  std::uint32_t qpn = 0;
  ibv_gid gid{};
  std::vector<Key> rkeys;  // of MRs
  // Of memory windows: such a pair stands for all variants of both keys. In the letter, they are behind those
  // of MRs and a pair of key 0, which names nothing, with their number. An older library takes them for keys
  // of MRs: to such a peer the variant that was bound when the letter was written leads.
  std::vector<Key> window_rkeys;
  // In the introduction of an XRC target: the SRQNs of its domain's XRC SRQs. They come last in the letter, behind a
  // pair of key 0 with their number and the highest bit. An older library refuses such a letter; it gives no program
  // XRC on a device that knows nothing of moves.
  std::vector<Key> srqns;
  // rdma_cm of the kernel has made the connection, and the sender's kernel does not know it any more. This is an upper
  // bit of the attempt, of which a library that does not know the flag takes no notice in these letters.
  bool is_detached = false;
};

struct LetterBody {
  LetterKind kind = LetterKind::kSuspend;
  // In SUSPEND: the number of this SUSPEND among those of its sender, modulo 2^30; SUSPENDED repeats the
  // number. So a sender that has given up and begun anew can tell the answers apart.
  std::uint32_t attempt = 0;
  // In SUSPEND: the sender wants to know is_in_use; SUSPENDED repeats this flag. Both flags are upper bits
  // of the attempt, which a library that does not know the flags repeats.
  bool asks_for_use = false;
  // In SUSPENDED: the QP had something to do when it was suspended. In SUSPEND: the sender's QP is in use, so that
  // SWITCH comes as soon as its program goes on; an older library takes no notice of that.
  bool is_in_use = false;
  Introduction introduction;  // in SWITCH and SWITCHED
};

std::vector<std::byte> encode(const LetterBody& body);
// False: the letter is malformed, or has no bytes, as a letter that ferryd gives back.
bool parse(std::span<const std::byte> bytes, LetterBody* out);

}  // namespace ferry::virt
