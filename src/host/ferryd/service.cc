#include "host/ferryd/service.h"

#include <string_view>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.grpc.pb.h"
#include "host/attestation/attestor.h"
#include "host/checkpoint/restart/local_restart.h"
#include "host/checkpoint/restart/serve.h"
#include "host/checkpoint/take/local_part.h"
#include "host/checkpoint/take/serve.h"
#include "host/checkpoint/tell_all.h"
#include "host/checkpoint/wait/serve.h"
#include "host/checkup/checkup.h"
#include "host/directory/directory.h"
#include "host/directory/places.h"
#include "host/ferryd/daemon.h"
#include "host/ferryd/detach_stream.h"
#include "host/image/image_stream.h"
#include "host/move/settle.h"
#include "host/move/several/part_message.h"
#include "host/move/several/serve.h"
#include "host/move/slots_message.h"
#include "host/peers/api.h"
#include "host/peers/credentials.h"
#include "host/peers/this_host.h"
#include "host/standin/whereabouts.h"
#include "host/units/obstacles.h"

namespace ferry::host {
namespace {

// What `call` throws becomes FAILED_PRECONDITION, so that callers can tell it from a connection that broke.
template <typename Call>
grpc::Status guarded(Call call) {
  try {
    return call();
  } catch (const std::exception& failure) {
    return {grpc::FAILED_PRECONDITION, failure.what()};
  }
}

// Answers another ferryd: `call` gets the name in that ferryd's certificate.
template <typename Call>
grpc::Status answered(const grpc::ServerContext& context, Call call) {
  return guarded([&] {
    try {
      return call(caller_of(context).name);
    } catch (const std::exception& failure) {
      if (std::string_view(failure.what()).starts_with("refused")) {
        log::warn("a call from {}: {}", context.peer(), failure.what());
      }
      throw;
    }
  });
}

std::shared_ptr<Arrival> known(Daemon& daemon, std::uint64_t move_id, const std::string& from) {
  auto arrival = daemon.arrival_from(move_id, from);
  if (!arrival) throw Failure("this move is not known here");
  return arrival;
}

class FerrydService final : public v1::Ferryd::Service {
 public:
  FerrydService(Daemon& daemon, const ThisHost& host, Directory& directory,
                Whereabouts& whereabouts, const Attestor& attestor, const ImageReceiver& images,
                Checkup& checkup)
      : daemon_(daemon),
        host_(host),
        directory_(directory),
        whereabouts_(whereabouts),
        attestor_(attestor),
        images_(images),
        checkup_(checkup) {}
  grpc::Status Probe(grpc::ServerContext*, const v1::ProbeRequest*, v1::ProbeReply*) override;
  grpc::Status Locate(grpc::ServerContext* context, const v1::LocateRequest* request,
                      v1::LocateReply* reply) override;
  grpc::Status Listener(grpc::ServerContext* context, const v1::ListenerRequest* request,
                        v1::ListenerReply* reply) override;
  grpc::Status Letters(grpc::ServerContext* context, const v1::LettersRequest* request,
                       v1::LettersReply* reply) override;
  grpc::Status MovedNames(grpc::ServerContext* context, const v1::MovedNamesRequest* request,
                          v1::MovedNamesReply* reply) override;
  grpc::Status Attest(grpc::ServerContext* context, const v1::AttestRequest* request,
                      v1::AttestReply* reply) override;
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
  grpc::Status Find(grpc::ServerContext* context, const v1::FindRequest* request,
                    v1::FindReply* reply) override;
  grpc::Status Cut(grpc::ServerContext*,
                   grpc::ServerReaderWriter<v1::CutReply, v1::CutStep>*) override;
  grpc::Status MovePart(grpc::ServerContext*,
                        grpc::ServerReaderWriter<v1::MovePartReply, v1::MovePartStep>*) override;
  grpc::Status RestartPart(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>*) override;
  grpc::Status Restarted(grpc::ServerContext* context, const v1::RestartedRequest* request,
                         v1::RestartedReply* reply) override;

 private:
  Daemon& daemon_;
  const ThisHost& host_;
  Directory& directory_;
  Whereabouts& whereabouts_;
  const Attestor& attestor_;
  const ImageReceiver& images_;
  Checkup& checkup_;
};

class LocalService final : public v1::Local::Service {
 public:
  LocalService(Daemon& daemon, const ControlServer& control, Checkup& checkup)
      : daemon_(daemon), control_(control), checkup_(checkup) {}
  grpc::Status State(grpc::ServerContext*, const v1::StateRequest*, v1::StateReply*) override;
  grpc::Status Reach(grpc::ServerContext*, const v1::ReachRequest*, v1::ReachReply*) override;
  grpc::Status Move(grpc::ServerContext*, const v1::MoveRequest*,
                    grpc::ServerWriter<v1::MoveEvent>*) override;
  grpc::Status TakeCheckpoint(grpc::ServerContext*, const v1::CheckpointRequest*,
                              grpc::ServerWriter<v1::CheckpointEvent>*) override;
  grpc::Status RestartCheckpoint(grpc::ServerContext*, const v1::RestartRequest*,
                                 grpc::ServerWriter<v1::RestartEvent>*) override;
  grpc::Status Wait(grpc::ServerContext* context,
                    grpc::ServerReaderWriter<v1::WaitEvent, v1::WaitStep>* stream) override;
  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest*, v1::CancelReply*) override;
  grpc::Status Ps(grpc::ServerContext*, const v1::PsRequest*, v1::PsReply*) override;
  grpc::Status History(grpc::ServerContext*, const v1::HistoryRequest*, v1::HistoryReply*) override;
  grpc::Status Resolve(grpc::ServerContext*, const v1::ResolveRequest*, v1::ResolveReply*) override;
  grpc::Status Detach(grpc::ServerContext*,
                      grpc::ServerReaderWriter<v1::DetachReply, v1::DetachStep>*) override;

 private:
  uid_t user_of(const grpc::ServerContext& context) const;

  Daemon& daemon_;
  const ControlServer& control_;
  Checkup& checkup_;
};

grpc::Status FerrydService::Probe(grpc::ServerContext* context, const v1::ProbeRequest* request,
                                  v1::ProbeReply* reply) {
  return answered(*context, [&](const std::string&) {
    *reply = checkup_.answer(*request);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Locate(grpc::ServerContext* context, const v1::LocateRequest* request,
                                   v1::LocateReply* reply) {
  return answered(*context, [&](const std::string&) {
    const auto origin = from_message(request->origin());
    if (!origin) throw Failure("malformed request");
    reply->set_host(host_.name);
    if (const auto place = directory_.told(*origin)) to_message(*place, reply->mutable_place());
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Listener(grpc::ServerContext* context,
                                     const v1::ListenerRequest* request, v1::ListenerReply* reply) {
  return answered(*context, [&](const std::string&) {
    v1::Endpoint message;
    message.set_address(request->address());
    const auto address = from_message(message);
    if (!address) throw Failure("malformed request");
    for (const Place& place : whereabouts_.listeners(address->address, request->service())) {
      to_message(place, reply->add_places());
    }
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Letters(grpc::ServerContext* context, const v1::LettersRequest* request,
                                    v1::LettersReply* reply) {
  return answered(*context, [&](const std::string& from) {
    *reply = daemon_.letters(*request, from);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::MovedNames(grpc::ServerContext* context,
                                       const v1::MovedNamesRequest* request,
                                       v1::MovedNamesReply* reply) {
  return answered(*context, [&](const std::string& from) {
    *reply = daemon_.moved_names(*request, from);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Attest(grpc::ServerContext* context, const v1::AttestRequest* request,
                                   v1::AttestReply* reply) {
  return answered(*context, [&](const std::string&) {
    *reply = attestor_.attest(*request);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Claim(grpc::ServerContext* context, const v1::ClaimRequest* request,
                                  v1::ClaimReply* reply) {
  return answered(*context, [&](const std::string& from) {
    *reply = daemon_.claimed(*request, from);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Unclaim(grpc::ServerContext* context, const v1::UnclaimRequest* request,
                                    v1::UnclaimReply*) {
  return answered(*context, [&](const std::string& from) {
    daemon_.unclaimed(*request, from);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Take(grpc::ServerContext* context, const v1::TakeRequest* request,
                                 v1::TakeReply*) {
  return answered(*context, [&](const std::string& from) {
    daemon_.taken(*request, from);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Check(grpc::ServerContext* context, const v1::CheckRequest* request,
                                  v1::CheckReply* reply) {
  return answered(*context, [&](const std::string& from) {
    daemon_.check(*request, from, reply);
    for (auto& file : missing_files({request->files().begin(), request->files().end()})) {
      reply->add_missing_files(std::move(file));
    }
    reply->set_version(host_.version);
    reply->set_host(host_.name);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Prepare(grpc::ServerContext* context, const v1::PrepareRequest* request,
                                    v1::PrepareReply* reply) {
  return answered(*context, [&](const std::string& from) {
    const auto arrival = daemon_.prepare(*request, from);
    const ImageToken& token = arrival->token();
    reply->set_image_port(images_.port());
    reply->set_image_token(token.data(), token.size());
    reply->set_meeting_point(arrival->unit().meeting_point());
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Bind(grpc::ServerContext* context, const v1::BindRequest* request,
                                 v1::BindReply* reply) {
  return answered(*context, [&](const std::string& from) {
    const auto wanted = from_messages(request->processes());
    for (const auto& place : known(daemon_, request->move_id(), from)->bind(wanted)) {
      to_message(place, reply->add_processes());
    }
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Restore(grpc::ServerContext* context, const v1::RestoreRequest* request,
                                    v1::RestoreReply* reply) {
  return answered(*context, [&](const std::string& from) {
    const std::chrono::milliseconds limit(request->limit_ms());
    const auto arrival = known(daemon_, request->move_id(), from);
    for (const auto& place :
         arrival->restore(limit, from_message(request->stdio()), request->timeline())) {
      to_message(place, reply->add_processes());
    }
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Commit(grpc::ServerContext* context, const v1::CommitRequest* request,
                                   v1::CommitReply*) {
  return answered(*context, [&](const std::string& from) {
    std::string reason;
    const Answer answer = daemon_.commit(request->move_id(), from, &reason);
    return commit_status(answer, reason);
  });
}

grpc::Status FerrydService::Abort(grpc::ServerContext* context, const v1::AbortRequest* request,
                                  v1::AbortReply*) {
  return answered(*context, [&](const std::string& from) {
    return abort_status(daemon_.abort(request->move_id(), from));
  });
}

grpc::Status FerrydService::Find(grpc::ServerContext* context, const v1::FindRequest* request,
                                 v1::FindReply* reply) {
  return answered(*context, [&](const std::string&) {
    *reply = daemon_.find(*request);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Cut(grpc::ServerContext* context,
                                grpc::ServerReaderWriter<v1::CutReply, v1::CutStep>* stream) {
  return answered(*context, [&](const std::string&) {
    ServedStream<v1::CutStep, v1::CutReply> steps(*context, *stream);
    serve_cut([this](const auto& programs, bool stop,
                     auto tell) { return daemon_.cut_part(programs, stop, tell); },
              host_, steps);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::MovePart(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::MovePartReply, v1::MovePartStep>* stream) {
  return answered(*context, [&](const std::string&) {
    serve_move_part(
        [this](const auto& look, auto progress) { return daemon_.move_part(look, progress); },
        host_, *context, *stream);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::RestartPart(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>* stream) {
  return answered(*context, [&](const std::string&) {
    ServedStream<v1::RestartStep, v1::RestartStepReply> steps(*context, *stream);
    serve_restart(
        {[this](const auto& look) { return daemon_.what_runs(look); },
         [this](const auto& check, auto tell) { return daemon_.restart_part(check, tell); }},
        host_, steps);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Restarted(grpc::ServerContext* context,
                                      const v1::RestartedRequest* request,
                                      v1::RestartedReply* reply) {
  return answered(*context, [&](const std::string&) {
    *reply = daemon_.restarted(*request);
    return grpc::Status::OK;
  });
}

grpc::Status FerrydService::Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                                  grpc::ServerWriter<v1::WatchEvent>* writer) {
  std::shared_ptr<Arrival> arrival;
  const auto status = answered(*context, [&](const std::string& from) {
    arrival = daemon_.arrival_from(request->move_id(), from);
    return arrival ? grpc::Status::OK
                   : grpc::Status(grpc::NOT_FOUND, "this move is not known here");
  });
  if (!status.ok()) return status;
  bool all_know = false;
  const auto tell = [&](const v1::WatchEvent& event) {
    if (event.has_peers_know()) all_know = event.peers_know().remaining() == 0;
    return writer->Write(event);
  };
  for (const auto& event : arrival->account()) tell(event);
  while (!context->IsCancelled() && !host_.stopping) {
    const auto event = arrival->next_event(std::chrono::milliseconds(500));
    if (event) {
      if (!tell(*event)) break;
    } else if ((all_know && !arrival->owes_timeline()) || arrival->is_over()) {
      break;
    }
  }
  // The watcher must not take the end of this ferryd for the end of the program.
  if (host_.stopping) return {grpc::UNAVAILABLE, "this ferryd is ending"};
  return grpc::Status::OK;
}

grpc::Status FerrydService::Decision(grpc::ServerContext* context,
                                     const v1::DecisionRequest* request, v1::DecisionReply* reply) {
  return answered(*context, [&](const std::string&) {
    switch (daemon_.decision(request->move_id())) {
      case Answer::kCommitted: reply->set_decision(v1::DecisionReply::COMMITTED); break;
      case Answer::kAborted: reply->set_decision(v1::DecisionReply::ABORTED); break;
      case Answer::kUnknown: reply->set_decision(v1::DecisionReply::UNDECIDED); break;
    }
    return grpc::Status::OK;
  });
}

// The user who asks, by the ticket that the user's connection to the control socket was given.
uid_t LocalService::user_of(const grpc::ServerContext& context) const {
  const auto found = context.client_metadata().find(kTicketKey);
  std::optional<uid_t> user;
  if (found != context.client_metadata().end()) {
    user = control_.user_of(std::string(found->second.data(), found->second.size()));
  }
  if (!user) throw Failure("nobody knows who asks; use the ferry command of this ferryd's version");
  return *user;
}

grpc::Status LocalService::Move(grpc::ServerContext* context, const v1::MoveRequest* request,
                                grpc::ServerWriter<v1::MoveEvent>* writer) {
  return guarded([&] {
    const uid_t user = user_of(*context);
    const std::vector<std::string> programs(request->programs().begin(), request->programs().end());
    const bool are_several = !request->from().empty() || !request->job().empty();
    v1::MoveEvent event;
    if (request->dry_run()) {
      *event.mutable_plan() =
          are_several ? daemon_.plan_several(user, *request)
                      : daemon_.plan(user, programs, request->to(), options_of(*request));
      writer->Write(event);
      return grpc::Status::OK;
    }
    // The command that asked may have ended; the move goes on.
    const auto tell = [&](const v1::MoveProgress& progress) {
      v1::MoveEvent step;
      *step.mutable_progress() = progress;
      writer->Write(step);
    };
    *event.mutable_report() =
        are_several ? daemon_.move_several(user, *request, tell)
                    : daemon_.move(user, programs, request->to(), options_of(*request), tell);
    writer->Write(event);
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::TakeCheckpoint(grpc::ServerContext* context,
                                          const v1::CheckpointRequest* request,
                                          grpc::ServerWriter<v1::CheckpointEvent>* writer) {
  return guarded([&] {
    const uid_t user = user_of(*context);
    tell_all(*context, *writer, [&](auto tell, auto is_awaited) {
      return daemon_.checkpoint(user, *request, tell, is_awaited);
    });
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::RestartCheckpoint(grpc::ServerContext* context,
                                             const v1::RestartRequest* request,
                                             grpc::ServerWriter<v1::RestartEvent>* writer) {
  return guarded([&] {
    const uid_t user = user_of(*context);
    tell_all(*context, *writer, [&](auto tell, auto is_awaited) {
      return daemon_.restart(user, *request, tell, is_awaited);
    });
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::Wait(grpc::ServerContext* context,
                                grpc::ServerReaderWriter<v1::WaitEvent, v1::WaitStep>* stream) {
  return guarded([&] {
    const uid_t user = user_of(*context);
    serve_wait({[&](const auto& request, auto is_awaited) {
                  return daemon_.restart_to_wait(user, request, std::move(is_awaited));
                },
                [&](const auto& programs) { return daemon_.wait_for(user, programs); },
                daemon_.stopping()},
               *context, *stream);
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::Cancel(grpc::ServerContext* context, const v1::CancelRequest* request,
                                  v1::CancelReply*) {
  return guarded([&] {
    daemon_.cancel(user_of(*context), *request);
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::Ps(grpc::ServerContext* context, const v1::PsRequest*,
                              v1::PsReply* reply) {
  return guarded([&] {
    *reply = daemon_.ps(user_of(*context));
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::History(grpc::ServerContext* context, const v1::HistoryRequest* request,
                                   v1::HistoryReply* reply) {
  return guarded([&] {
    *reply = daemon_.history(user_of(*context), *request);
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::Resolve(grpc::ServerContext* context, const v1::ResolveRequest* request,
                                   v1::ResolveReply*) {
  return guarded([&] {
    daemon_.resolve(user_of(*context), request->move_id(), request->commit());
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::Detach(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::DetachReply, v1::DetachStep>* stream) {
  return guarded([&] {
    serve_detach(daemon_, user_of(*context), *context, *stream);
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::State(grpc::ServerContext* context, const v1::StateRequest*,
                                 v1::StateReply* reply) {
  return guarded([&] {
    user_of(*context);
    *reply = checkup_.state();
    return grpc::Status::OK;
  });
}

grpc::Status LocalService::Reach(grpc::ServerContext* context, const v1::ReachRequest* request,
                                 v1::ReachReply* reply) {
  return guarded([&] {
    user_of(*context);
    *reply = checkup_.reach(*request);
    return grpc::Status::OK;
  });
}

}  // namespace

std::shared_ptr<grpc::Service> make_ferryd_service(Daemon& daemon, const ThisHost& host,
                                                   Directory& directory, Whereabouts& whereabouts,
                                                   const Attestor& attestor,
                                                   const ImageReceiver& images, Checkup& checkup) {
  return std::make_shared<FerrydService>(daemon, host, directory, whereabouts, attestor, images,
                                         checkup);
}

std::shared_ptr<grpc::Service> make_local_service(Daemon& daemon, const ControlServer& control,
                                                  Checkup& checkup) {
  return std::make_shared<LocalService>(daemon, control, checkup);
}

}  // namespace ferry::host
