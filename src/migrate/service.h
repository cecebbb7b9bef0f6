#pragma once

#include "ferry.grpc.pb.h"
#include "migrate/daemon.h"

// The gRPC services over the daemon: messages in, Failures out as statuses.
namespace ferry::migrate {

class FerrydService final : public v1::Ferryd::Service {
 public:
  FerrydService(Daemon& daemon, Host& host) : daemon_(daemon), host_(host) {}
  grpc::Status Locate(grpc::ServerContext* context, const v1::LocateRequest* request,
                      v1::LocateReply* reply) override;
  grpc::Status Listener(grpc::ServerContext* context, const v1::ListenerRequest* request,
                        v1::ListenerReply* reply) override;
  grpc::Status Claim(grpc::ServerContext* context, const v1::ClaimRequest* request,
                     v1::ClaimReply* reply) override;
  grpc::Status Unclaim(grpc::ServerContext* context, const v1::UnclaimRequest* request,
                       v1::UnclaimReply* reply) override;
  grpc::Status Take(grpc::ServerContext* context, const v1::TakeRequest* request,
                    v1::TakeReply* reply) override;
  grpc::Status Check(grpc::ServerContext*, const v1::CheckRequest*, v1::CheckReply*) override;
  grpc::Status Prepare(grpc::ServerContext*, const v1::PrepareRequest*, v1::PrepareReply*) override;
  grpc::Status Bind(grpc::ServerContext*, const v1::BindRequest*, v1::BindReply*) override;
  grpc::Status Restore(grpc::ServerContext*, const v1::RestoreRequest*, v1::RestoreReply*) override;
  grpc::Status Commit(grpc::ServerContext*, const v1::CommitRequest*, v1::CommitReply*) override;
  grpc::Status Abort(grpc::ServerContext*, const v1::AbortRequest*, v1::AbortReply*) override;
  grpc::Status Watch(grpc::ServerContext*, const v1::WatchRequest*,
                     grpc::ServerWriter<v1::WatchEvent>*) override;
  grpc::Status Decision(grpc::ServerContext*, const v1::DecisionRequest*,
                        v1::DecisionReply*) override;

 private:
  Daemon& daemon_;
  Host& host_;
};

class LocalService final : public v1::Local::Service {
 public:
  LocalService(Daemon& daemon, const Host& host) : daemon_(daemon), host_(host) {}
  grpc::Status Move(grpc::ServerContext*, const v1::MoveRequest*,
                    grpc::ServerWriter<v1::MoveEvent>*) override;
  grpc::Status Ps(grpc::ServerContext*, const v1::PsRequest*, v1::PsReply*) override;
  grpc::Status Resolve(grpc::ServerContext*, const v1::ResolveRequest*, v1::ResolveReply*) override;

 private:
  uid_t user_of(const grpc::ServerContext& context) const;

  Daemon& daemon_;
  const Host& host_;
};

}  // namespace ferry::migrate
