// The report at the end of a run.
#pragma once

#include "session.h"

namespace stream_check {

// Whether everything arrived once, in order and intact, in both directions, without any error.
bool passed(const Session& session, const Outcome& outcome);

// One JSON object:
//
//   role, device, qps, size, mtu, mode, ended_by, seconds, compared (both sides' counts), result
//   operations: by send, write, read, control:
//       sent            by this side (read: READs that this side asked for)
//       received, lost, duplicated, out_of_order, corrupted
//                       of what the peer sent (read: of this side's READs)
//   peer: by the same names received, lost, duplicated, out_of_order, corrupted, as the peer found
//   messages_lost, messages_duplicated, messages_out_of_order, messages_corrupted: both directions,
//       control messages included
//   pages_corrupted: of --memory
//   messages_sent, messages_received (payload; READs count as received), bytes_sent,
//   bytes_received, messages_per_second, bytes_per_second (sent and received), completions
//   largest_gap_ms, largest_gaps: at most 32 of {at, ms}, largest first; at: CLOCK_REALTIME seconds
//       of the completion before the gap
//   clock_steps: how often CLOCK_MONOTONIC went back
//   error_completions, completion_faults, call_errors, faults: the first of all in words
void print_json(const Session& session, const Outcome& outcome);
void print_text(const Session& session, const Outcome& outcome);

}  // namespace stream_check
