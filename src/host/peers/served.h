#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

namespace ferry::host {

// The other end of a Conversation, for who carries out its steps.
template <typename Step, typename Reply>
class Served {
 public:
  virtual ~Served() = default;

  // Waits for the next step. False: none follows.
  virtual bool read(Step* step) = 0;
  // False: nobody reads any more. One thread at a time.
  virtual bool write(const Reply& reply) = 0;
  // Whether the side that asks has ended it, also in the midst of a step. From any thread.
  virtual bool is_over() const = 0;
  // Whether the side that asks is this process: it is not lost when it ends the conversation.
  virtual bool is_here() const = 0;
};

// By another host's ferryd.
template <typename Step, typename Reply>
class ServedStream final : public Served<Step, Reply> {
 public:
  using Stream = grpc::ServerReaderWriter<Reply, Step>;

  ServedStream(const grpc::ServerContext& context, Stream& stream)
      : context_(context), stream_(stream) {}

  bool read(Step* step) override { return stream_.Read(step); }
  bool write(const Reply& reply) override { return stream_.Write(reply); }
  bool is_over() const override { return context_.IsCancelled(); }
  bool is_here() const override { return false; }

 private:
  const grpc::ServerContext& context_;
  Stream& stream_;
};

}  // namespace ferry::host
