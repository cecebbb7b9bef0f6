#pragma once

#include "transport/streams/receive_stream.h"
#include "transport/streams/record_archive.h"
#include "transport/streams/responses.h"

// The responder's part of the record of a QP. UC owes no responses: its callers pass a fresh
// ResponsesDue.
namespace ferry::transport {

void save_receives(const ReceiveStream& stream, const ResponsesDue& responses, Saver& out);
// `stream` and `responses` are fresh. A malformed record makes `in` not ok().
void load_receives(ReceiveStream& stream, ResponsesDue& responses, Loader& in);

}  // namespace ferry::transport
