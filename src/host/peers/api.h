#pragma once

#include <chrono>

namespace ferry::host {

// Equal on both ends of a move: the protocol between ferryds has no other version.
inline constexpr char kVersion[] = FERRY_VERSION;

// A host that has answered nothing for so long while something is asked of it, or an image is on its
// way there, is taken for gone: it has no power, or no network leads there.
inline constexpr std::chrono::milliseconds kSilence{10'000};

// Where ferryd listens to the ferry command. Every call carries the ticket of a connection to the
// control socket (agent/protocol.h) under kTicketKey: it says which user asks.
inline constexpr char kTicketKey[] = "ferry-ticket";
inline constexpr char kApiSocket[] = "/run/ferry/ferryd-api.sock";
inline constexpr char kApiVariable[] = "FERRYD_API_SOCKET";

}  // namespace ferry::host
