#include "device/gids.h"
#include "two_programs.h"

// What a context tells rdma_cm of the peers of its QPs.
namespace ferry::virt::testing {
namespace {

using device::CmNews;

struct News : TwoPrograms {
  void SetUp() override {
    for (Side* side : {&m, &p}) {
      side->start();
      r::to_init(side->qp);
    }
    r::to_rts(m.qp, p.qp->qpn(), p.gid());
    r::to_rts(p.qp, m.qp->qpn(), m.gid());
  }
  static std::vector<CmNews> take(Side& side) {
    std::vector<CmNews> news;
    for (const auto& [what, qpn] : std::exchange(side.moves.heard, {})) {
      EXPECT_EQ(qpn, side.qp->qpn());
      news.push_back(what);
    }
    return news;
  }
  device::Letter::End end(Side& side) { return {device::address_of(side.gid()), side.qp->qpn()}; }
};

TEST_F(News, APeerMoves) {
  const auto own = end(m), peer = end(p);
  suspend(m);
  EXPECT_EQ(take(p), std::vector{CmNews::kPeerMoves});
  m.stop();
  m.park();
  m.context->tell_peer(own, peer, CmNews::kDetached);
  m.unpark();
  m.context->resume(false);
  carry();
  EXPECT_EQ(take(p), (std::vector{CmNews::kDetached, CmNews::kPeerStays}));
}

TEST_F(News, OfAMoveThatRdmaCmHasNoPartIn) {
  move(m);
  EXPECT_EQ(take(p), (std::vector{CmNews::kPeerMoves, CmNews::kPeerStays}));
}

// As by a ferryd that is killed.
TEST_F(News, AreNotLostWithALetter) {
  const auto own = end(m), peer = end(p);
  suspend(m);
  m.stop();
  m.park();
  m.context->tell_peer(own, peer, CmNews::kDetached);
  m.unpark();
  m.context->resume(false);
  while (m.context->progress()) {
  }
  std::vector<device::Letter> lost;
  m.context->take_letters(&lost);
  ASSERT_EQ(lost.size(), 1u);
  carry();
  EXPECT_EQ(take(p), std::vector{CmNews::kPeerMoves});
  m.context->repeat_letters();
  carry();
  EXPECT_EQ(take(p), (std::vector{CmNews::kDetached, CmNews::kPeerStays}));
}

// Both ends are away at the same time, and each hears it of the other one.
TEST_F(News, BothMove) {
  const auto of_m = end(m), of_p = end(p);
  suspend(m);
  suspend(p);
  for (Side* side : {&m, &p}) {
    side->stop();
    side->park();
  }
  m.context->tell_peer(of_m, of_p, CmNews::kDetached);
  p.context->tell_peer(of_p, of_m, CmNews::kDetached);
  for (Side* side : {&m, &p}) side->unpark();
  m.context->resume(false);
  carry();
  p.context->resume(false);
  carry();
  for (Side* side : {&m, &p}) {
    const std::vector<CmNews> news = take(*side);
    EXPECT_NE(std::find(news.begin(), news.end(), CmNews::kDetached), news.end());
    EXPECT_EQ(news.back(), CmNews::kPeerStays);
  }
}

TEST_F(News, APeersMoveIsGivenUp) {
  suspend(m);
  m.context->release_peers();
  carry();
  EXPECT_EQ(take(p), (std::vector{CmNews::kPeerMoves, CmNews::kPeerStays}));
}

// The program may have destroyed its QP when its ID still is to be disconnected.
TEST_F(News, APeerDisconnects) {
  move(m);
  take(p);
  const auto own = end(m), peer = end(p);
  m.context->destroy(m.qp);
  m.context->tell_peer(own, peer, CmNews::kDisconnected);
  carry_once(m, p, "m: ");
  EXPECT_EQ(take(p), std::vector{CmNews::kDisconnected});
}

// Its connection may still have to be disconnected, and the peer's kernel may have forgotten it.
TEST_F(News, ThePeerOfAQpThatIsDestroyedMovesOn) {
  suspend(m);
  take(p);
  p.context->destroy(p.qp);
  EXPECT_TRUE(p.moves.heard.empty());
}

// A path that rdma_cm gives names a GID of the device on which the program is now.
TEST_F(News, GidsOfTheNewDeviceCanBeNamed) {
  EXPECT_EQ(device::name_gid({m.context.get()}, 1, 0), 0) << "before any move";
  const std::size_t before = m.context->gids().size();
  move(m, kSecond);
  const std::uint8_t index = device::name_gid({m.context.get()}, 1, 0);
  EXPECT_NE(index, 0) << "that is the GID from before the move";
  EXPECT_EQ(device::name_gid({m.context.get()}, 1, 0), index);
  EXPECT_EQ(m.context->gids().size(), before + 1);
  ibv_gid_entry known{};
  ASSERT_EQ(m.context->query_gid(1, index, &known), 0);
  EXPECT_EQ(device::address_of(known.gid), port::Address::from_ipv4(kSecond));
}

// A program has two contexts of a device. One has the new host's GID, where it was opened, at the index at which the
// other one has that of the former host.
TEST_F(TwoPrograms, GidsAreNamedAlikeInAllContexts) {
  m.start(kFirst);
  p.start(kSecond);
  move(m, kSecond);
  const std::vector<device::MovableContext*> contexts{m.context.get(), p.context.get()};
  const std::uint8_t index = device::name_gid(contexts, 1, 0);
  EXPECT_EQ(device::name_gid(contexts, 1, 0), index);
  for (device::MovableContext* context : contexts) {
    ibv_gid_entry known{};
    ASSERT_EQ(context->query_gid(1, index, &known), 0);
    EXPECT_EQ(device::address_of(known.gid), port::Address::from_ipv4(kSecond));
  }
}

// The agent asks, and only it ends the stop.
TEST_F(News, GidsCanBeNamedInAStop) {
  move(m, kSecond);
  const std::uint8_t index = device::name_gid({m.context.get()}, 1, 0);
  suspend(m);
  m.stop();
  EXPECT_EQ(device::name_gid({m.context.get()}, 1, 0), index);
  m.context->resume(true);
  carry();
}

}  // namespace
}  // namespace ferry::virt::testing
