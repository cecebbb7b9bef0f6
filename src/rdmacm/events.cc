#include <errno.h>
#include <infiniband/verbs.h>

#include <cstring>

#include "rdmacm/service.h"

// What the communication manager reports, as rdma_cm events. The private data of a message has no
// length in it: a program gets the whole field.
namespace ferry::rdmacm {
namespace {

template <typename Parameters>
void set_private_data(Parameters* p, std::span<const std::byte> data) {
  std::memcpy(p->private_data, data.data(), data.size());
  p->private_data_len = static_cast<std::uint8_t>(data.size());
}

Address from_header(const port::Address& ip, std::uint16_t port) {
  Address address;
  address.family = ip.is_ipv4() ? AF_INET : AF_INET6;
  address.ip = ip;
  address.port = port;
  return address;
}

}  // namespace

void Service::post(Id& id, std::uint32_t event, int status, const rdma_ucm_conn_param* connection,
                   const rdma_ucm_ud_param* datagram) {
  // The ID of a request has no uid before the program accepts it: nothing is reported until then.
  if (id.uid == 0) return;
  QueuedEvent queued;
  queued.id = id.handle;
  queued.response.uid = id.uid;
  queued.response.id = id.handle;
  queued.response.event = event;
  queued.response.status = static_cast<std::uint32_t>(status);
  if (connection != nullptr) queued.response.param.conn = *connection;
  if (datagram != nullptr) queued.response.param.ud = *datagram;
  id.channel->push(queued);
}

void Service::deliver_request(const cm::Event& e) {
  const cm::Connection* connection = manager_->find(e.id);
  if (connection == nullptr) return;
  const auto refuse = [&](cm::Reason reason) {
    manager_->reject(e.id, reason, {}, now());
    manager_->forget(e.id, now());
  };
  Id* listener = listener_for(connection->service_id, connection->from);
  if (listener == nullptr) return refuse(cm::Reason::kInvalidServiceId);
  const bool datagram = e.type == cm::Event::Type::kSidrRequest;
  if (datagram != is_datagram(*listener)) return refuse(cm::Reason::kInvalidServiceId);
  const auto data = datagram ? std::span<const std::byte>(std::get<cm::SidrReq>(e.body).data)
                             : std::span<const std::byte>(std::get<cm::Req>(e.body).data);
  const auto header = cm::parse_ip_header(data);
  const auto device = device_of(connection->from);
  if (!header || !device) return refuse(cm::Reason::kUnsupported);
  if (listener->backlog <= 0 || ids_.size() >= 0xFFFF) return refuse(cm::Reason::kNoResources);
  --listener->backlog;

  Id& id = make_id();
  id.channel = listener->channel;
  id.port_space = listener->port_space;
  id.qp_type = listener->qp_type;
  id.traffic_class = listener->traffic_class;
  id.ack_timeout = listener->ack_timeout;
  id.state = Id::State::kConnecting;
  id.source = from_header(header->destination, cm::port_of(connection->service_id));
  id.destination = from_header(header->source, header->source_port);
  id.device = *device;
  id.comm = e.id;

  QueuedEvent queued;
  queued.id = listener->handle;
  queued.new_id = id.handle;
  queued.response.uid = listener->uid;
  queued.response.id = id.handle;
  queued.response.event = event::kConnectRequest;
  if (datagram) {
    set_private_data(&queued.response.param.ud, data.subspan(cm::kIpHeaderSize));
  } else {
    const auto& req = std::get<cm::Req>(e.body);
    rdma_ucm_conn_param& p = queued.response.param.conn;
    set_private_data(&p, data.subspan(cm::kIpHeaderSize));
    // The program reads these two as those of its own side.
    p.responder_resources = req.initiator_depth;
    p.initiator_depth = req.responder_resources;
    p.flow_control = req.flow_control;
    p.retry_count = req.retry_count;
    p.rnr_retry_count = req.rnr_retry;
    p.srq = req.srq;
    p.qp_num = req.qpn;
    p.valid = 1;
  }
  id.channel->push(queued);
}

void Service::deliver_reply(Id& id, const cm::Event& e) {
  const auto& rep = std::get<cm::Rep>(e.body);
  rdma_ucm_conn_param p{};
  set_private_data(&p, rep.data);
  p.responder_resources = rep.initiator_depth;
  p.initiator_depth = rep.responder_resources;
  p.flow_control = rep.flow_control;
  p.rnr_retry_count = rep.rnr_retry;
  p.srq = rep.srq;
  p.qp_num = rep.qpn;
  p.valid = 1;
  post(id, event::kConnectResponse, 0, &p);
}

void Service::deliver(const cm::Event& e) {
  using Type = cm::Event::Type;
  if (e.type == Type::kRequest || e.type == Type::kSidrRequest) return deliver_request(e);
  Id* id = find_by_comm(e.id);
  if (id == nullptr) return;
  switch (e.type) {
    case Type::kReply: return deliver_reply(*id, e);
    case Type::kEstablished: return post(*id, event::kEstablished, 0);
    case Type::kUnreachable: return post(*id, event::kUnreachable, -e.error);
    case Type::kTimewaitExit: return post(*id, event::kTimewaitExit, 0);
    case Type::kRejected: {
      const auto& rej = std::get<cm::Rej>(e.body);
      rdma_ucm_conn_param p{};
      set_private_data(&p, rej.data);
      p.valid = 1;
      return post(*id, event::kRejected, static_cast<int>(rej.reason), &p);
    }
    case Type::kDisconnected:
      if (id->state == Id::State::kDisconnected) return;  // once is enough
      id->state = Id::State::kDisconnected;
      return post(*id, event::kDisconnected, -e.error);
    case Type::kSidrReply: {
      const auto& rep = std::get<cm::SidrRep>(e.body);
      if (rep.status != cm::SidrStatus::kValid)
        return post(*id, event::kUnreachable, static_cast<int>(rep.status));
      rdma_ucm_ud_param p{};
      set_private_data(&p, rep.data);
      p.qp_num = rep.qpn;
      p.qkey = rep.qkey;
      p.ah_attr = address_handle(*id, id->destination.ip);
      return post(*id, event::kEstablished, 0, nullptr, &p);
    }
    case Type::kRequest:
    case Type::kSidrRequest: return;
  }
}

}  // namespace ferry::rdmacm
