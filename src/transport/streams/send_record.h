#pragma once

#include "transport/streams/credits.h"
#include "transport/streams/record_archive.h"
#include "transport/streams/send_stream.h"

// The requester's part of the record of a QP. It has neither what is in flight (the requester goes
// back to the first unacknowledged PSN) nor the window, which is another at another place. PSNs and
// SSNs of WQEs follow from those of the oldest one. UC has no credits: its callers pass fresh ones.
namespace ferry::transport {

void save_sends(const SendStream& stream, const SendCredits& credits, Saver& out);
// `stream` and `credits` are fresh. Allocates nothing: the queue has its storage. A malformed
// record makes `in` not ok().
void load_sends(SendStream& stream, SendCredits& credits, Loader& in);

}  // namespace ferry::transport
