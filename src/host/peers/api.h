#pragma once

namespace ferry::host {

// Equal on both ends of a move: the protocol between ferryds has no other version.
inline constexpr char kVersion[] = FERRY_VERSION;

// Bytes: what hundreds of programs of a host have in the manifest of a checkpoint comes in one message.
inline constexpr int kLargestMessage = 64 << 20;

// Where ferryd listens to the ferry command. Every call carries the ticket of a connection to the
// control socket (agent/protocol.h) under kTicketKey: it says which user asks.
inline constexpr char kTicketKey[] = "ferry-ticket";
inline constexpr char kApiSocket[] = "/run/ferry/ferryd-api.sock";
inline constexpr char kApiVariable[] = "FERRYD_API_SOCKET";

}  // namespace ferry::host
