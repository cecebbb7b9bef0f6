#pragma once

#include "transport/streams/credits.h"
#include "transport/streams/record_archive.h"
#include "transport/streams/send_stream.h"

// The requester's part of the record of a QP. Not saved, since the place it goes to has others: what
// is in flight (the requester goes back to the first unacknowledged PSN) and the window. PSNs and
// SSNs of WQEs follow from those of the oldest one. UC has no credits: it gives and takes fresh ones.
namespace ferry::transport {

void save_sends(const SendStream& stream, const SendCredits& credits, Saver& out);
// Into a fresh stream. Nothing is allocated: the queue has its storage.
void load_sends(SendStream& stream, SendCredits& credits, Loader& in);

}  // namespace ferry::transport
