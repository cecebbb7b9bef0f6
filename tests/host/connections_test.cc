#include "host/checkpoint/take/connections.h"

#include <gtest/gtest.h>

#include "temporary.h"

namespace ferry::host {
namespace {

using ferry::test::failure_of;

const Connection::End kServer{"10.77.1.1", 18600}, kClient{"10.77.1.2", 50000};

TEST(Connections, ACheckpointHasBothEndsOfEach) {
  EXPECT_EQ(failure_of([] {
              need_closed({{"server", 0, kServer, kClient},
                           {"client", 0, kClient, kServer},
                           {"server", 17, kServer, kClient},
                           {"client", 18, kClient, kServer},
                           {"client", 19, kClient, {}}});
            }),
            "");
}

TEST(Connections, OneOfTcpThatLeadsElsewhereIsNamed) {
  EXPECT_EQ(
      failure_of([] {
        need_closed({{"client", 0, kClient, kServer}});
      }),
      "'client' has a TCP connection from 10.77.1.2, port 50000, to 10.77.1.1, port 18600, "
      "which is not in the checkpoint; name the program there as well, or end the connection");
  // That somebody has the address is not enough: the peer's own connections are others.
  EXPECT_NE(
      failure_of([] {
        need_closed({{"client", 0, kClient, kServer}, {"server", 0, kServer, {"10.77.1.3", 9}}});
      }),
      "");
  // A QP of the same numbers is none of TCP.
  EXPECT_NE(failure_of([] {
              need_closed({{"client", 0, kClient, kServer}, {"server", 17, kServer, kClient}});
            }),
            "");
}

// One end has said that it sends no more, and is named as well; or it has gone.
TEST(Connections, OneThatIsHalfClosedIsNoObstacle) {
  EXPECT_EQ(failure_of([] {
              need_closed({{"client", 0, kClient, kServer, true}, {"server", 0, kServer, kClient}});
              need_closed({{"client", 0, kClient, kServer, true}});
            }),
            "");
}

TEST(Connections, AQpThatIsConnectedElsewhereIsNamed) {
  EXPECT_EQ(failure_of([] {
              need_closed({{"client", 0x11, kClient, kServer}});
            }),
            "QP 0x000011 of 'client' is connected with 10.77.1.1, which is not in the checkpoint; "
            "name the program there as well");
}

}  // namespace
}  // namespace ferry::host
